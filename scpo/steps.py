"""The one data contract: a batch of environment steps, one row each.

Array suffixes: ``_N`` rows, ``_G`` groups, ``_T`` steps of one trajectory. Every trainer builds a ``StepBatch`` from
its own batch and gets per-row advantages back; shaping and estimators see nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from scpo.errors import StepBatchError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]
StrArray = NDArray[np.object_]

_DTYPES: dict[str, Any] = {
    "group_N": np.int64, "trajectory_N": np.int64, "step_N": np.int32, "task_N": object, "anchor_N": object,
    "action_N": object, "next_observation_N": object, "reward_N": np.float32, "valid_N": np.bool_,
    "episode_return_N": np.float32, "success_N": np.bool_, "won_N": np.bool_, "position_N": np.int64,
    "is_copy_N": np.bool_, "entropy_N": np.float32, "hindsight_logprob_N": np.float32,
}  # fmt: skip


@dataclass(frozen=True)
class StepBatch:
    """Rows of environment steps, in any order; all fields are arrays of shape ``(N,)``.

    Attributes:
        group_N: Rows of the same task share a group (the paper's rollout group; verl's ``uid``).
        trajectory_N: Rows of the same rollout (``traj_uid``), numbered by environment slot.
        step_N: 0-based time index inside the trajectory.
        task_N: Task family or goal id, for diagnostics.
        anchor_N: Raw observation before the action, without history: GiGPO's anchor state.
        action_N: The projected action that was executed.
        next_observation_N: What the environment answered.
        reward_N: Environment reward of this step, unscaled by any discount.
        valid_N: The action had the required format.
        episode_return_N: Undiscounted sum of the rewards of the row's trajectory.
        success_N: The episode return exceeds the success threshold: the shaper's meaning of success.
        won_N: The benchmark's meaning of success.
        position_N: Place of the row in the trainer's (possibly length-balanced) batch: the processing order.
        is_copy_N: A row that the trainer duplicated to make the batch divide.
        entropy_N: Mean token entropy under the old policy, in nats; only where an estimator requires it.
        hindsight_logprob_N: Mean token log-probability given the outcome, NaN for failures; only where required.

    Raises:
        StepBatchError: A field has another length, or a row breaks an invariant; the message names the row.
    """

    group_N: IntArray
    trajectory_N: IntArray
    step_N: NDArray[np.int32]
    task_N: StrArray
    anchor_N: StrArray
    action_N: StrArray
    next_observation_N: StrArray
    reward_N: FloatArray
    valid_N: BoolArray
    episode_return_N: FloatArray
    success_N: BoolArray
    won_N: BoolArray
    position_N: IntArray
    is_copy_N: BoolArray
    entropy_N: FloatArray | None = None
    hindsight_logprob_N: FloatArray | None = None

    def __post_init__(self) -> None:
        for name, dtype in _DTYPES.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, _as_array(name, value, dtype))
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value.shape != (len(self),):
                raise StepBatchError(
                    f"StepBatch.{field.name} has shape {value.shape}, expected ({len(self)},) like group_N: "
                    "pass one value for each environment step"
                )
        _check_rows(self)

    def __len__(self) -> int:
        return len(self.group_N)

    @property
    def original_N(self) -> BoolArray:
        """True for rows that are not copies: the rows that matching and diagnostics read."""
        return ~self.is_copy_N


def _as_array(name: str, value: Any, dtype: Any) -> NDArray[Any]:
    if dtype is object:
        array = np.empty(len(value), dtype=object)
        array[:] = list(value)
        wrong = [i for i, text in enumerate(array) if not isinstance(text, str)]
        if wrong:
            raise StepBatchError(f"StepBatch.{name}: row {wrong[0]} holds {array[wrong[0]]!r}, expected a str")
        return array
    return np.asarray(value, dtype=dtype)


def _check_rows(batch: StepBatch) -> None:
    for name in ("reward_N", "episode_return_N"):
        bad = np.flatnonzero(~np.isfinite(getattr(batch, name)))
        if len(bad):
            _refuse(batch, bad[0], f"{name} is {getattr(batch, name)[bad[0]]}, expected a finite number")
    rows = np.flatnonzero(batch.original_N)
    order = rows[np.lexsort((batch.step_N[rows], batch.trajectory_N[rows]))]
    trajectory, step = batch.trajectory_N[order], batch.step_N[order]
    starts = np.r_[True, trajectory[1:] != trajectory[:-1]][: len(order)]
    expected = np.arange(len(order)) - np.maximum.accumulate(np.where(starts, np.arange(len(order)), 0))
    bad = np.flatnonzero(step != expected)
    if len(bad):
        _refuse(batch, order[bad[0]], f"step_N is {step[bad[0]]}, expected {expected[bad[0]]}: steps of a trajectory "
                "are 0..T-1, each once among rows that are not copies")  # fmt: skip
    for name in ("group_N", "episode_return_N", "success_N", "won_N"):
        value = getattr(batch, name)[order]
        bad = np.flatnonzero(~starts & np.r_[False, value[1:] != value[:-1]][: len(order)])
        if len(bad):
            _refuse(batch, order[bad[0]], f"{name} is {value[bad[0]]!r}, but an earlier row of its trajectory has "
                    f"{value[bad[0] - 1]!r}: all rows of a trajectory share one value")  # fmt: skip


def _refuse(batch: StepBatch, row: int, reason: str) -> NoReturn:
    place = f"group {batch.group_N[row]}, trajectory {batch.trajectory_N[row]}, step {batch.step_N[row]}"
    raise StepBatchError(f"row {row} ({place}): {reason}")
