"""Columns that only some estimators need and that a trainer measures for them."""

from typing import Literal

import numpy as np

from scpo.advantages.groups import Float64Array
from scpo.errors import StepBatchError
from scpo.steps import BoolArray, StepBatch


def measured(
    batch: StepBatch, name: Literal["entropy_N", "hindsight_logprob_N"], needed_N: BoolArray, why: str
) -> Float64Array:
    """An optional column in float64, checked where it is needed.

    Args:
        batch: The steps.
        name: Field of the batch.
        needed_N: Rows that must have a finite value.
        why: Who needs it where, for the message.

    Raises:
        StepBatchError: The batch lacks the field, or a needed value is not finite; names the row.
    """
    column_N = getattr(batch, name)
    if column_N is None:
        raise StepBatchError(f"{why} needs {name}, which this batch lacks: the trainer provides it")
    bad = np.flatnonzero(needed_N & ~np.isfinite(column_N))
    if len(bad):
        row = bad[0]
        raise StepBatchError(
            f"row {row} (group {batch.group_N[row]}, trajectory {batch.trajectory_N[row]}, step {batch.step_N[row]}): "
            f"{name} is {column_N[row]}, {why} needs a finite number"
        )
    return np.asarray(column_N, np.float64)
