"""The probe: the full similarity matrix of one failed trajectory with the walk on it, for the credit heatmap.

One file a probed training step, ``diagnostics/probe_step_<n>.npz``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scpo.diagnostics.arrays import damaged, read_arrays, save_arrays
from scpo.shaping.drive import MatchTask, Scorer, checked
from scpo.shaping.shaper import ShaperConfig, shape
from scpo.steps import FloatArray, IntArray

if TYPE_CHECKING:
    from scpo.records import RunFolder
    from scpo.shaping.order import Seed
    from scpo.steps import StepBatch

PATTERN = "probe_step_*.npz"


def dense_probe(batch: StepBatch, scorer: Scorer, config: ShaperConfig, seed: Seed) -> dict[str, Any] | None:
    """Score the most credited failure of a batch against its reference, every pair of steps.

    Ties go to the smallest group and trajectory. The pairs count in no diagnostic.

    Args:
        batch: The probe's rollouts, usually one group.
        scorer: Answers text pairs with similarities in [0, 1].
        config: The shaper that the run uses.
        seed: Run seed and training step.

    Returns:
        Arrays for an ``.npz`` file; m and l count the steps that the filter left in, both in time order.
        ``similarity_ml``: M, reference step u against failed step v. ``matched_l``: credited reference position of a
        failed step, -1 for none. ``order_l``: processing order. ``walk_l``: matched reference position after each
        processed step; shorter than l when the walk ended early. The slots are the trajectories. None when no group has
        both a success and a failure with a surviving step.

    Raises:
        ScorerError: The scorer gave something else than similarities in [0, 1].
    """
    shaped = shape(batch, scorer, config, seed)
    matches = [match for match in shaped.matches if match.task.reference and match.task.failed]
    if not matches:
        return None
    match = max(matches, key=lambda match: float(match.credit_l.sum()))
    task, trace = match.task, match.trace
    matched_l = np.full(len(task.failed), -1, dtype=np.int32)
    for cell in trace.credited:
        matched_l[cell.v] = cell.u
    return {
        "similarity_ml": dense_similarity(task, scorer),
        "credit_l": match.credit_l,
        "matched_l": matched_l,
        "order_l": np.array(task.order, dtype=np.int32),
        "walk_l": np.array([j for _, j in trace.walk], dtype=np.int32),
        "reference_text_m": np.array(task.reference),
        "failed_text_l": np.array(task.failed),
        "reference_slot": int(batch.trajectory_N[match.reference_row_m[0]]),
        "failed_slot": int(batch.trajectory_N[match.failed_row_l[0]]),
    }


def dense_similarity(task: MatchTask, scorer: Scorer) -> FloatArray:
    """M of one failed trajectory in full, ``(m, l)``; the pairs count in no diagnostic.

    Raises:
        ScorerError: The scorer gave something else than similarities in [0, 1].
    """
    pairs = [task.texts(cell) for cell in task.cells("failed")]
    scores: FloatArray = checked(scorer, pairs) if pairs else np.zeros(0, np.float32)
    return scores.reshape(len(task.reference), len(task.failed))


def save_probe(
    folder: RunFolder, step: int, batch: StepBatch, scorer: Scorer, shaper: ShaperConfig, *, seed: tuple[int, int]
) -> None:
    """Write the probe of a step: arrays of :func:`dense_probe`, threshold and task.

    ``found`` is False when the probe's group had no success or no failure at this step; then no arrays follow.
    """
    probe = dense_probe(batch, scorer, shaper, seed)
    arrays: dict[str, Any] = {"found": probe is not None, "task": str(batch.task_N[0]), "step": step}
    arrays |= {"theta": shaper.theta, "soft_base": shaper.soft_base, **(probe or {})}
    save_arrays(folder, "probe", step, {name: np.asarray(value) for name, value in arrays.items()})


@dataclass(frozen=True)
class Pair:
    """The matrix, the credit and the walk of one failed sibling against its reference.

    Attributes:
        similarity_ml: M, as in :func:`dense_probe`.
        matched_l: Credited reference position of each failed step, -1: none.
        order_l: Failed steps in the order in which they were processed.
        walk_l: Reference position after each processed step, -1: before the first.
        theta: The threshold.
    """

    similarity_ml: FloatArray
    matched_l: IntArray
    order_l: IntArray
    walk_l: IntArray
    theta: float


@dataclass(frozen=True)
class Probe:
    """One probe that was read; ``pair`` is None when its group held no success or no failure."""

    path: Path
    task: str
    pair: Pair | None

    @property
    def step(self) -> int:
        """The training step, from the file's name."""
        return int(self.path.stem.rpartition("_")[2])


def read_probe(path: Path) -> Probe:
    """What :func:`save_probe` wrote.

    Raises:
        RecordError: The file is no probe.
    """
    arrays = read_arrays(path, "probe file")
    try:
        task = str(arrays["task"])
        if not bool(arrays.get("found", True)):
            return Probe(path, task, None)
        named = {name: arrays[name] for name in ("similarity_ml", "matched_l", "order_l", "walk_l")}
        return Probe(path, task, Pair(**named, theta=float(arrays["theta"])))
    except (KeyError, ValueError, TypeError) as error:
        raise damaged(path, "probe file", error) from error
