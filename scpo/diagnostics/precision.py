"""Whether credit goes to steps that help: the share of them that shorten what remains to be done."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scpo.envs.base import PlanningEnvironment, Task
from scpo.errors import EnvironmentFailure
from scpo.rollout import Trajectory
from scpo.steps import BoolArray, StepBatch

logger = logging.getLogger(__name__)


def credit_precision(
    environment: PlanningEnvironment,
    trajectories: Sequence[Trajectory],
    batch: StepBatch,
    credited_N: BoolArray,
    *,
    steps: int,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Shares of steps after which a shortest plan to win is shorter than before, on a sample.

    ``credit/precision`` is of credited steps, ``_uncredited`` of the others of the trajectories that got credit, and
    ``_random`` of all steps of failed trajectories: what a step is worth by chance. ``credit/share`` is the share of
    all these that is credited. A share of no steps is left out.

    Args:
        environment: Knows the plans.
        trajectories: By ``batch.trajectory_N``.
        batch: The steps.
        credited_N: Which of them got credit.
        steps: At most so many of each of the three kinds are looked at.
        rng: Draws them.
    """

    @functools.cache
    def remaining(trajectory: int, taken: int) -> int | None:
        played = trajectories[trajectory]
        return remaining_plan(environment, played.slot.task, [result.action for result in played.results[:taken]])

    def shortens(row: int) -> bool | None:
        trajectory, taken = int(batch.trajectory_N[row]), int(batch.step_N[row])
        before, after = remaining(trajectory, taken), remaining(trajectory, taken + 1)
        return None if before is None or after is None else after < before

    kinds, metrics = _kinds(batch, credited_N), {}
    if kinds["credit/precision_random"].any():
        metrics["credit/share"] = float(kinds["credit/precision"].sum() / kinds["credit/precision_random"].sum())
    for name, chosen_N in kinds.items():
        sample = _sample(np.flatnonzero(chosen_N), steps, rng)
        known = [answer for answer in map(shortens, sample) if answer is not None]
        if known:
            metrics[name] = float(np.mean(known))
    return metrics


def _kinds(batch: StepBatch, credited_N: BoolArray) -> dict[str, BoolArray]:
    failed_N = batch.original_N & ~batch.success_N
    credited_N = failed_N & credited_N
    beside_N = failed_N & ~credited_N & np.isin(batch.trajectory_N, batch.trajectory_N[credited_N])
    return {
        "credit/precision": credited_N,
        "credit/precision_uncredited": beside_N,
        "credit/precision_random": failed_N,
    }


def _sample(rows: NDArray[np.int64], steps: int, rng: np.random.Generator) -> list[int]:
    return sorted(rng.choice(rows, min(steps, len(rows)), replace=False).tolist())


def remaining_plan(environment: PlanningEnvironment, task: Task, actions: Sequence[str]) -> int | None:
    """Steps of a shortest plan; None as well where the environment broke: a diagnostic does not stop a run."""
    try:
        return environment.remaining_plan(task, actions)
    except EnvironmentFailure as failure:
        logger.warning("credit/precision leaves a step out: %s", failure)
        return None
