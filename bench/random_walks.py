"""Batches of invented steps for benchmarks, and the clock for what is done with them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from scpo.steps import StepBatch

T = TypeVar("T")


def walks(shape: tuple[int, int, int], won_K: NDArray[np.bool_], **columns: Sequence[Any] | NDArray[Any]) -> StepBatch:
    """Groups x siblings x steps, row after row in time order; who wins gets 10 at the end.

    Args:
        shape: Numbers of groups, siblings and steps.
        won_K: Which rollouts succeed.
        columns: The other fields: texts, and what else was measured.
    """
    _, siblings, steps = shape
    trajectory_N, step_N = np.divmod(np.arange(np.prod(shape)), steps)
    won_N = won_K[trajectory_N]
    fields: dict[str, Any] = {
        "group_N": trajectory_N // siblings, "trajectory_N": trajectory_N, "step_N": step_N,
        "reward_N": 10.0 * (won_N & (step_N == steps - 1)), "valid_N": np.ones(len(step_N), dtype=bool),
        "episode_return_N": 10.0 * won_N, "success_N": won_N, "won_N": won_N, "position_N": np.arange(len(step_N)),
        "is_copy_N": np.zeros(len(step_N), dtype=bool),
    }  # fmt: skip
    return StepBatch(**fields | columns)


def best_of(repetitions: int, call: Callable[[], T], clock: Callable[[], float] = time.perf_counter) -> tuple[float, T]:
    """Seconds of the fastest of some calls, and what the last one gave."""
    seconds = []
    for _ in range(repetitions):
        started = clock()
        answer = call()
        seconds.append(clock() - started)
    return min(seconds), answer
