"""What is sampled to disk for the figures: the probe's similarity matrix, and step texts with outcome and credit."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ScorerUnavailable
from scpo.shaping.probe import dense_probe
from scpo.tracking.atomic import write_bytes

if TYPE_CHECKING:
    from scpo.credit.assign import CreditDiagnostics
    from scpo.schema import ShaperConfig
    from scpo.shaping.drive import Scorer
    from scpo.steps import StepBatch
    from scpo.tracking import RunFolder

TEXT_BATCHES = 5  # the paper's t-SNE embeds five early batches (appendix C.2)

logger = logging.getLogger(__name__)


@contextmanager
def spared(sample: str, step: int) -> Iterator[None]:
    """A sample for the figures is left out where the configuration lets training go on without the scorer."""
    try:
        yield
    except ScorerUnavailable as error:
        logger.error("no %s of step %d: %s", sample, step, error)


def save_probe(
    folder: RunFolder, step: int, batch: StepBatch, scorer: Scorer, shaper: ShaperConfig, *, seed: tuple[int, int]
) -> None:
    """``diagnostics/probe_step_<n>.npz``: arrays of :meth:`scpo.shaping.probe.DenseProbe.arrays`, threshold and task.

    ``found`` is False when the probe's group had no success or no failure at this step; then no arrays follow.
    """
    probe = dense_probe(batch, scorer, shaper, seed)
    arrays: dict[str, Any] = {"found": probe is not None, "task": str(batch.task_N[0]), "step": step}
    arrays |= {"theta": shaper.theta, "soft_base": shaper.soft_base}
    if probe is not None:
        arrays |= probe.arrays()
        arrays["reference_slot"] = int(batch.trajectory_N[probe.match.reference_row_m[0]])
        arrays["failed_slot"] = int(batch.trajectory_N[probe.match.failed_row_l[0]])
    _save(folder, f"probe_step_{step:05d}.npz", {name: np.asarray(value) for name, value in arrays.items()})


def save_step_texts(folder: RunFolder, step: int, batch: StepBatch, diagnostics: CreditDiagnostics) -> None:
    """``diagnostics/step_texts_step_<n>.npz``, only for the first five batches that have an active group.

    Nothing to do where the filter left no step in.
    """
    if not diagnostics.metrics.get("credit/active_groups") or diagnostics.shaped is None:
        return
    earlier = [path for path in folder.diagnostics.glob("step_texts_step_*.npz") if int(path.stem[-5:]) < step]
    if len(earlier) >= TEXT_BATCHES:
        return
    records = diagnostics.steps(batch)
    if not records:
        return
    columns = {name: np.array([record[name] for record in records]) for name in records[0]}
    _save(folder, f"step_texts_step_{step:05d}.npz", columns)


def _save(folder: RunFolder, name: str, arrays: dict[str, NDArray[Any]]) -> None:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_bytes(folder.diagnostics / name, buffer.getvalue())
