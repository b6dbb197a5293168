"""Recorded training rollouts of a small policy, as batches of steps; tests/data/rollouts/README.md tells of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from scpo.diagnostics.rollout_file import read_rollouts
from scpo.steps import FloatArray, StepBatch

ROLLOUTS = Path(__file__).parents[1] / "tests" / "data" / "rollouts"
RUNS = ("gigpo_s0", "scpo_minilm_s0")


def recorded(run: str = "scpo_minilm_s0") -> Iterator[tuple[int, StepBatch, FloatArray]]:
    """Each batch of a run with its training step and the recorded step returns; positions are those of four ranks."""
    for one in read_rollouts(ROLLOUTS / f"{run}.json.gz"):
        yield one.step, one.batch, one.step_return_N
