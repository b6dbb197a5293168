"""Where a step's neighbours in time are: every trajectory is one row of a padded table."""

from dataclasses import dataclass

import numpy as np

from scpo.errors import StepBatchError
from scpo.steps import IntArray, StepBatch


@dataclass(frozen=True)
class Timeline:
    """The steps of a batch by trajectory and time.

    Attributes:
        row_KT: Row of step t of trajectory k, never a copy's; -1 after the trajectory's end.
        slot_N: Every row's trajectory k; a copy has its twin's.
        step_N: Every row's step t.
    """

    row_KT: IntArray
    slot_N: IntArray
    step_N: IntArray

    @property
    def lengths(self) -> IntArray:
        """For every row the number of steps T of its trajectory."""
        length_K: IntArray = (self.row_KT >= 0).sum(axis=1)
        return length_K[self.slot_N]

    def neighbours(self, offset: int) -> IntArray:
        """For every row the one ``offset`` steps later in its trajectory (earlier if negative), -1 if there is none."""
        column_N = self.step_N + offset
        last = self.row_KT.shape[1] - 1
        row_N = self.row_KT[self.slot_N, np.clip(column_N, 0, last)]
        return np.where((column_N >= 0) & (column_N <= last), row_N, -1)


def timeline(batch: StepBatch) -> Timeline:
    """Sort a batch into its trajectories; time order comes from ``step_N``, whatever the order of the rows.

    Raises:
        StepBatchError: A copy whose twin is not in the batch.
    """
    trajectory_K, slot_N = np.unique(batch.trajectory_N, return_inverse=True)
    rows = np.flatnonzero(batch.original_N)
    row_KT = np.full((len(trajectory_K), int(batch.step_N.max(initial=-1)) + 1), -1, dtype=np.int64)
    row_KT[slot_N[rows], batch.step_N[rows]] = rows
    orphans = np.flatnonzero(row_KT[slot_N, batch.step_N] < 0)
    if len(orphans):
        row = orphans[0]
        raise StepBatchError(
            f"row {row} (trajectory {batch.trajectory_N[row]}, step {batch.step_N[row]}) is a copy, but the step it "
            "copies is not in the batch: pass the original row as well, or clear is_copy_N"
        )
    return Timeline(row_KT, slot_N, batch.step_N.astype(np.int64))
