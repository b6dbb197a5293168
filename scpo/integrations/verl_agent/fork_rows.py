"""Conversion of the fork's batch, NumPy columns by name, to a StepBatch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scpo.errors import StepBatchError
from scpo.integrations.verl_agent.recording import (
    ACTION,
    ANSWER,
    NEXT_STATE,
    SLOT,
    STATE,
    STEP,
    WON,
)
from scpo.shaping.order import positions
from scpo.steps import FloatArray, IntArray, StepBatch

# Required columns: the fork's own, and those that `recording` adds.
NEEDED = (
    "uid",
    "anchor_obs",
    "rewards",
    "episode_rewards",
    "is_action_valid",
    SLOT,
    STEP,
    ACTION,
    ANSWER,
    WON,
)


def step_batch(
    columns: Mapping[str, NDArray[Any]],
    *,
    success_threshold: float,
    entropy_N: FloatArray | None = None,
    length_N: NDArray[np.int64] | None = None,
) -> StepBatch:
    """Build the StepBatch of the fork's rows, in their order; copies made by the fork are marked.

    Args:
        columns: ``non_tensor_batch``.
        success_threshold: tau_succ; a return above it is a success for the shaper.
        entropy_N: Mean token entropy of each row, where the estimator requires it.
        length_N: Number of tokens of each row, if it determines the processing order: longest
            first, ties in time order. None: rows are processed in the fork's order.

    Raises:
        StepBatchError: A column is missing, or a row breaks the data contract.
    """
    missing = [name for name in NEEDED if name not in columns]
    if missing:
        raise StepBatchError(
            f"the batch of verl-agent lacks {', '.join(missing)}; the scpo_* columns come from the "
            "wrapped rollout: install the hooks in the process of the task runner (python -m "
            "scpo.integrations.verl_agent)"
        )

    # Via lists, because the fork's columns hold Python objects.
    slot_N = np.asarray(columns[SLOT].tolist(), dtype=np.int64)
    step_N = np.asarray(columns[STEP].tolist(), dtype=np.int64)
    # Rows are balanced over the ranks by now: their order is the paper's "reordered" (ledger 9).
    position_N = np.arange(len(slot_N))
    if length_N is not None:
        position_N = _by_length(length_N, slot_N, step_N)
    return StepBatch(
        group_N=_smallest(columns["uid"], slot_N),
        trajectory_N=slot_N,
        step_N=step_N.astype(np.int32),
        task_N=[""] * len(slot_N),  # type: ignore[arg-type]  # not in the fork's rows
        anchor_N=columns["anchor_obs"],
        action_N=columns[ACTION],
        next_observation_N=columns[ANSWER],
        reward_N=_floats(columns["rewards"]),
        valid_N=np.array([bool(valid) for valid in columns["is_action_valid"]]),
        episode_return_N=_floats(columns["episode_rewards"]),
        success_N=_floats(columns["episode_rewards"]) > np.float32(success_threshold),
        won_N=_ever(columns[WON], slot_N),
        position_N=position_N,
        is_copy_N=_repeated(slot_N, step_N),
        state_N=columns.get(STATE),
        next_state_N=columns.get(NEXT_STATE),
        entropy_N=entropy_N,
    )


def _by_length(
    length_N: NDArray[np.int64], slot_N: NDArray[np.int64], step_N: NDArray[np.int64]
) -> IntArray:
    """Position of each row if the longest is processed first."""
    # Sorted by time first, so that rows of equal length do not depend on the fork's order.
    in_time = np.lexsort((step_N, slot_N))
    position_N = np.empty_like(in_time)
    position_N[in_time] = positions(length_N[in_time], "length", 1)
    return position_N


def _floats(column: NDArray[Any]) -> FloatArray:
    """Convert the fork's column of Python objects, some of them arrays with one number."""
    return np.array([float(np.asarray(value).item()) for value in column], dtype=np.float32)


def _smallest(label_N: NDArray[Any], number_N: NDArray[np.int64]) -> NDArray[np.int64]:
    """Replace each label by the smallest number among its rows.

    The result names groups reproducibly: the fork's labels are UUIDs without a seed.
    """
    _, place_N = np.unique(label_N.astype(str), return_inverse=True)
    smallest = np.full(place_N.max(initial=-1) + 1, np.iinfo(np.int64).max)
    np.minimum.at(smallest, place_N, number_N)
    return smallest[place_N]


def _ever(flag_N: NDArray[Any], trajectory_N: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True on all rows of a trajectory in which the flag is set at some step."""
    # The fork marks success at single steps, the contract on every row.
    is_set_N = np.array([bool(flag) for flag in flag_N], dtype=np.bool_)
    return np.isin(trajectory_N, trajectory_N[is_set_N])


def _repeated(trajectory_N: NDArray[np.int64], step_N: NDArray[np.int64]) -> NDArray[np.bool_]:
    """True on every row of a (trajectory, step) but the first."""
    # The fork copies rows to fill its mini-batches, and does not mark the copies.
    _, first = np.unique(np.stack([trajectory_N, step_N]), axis=1, return_index=True)
    repeated = np.ones(len(step_N), dtype=np.bool_)
    repeated[first] = False
    return repeated
