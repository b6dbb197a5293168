"""Step texts of a few early batches with outcome and credit, for the scatter of embedded steps.

One file a sampled training step, ``diagnostics/step_texts_step_<n>.npz``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scpo.diagnostics.arrays import damaged, read_arrays, save_arrays
from scpo.steps import BoolArray, FloatArray, IntArray, StrArray

if TYPE_CHECKING:
    from scpo.credit.metrics import CreditDiagnostics
    from scpo.records import RunFolder
    from scpo.steps import StepBatch

PATTERN = "step_texts_step_*.npz"
TEXT_BATCHES = 5  # the paper's t-SNE embeds five early batches (appendix C.2)
COLUMNS = ("group", "trajectory", "text", "success", "credit")
"""What readers rely on; the files also say which step of its trajectory each is."""


def save_step_texts(folder: RunFolder, step: int, batch: StepBatch, diagnostics: CreditDiagnostics) -> None:
    """Sample the batch, only if it is one of the first five that have an active group.

    Nothing to do where the filter left no step in.
    """
    shaped = diagnostics.shaped
    if not diagnostics.metrics.get("credit/active_groups") or shaped is None:
        return
    earlier = [path for path in folder.diagnostics.glob(PATTERN) if int(path.stem[-5:]) < step]
    if len(earlier) >= TEXT_BATCHES:
        return
    rows = np.flatnonzero(batch.original_N & shaped.surviving_N)
    if len(rows):
        columns = {
            "group": batch.group_N[rows],
            "trajectory": batch.trajectory_N[rows],
            "step": batch.step_N[rows].astype(np.int64),
            "text": shaped.text_N[rows].astype(str),
            "success": batch.success_N[rows],
            "credit": shaped.credit_N[rows].astype(np.float64),
        }
        save_arrays(folder, "step_texts", step, columns)


@dataclass(frozen=True)
class StepTexts:
    """Filtered steps of several batches, one entry each (N).

    Attributes:
        text_N: What they said.
        group_N: Their rollout groups, numbered over all batches.
        success_N: The step's rollout succeeded.
        credit_N: What credit they got.
        batches: How many batches these are.
    """

    text_N: StrArray
    group_N: IntArray
    success_N: BoolArray
    credit_N: FloatArray
    batches: int


def read_step_texts(paths: Sequence[Path]) -> StepTexts:
    """Several files as one.

    Raises:
        RecordError: One of them holds no step texts.
    """
    batches = [_read(path) for path in paths]
    joined = {name: np.concatenate([batch[name] for batch in batches]) for name in COLUMNS}
    batch_N = np.concatenate([np.full(len(batch["group"]), i) for i, batch in enumerate(batches)])
    _, group_N = np.unique(np.stack([batch_N, joined["group"]]), axis=1, return_inverse=True)
    return StepTexts(joined["text"], group_N, joined["success"].astype(bool), joined["credit"], len(batches))


def _read(path: Path) -> dict[str, NDArray[Any]]:
    arrays = read_arrays(path, "file of step texts")
    if missing := [name for name in COLUMNS if name not in arrays]:
        raise damaged(path, "file of step texts", KeyError(*missing))
    return arrays
