"""The one data contract: a batch of environment steps, one row each.

Every trainer builds a ``StepBatch`` from its own batch and gets per-row advantages back; shaping
and estimators read nothing else.

Suffixes of arrays, throughout the project: ``_N`` rows, ``_G`` groups (of any kind), ``_K``
trajectories, ``_T`` steps of one trajectory, ``_L`` tokens of a response; ``_m`` steps of a
reference, ``_l`` steps of a failed trajectory, both after the filter.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from numbers import Real
from typing import Any, NoReturn, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from scpo.episodes import Episode, columns_of
from scpo.errors import ConfigError, StepBatchError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]
StrArray = NDArray[np.object_]
_Scalar = TypeVar("_Scalar", bound=np.generic)

# Texts are object arrays: NumPy's own strings would pad every row to the longest observation.
_DTYPES: dict[str, Any] = {
    "group_N": np.int64, "trajectory_N": np.int64, "step_N": np.int32, "task_N": object,
    "anchor_N": object, "action_N": object, "next_observation_N": object, "reward_N": np.float32,
    "valid_N": np.bool_, "episode_return_N": np.float32, "success_N": np.bool_, "won_N": np.bool_,
    "position_N": np.int64, "is_copy_N": np.bool_, "task_id_N": object, "state_N": object,
    "next_state_N": object, "facts_N": object, "next_facts_N": object, "commands_N": object,
    "next_commands_N": object, "true_anchor_N": object, "next_true_anchor_N": object,
    "true_state_N": object, "next_true_state_N": object, "no_op_N": np.bool_,
    "state_id_N": np.int64, "next_state_id_N": np.int64, "entropy_N": np.float32,
    "hindsight_logprob_N": np.float32,
}  # fmt: skip


@dataclass(frozen=True)
class StepBatch:
    """Rows of environment steps, in any order; all fields are arrays of shape ``(N,)``.

    The arrays are the batch's own copies and read-only: writing into one raises NumPy's
    ``ValueError`` on that line. ``dataclasses.replace(batch, reward_N=...)`` makes a changed batch.

    Attributes:
        group_N: Rows of the same task share a group (the paper's rollout group; verl's ``uid``).
        trajectory_N: Rows of the same rollout (``traj_uid``), numbered by environment slot.
        step_N: 0-based time index inside the trajectory.
        task_N: Task family or goal id, for diagnostics.
        anchor_N: Raw observation before the action, without history: GiGPO's anchor state.
        action_N: The projected action that was executed.
        next_observation_N: The environment's response.
        reward_N: Environment reward of this step, unscaled by any discount.
        valid_N: The action had the required format.
        episode_return_N: Undiscounted sum of the rewards of the row's trajectory.
        success_N: The episode return exceeds the success threshold: success as the shaper defines
            it.
        won_N: The benchmark's meaning of success.
        position_N: Index of the row in the trainer's (possibly length-balanced) batch, which is the
            processing order.
        is_copy_N: A row that the trainer duplicated to make the batch divisible.
        task_id_N: Id of the task, the same in every training step; None where the trainer does not
            know it.
        state_N: The agent's full view of its state before the action, as one text; None where the
            environment provides none: estimators that compare states then read only ``anchor_N``.
        next_state_N: The same after the action.
        facts_N: Structured facts of the state before the action, as one canonical text, or None.
        next_facts_N: The same after the action.
        commands_N: The actions that the environment admits before the action, sorted, as one text,
            or None.
        next_commands_N: The same after the action.
        true_anchor_N: The observation before the action without any rewording; only for studies.
        next_true_anchor_N: The same after the action.
        true_state_N: The state before the action without any rewording; only for studies.
        next_true_state_N: The same after the action.
        no_op_N: The environment reports a no-op; None: ``StepFilter`` compares the texts.
        state_id_N: Number of the state before the action, from an identity of ``scpo.states``; rows
            of one group with equal numbers share a state. ``scpo.credit.assign`` sets it; None:
            texts are compared for equality.
        next_state_id_N: The same after the action.
        entropy_N: Mean token entropy under the old policy, in nats; only if an estimator requires
            it.
        hindsight_logprob_N: Mean token log-probability given the outcome, NaN for failures; only if
            an estimator requires it.

    Raises:
        StepBatchError: A field has the wrong length, or a row violates an invariant; names the row.
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
    task_id_N: StrArray | None = None
    state_N: StrArray | None = None
    next_state_N: StrArray | None = None
    facts_N: StrArray | None = None
    next_facts_N: StrArray | None = None
    commands_N: StrArray | None = None
    next_commands_N: StrArray | None = None
    true_anchor_N: StrArray | None = None
    next_true_anchor_N: StrArray | None = None
    true_state_N: StrArray | None = None
    next_true_state_N: StrArray | None = None
    no_op_N: BoolArray | None = None
    state_id_N: IntArray | None = None
    next_state_id_N: IntArray | None = None
    entropy_N: FloatArray | None = None
    hindsight_logprob_N: FloatArray | None = None

    def __post_init__(self) -> None:
        # Converted first, so that lists are accepted and every check below reads the contract's
        # types. `object.__setattr__` because the class is frozen.
        for name, dtype in _DTYPES.items():
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, read_only(_as_array(name, value, dtype)))

        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and value.shape != (len(self),):
                raise StepBatchError(
                    f"StepBatch.{field.name} has shape {value.shape}, expected ({len(self)},) like "
                    "group_N: pass one value for each environment step"
                )
        _check_rows(self)

    def __len__(self) -> int:
        return len(self.group_N)

    @classmethod
    def from_episodes(
        cls, episodes: Sequence[Episode], *, success_above: float | None = None
    ) -> Self:
        """Build a batch from rollouts, episode by episode in time order; other columns are derived.

        ``position_N`` is that order, too. For the processing order of SCPO's paper (``balanced``),
        replace ``position_N`` (``dataclasses.replace``) by the positions of the rows in your
        trainer's batch.

        Args:
            episodes: The siblings of all groups.
            success_above: An episode succeeds if its return is larger (the paper's tau_succ); None:
                0, with a warning where positive returns differ, since partial scores then count as
                success.

        Raises:
            StepBatchError: An episode is inconsistent or incomplete; the message names it and the
                fix.
        """
        return cls(**columns_of(episodes, success_above))

    @property
    def original_N(self) -> BoolArray:
        """True for rows that are not copies: the rows that matching and diagnostics read."""
        return ~self.is_copy_N

    @cached_property
    def timeline(self) -> Timeline:
        """The rows of the batch by trajectory and time.

        Cached, because returns, matching, estimators and diagnostics all read it, and a frozen
        batch does not change.
        """
        return _timeline(self)


@dataclass(frozen=True)
class Timeline:
    """Trajectories of a batch, by ascending group and id. Their rows exclude copies.

    Attributes:
        group_K: Group of each trajectory.
        id_K: Its id, as in ``StepBatch.trajectory_N``.
        length_K: Its number of steps.
        success_K: True where it succeeded, as the shaper defines success.
        row_KT: Row of step t of trajectory k, -1 after its end.
        slot_N: Every row's trajectory k; a copy has its original's.
        step_N: Every row's step t.
        position_N: Every row's place in the trainer's batch: the smallest among its step's copies.
    """

    group_K: IntArray
    id_K: IntArray
    length_K: IntArray
    success_K: BoolArray
    row_KT: IntArray
    slot_N: IntArray
    step_N: IntArray
    position_N: IntArray

    def __post_init__(self) -> None:
        # Cached on the batch and shared by its readers, like the columns.
        for field in fields(self):
            object.__setattr__(self, field.name, read_only(getattr(self, field.name)))

    def rows_of(self, k: int) -> IntArray:
        """Rows of trajectory k in time order."""
        return self.row_KT[k, : self.length_K[k]]

    @property
    def length_N(self) -> IntArray:
        """For every row the number of steps of its trajectory."""
        return self.length_K[self.slot_N]

    def neighbours(self, offset: int) -> IntArray:
        """Row ``offset`` steps later in its trajectory (earlier if negative), -1 past the ends."""
        column_N = self.step_N + offset
        last = self.row_KT.shape[1] - 1
        row_N = self.row_KT[self.slot_N, np.clip(column_N, 0, last)]
        return np.where((column_N >= 0) & (column_N <= last), row_N, -1)

    def table(self, value_N: NDArray[Any]) -> NDArray[Any]:
        """A column by trajectory and time, ``(K, T)``; 0 after a trajectory's end."""
        return np.where(self.row_KT >= 0, value_N[self.row_KT], 0)

    def column(self, value_KT: NDArray[Any]) -> NDArray[Any]:
        """Every row's cell of a table from ``table``; a copy has its original's."""
        return value_KT[self.slot_N, self.step_N]


def read_only(array: NDArray[_Scalar]) -> NDArray[_Scalar]:
    """A read-only view, without a copy: code that writes into it fails on that line."""
    view = array.view()
    view.flags.writeable = False
    return view


def _as_array(name: str, value: Any, dtype: Any) -> NDArray[Any]:
    """A column in the dtype of the contract; a value that would change in it is refused.

    NumPy would silently make True of "False", 1 of 1.7, 0 of 2**32 and a value of a masked row.

    Args:
        name: Name of the field, for messages.
        value: One value for each row: list, tuple, array.
        dtype: The contract's.

    Raises:
        StepBatchError: It is not such a sequence, or a value does not fit; names the row.
    """
    if np.ma.isMaskedArray(value):
        raise StepBatchError(
            f"StepBatch.{name} is a masked array, whose masked rows would count as values: pass an "
            "array without these rows, or .filled(...)"
        )

    # Trainers pass arrays of numbers: these are checked without a loop over rows.
    if isinstance(value, np.ndarray) and value.ndim == 1 and value.dtype.kind in "biuf":
        return _converted(name, value, dtype)
    rows = _listed(value)
    if rows is None:
        raise StepBatchError(
            f"StepBatch.{name} is the {type(value).__name__} {str(value)[:40]!r}, expected a "
            "sequence with one value for each row"
        )
    return _collected(name, rows, dtype)


def _listed(value: Any) -> NDArray[Any] | None:
    """The values of a sequence as an array of objects; None if it is not one value for each row."""
    # A text is a sequence of letters, not of values.
    if isinstance(value, str | bytes):
        return None
    try:
        # Filled afterwards, because np.array would merge rows of equal length into further axes.
        rows = np.empty(len(value), dtype=object)
        rows[:] = list(value)
    except (TypeError, ValueError):
        # A scalar, or rows of different lengths.
        return None
    return rows


def _converted(name: str, array: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """An array of numbers in the contract's dtype, all at once.

    Rounding to float32 is allowed, overflow to infinity is not; integers and truth values must be
    equal before and after.
    """
    # Overflow and NaN to integer would warn; both are found by the comparison.
    with np.errstate(all="ignore"):
        column = array.astype(dtype)
        if np.dtype(dtype).kind == "f":
            changed = np.isinf(column) & np.isfinite(array)
        else:
            # Signs are compared, too: an unsigned number of more than 63 bits becomes negative.
            changed = (column != array) | ((column < 0) != (array < 0))
    bad = np.flatnonzero(changed)
    if len(bad):
        _refuse_value(name, int(bad[0]), array[bad[0]], dtype)
    return column


def _collected(name: str, rows: NDArray[Any], dtype: Any) -> NDArray[Any]:
    """A list or an array of objects in the contract's dtype, row by row; texts stay as they are."""
    kind = np.dtype(dtype).kind
    largest = float(np.finfo(dtype).max) if kind == "f" else 0.0
    for row, given in enumerate(rows):
        # NumPy's scalars as Python's, whose integers have no width: comparing them cannot overflow.
        value = given.item() if isinstance(given, np.generic) else given
        is_number: bool = isinstance(value, Real)
        if kind == "O":
            fits = isinstance(value, str)
        elif not is_number:
            fits = False
        elif kind == "b":
            fits = bool(value in (0, 1))
        elif kind == "i":
            limits = np.iinfo(dtype)
            fits = bool(limits.min <= value <= limits.max and value == int(value))
        else:
            # NaN and the infinities fit; `_check_rows` checks which columns may hold them.
            fits = not largest < abs(value) < math.inf
        if not fits:
            _refuse_value(name, row, value, dtype)
    return rows if kind == "O" else rows.astype(dtype)


def _refuse_value(name: str, row: int, value: Any, dtype: Any) -> NoReturn:
    """Raise a StepBatchError for a value that is not one of the contract's dtype."""
    value = value.item() if isinstance(value, np.generic) else value
    remedy = ""
    # verl's `uid` and `traj_uid` are texts (UUIDs): the most common first mistake.
    if name in ("group_N", "trajectory_N") and isinstance(value, str):
        remedy = "; number them: np.unique(ids, return_inverse=True)[1]"
    expected = {"O": "a str", "b": "True or False", "i": "an integer", "f": "a number"}
    kind = np.dtype(dtype).kind
    range_ = f" within {np.dtype(dtype).name}" if kind in "if" else ""
    raise StepBatchError(
        f"StepBatch.{name}: row {row} holds {value!r}, expected {expected[kind]}{range_}{remedy}"
    )


def _check_rows(batch: StepBatch) -> None:
    """Check the invariants of rows; building ``timeline`` checks those of trajectories and copies.

    Raises:
        StepBatchError: A row violates one; names the row.
    """
    for name in ("reward_N", "episode_return_N"):
        bad = np.flatnonzero(~np.isfinite(getattr(batch, name)))
        if len(bad):
            refuse(
                batch, bad[0], f"{name} is {getattr(batch, name)[bad[0]]}, expected a finite number"
            )

    # NaN is a missing value here; an infinity comes from a logarithm of 0 in the trainer.
    for name in ("entropy_N", "hindsight_logprob_N"):
        value_N = getattr(batch, name)
        bad = np.flatnonzero([] if value_N is None else np.isinf(value_N))
        if len(bad):
            refuse(batch, bad[0], f"{name} is {value_N[bad[0]]}, expected a finite number or NaN")

    # Rows by trajectory and time, so that each is compared with the previous step; step 0 begins
    # another trajectory.
    row_KT = batch.timeline.row_KT
    order = row_KT[row_KT >= 0]
    for name in ("group_N", "episode_return_N", "success_N", "won_N"):
        value = getattr(batch, name)[order]
        bad = 1 + np.flatnonzero((value[1:] != value[:-1]) & (batch.step_N[order][1:] > 0))
        if len(bad):
            refuse(batch, order[bad[0]], f"{name} is {value[bad[0]]!r}, but an earlier row of its "
                    f"trajectory has {value[bad[0] - 1]!r}: all rows of a trajectory share one "
                    "value")  # fmt: skip


def _timeline(batch: StepBatch) -> Timeline:
    """Index a batch by trajectory and time, without a loop over rows.

    Raises:
        StepBatchError: Steps of a trajectory are not 0..T-1, or a copy lacks its original; names
            the row.
    """
    id_K, slot_N = np.unique(batch.trajectory_N, return_inverse=True)
    # int64 for indexing and for the arithmetic of `neighbours`.
    step_N = batch.step_N.astype(np.int64)

    # Among originals every trajectory must have the steps 0..T-1. Rows may be in any order, because
    # trainers balance them over ranks.
    rows = np.flatnonzero(batch.original_N)
    length_K = np.bincount(slot_N[rows], minlength=len(id_K))
    order = rows[np.lexsort((step_N[rows], slot_N[rows]))]
    # 0, 1, 2, ... within each trajectory.
    start_K = np.cumsum(length_K) - length_K
    expected = np.arange(len(order)) - np.repeat(start_K, length_K)
    bad = np.flatnonzero(step_N[order] != expected)
    if len(bad):
        refuse(batch, order[bad[0]], f"step_N is {step_N[order[bad[0]]]}, expected "
                f"{expected[bad[0]]}: steps of a trajectory are 0..T-1, each once among rows that "
                "are not copies")  # fmt: skip

    # The originals were checked above, so a step outside of 0..T-1 can only be a copy's.
    bad = np.flatnonzero((step_N < 0) | (step_N >= length_K[slot_N]))
    if len(bad):
        refuse(batch, bad[0], "it is a copy, but the step it copies is not in the batch: pass the "
                "original row as well, or clear is_copy_N")  # fmt: skip

    # Tables of rows and positions; -1 marks the cells after a trajectory's end.
    row_KT = np.full((len(id_K), length_K.max(initial=1)), -1, dtype=np.int64)
    row_KT[slot_N[rows], step_N[rows]] = rows
    position_KT = np.full(row_KT.shape, np.iinfo(np.int64).max)
    # The smallest position among a step and its copies, so that copying changes no order.
    np.minimum.at(position_KT, (slot_N, step_N), batch.position_N)

    first_K = row_KT[:, 0]
    # By group and id, so that the order of rows does not change the order of sums.
    by_group = np.lexsort((id_K, batch.group_N[first_K]))
    return Timeline(
        group_K=batch.group_N[first_K][by_group],
        id_K=id_K[by_group],
        length_K=length_K[by_group],
        success_K=batch.success_N[first_K][by_group],
        row_KT=row_KT[by_group],
        # argsort inverts the permutation: old number of a trajectory -> its new one.
        slot_N=np.argsort(by_group)[slot_N],
        step_N=step_N,
        position_N=position_KT[slot_N, step_N],
    )


def check_is_batch(batch: object) -> None:
    """Refuse what a caller passed in place of a batch.

    Raises:
        ConfigError: It is not a StepBatch.
    """
    if not isinstance(batch, StepBatch):
        raise ConfigError(
            f"batch is a {type(batch).__name__}; pass scpo.StepBatch.from_episodes([...])"
        )


def refuse(batch: StepBatch, row: int, reason: str) -> NoReturn:
    """Raise a StepBatchError with the row and the reason."""
    raise StepBatchError(f"{place_of(batch, row)}: {reason}")


def place_of(batch: StepBatch, row: int) -> str:
    """Describe the position of a row for a message."""
    group = batch.group_N[row]
    trajectory = batch.trajectory_N[row]
    return f"row {row} (group {group}, trajectory {trajectory}, step {batch.step_N[row]})"
