"""Rows of verl's batches: conversion to steps and back, padding; imports neither verl nor torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scpo.envs.base import GivenState, StepResult, Task
from scpo.errors import RolloutError
from scpo.rollout import Slot, Trajectory
from scpo.shaping.order import Order, positions
from scpo.steps import IntArray

FIELD = "scpo"
"""The entry of ``AgentLoopOutput.extra_fields`` that holds a :class:`StepRow`, as a dict."""


@dataclass(frozen=True)
class StepRow:
    """One environment step, which the agent loop adds to the tokens of an output.

    Attributes:
        panel: ``train``, ``probe``, or the name of a validation panel.
        group: Number of the task in its training step or panel, shared by its siblings.
        sibling: Number of the episode in its group.
        step: 0-based time index in the episode.
        length: Number of steps of the whole episode, so that a lost row is noticed.
        task: Id of the task.
        family: Column of the result table to which the task belongs.
        sha256: Hash of the task's content; empty if it is not checked.
        anchor: Raw observation before the action.
        action: The projected action that was executed.
        next_observation: The environment's response.
        reward: Environment reward of this step; verl's own score of a row is that of the episode.
        valid: The response had the required format.
        won: Success as the benchmark defines it, at this step.
        score: The benchmark's graded result of this step; None for benchmarks without one.
        truncated: The prompt was longer than allowed and lost its beginning.
        state: The state before the action, as one text; None if the environment gives none.
        next_state: The state after the action.
        given: ``scpo.envs.base.GivenState`` before the action, as a dict; None without one.
        next_given: The same after the action.
        no_op: Whether the answer is a no-op; None if the environment does not report it.
        restarts: Number of times that the environment failed and the episode restarted.
    """

    panel: str
    group: int
    sibling: int
    step: int
    length: int
    task: str
    family: str
    sha256: str
    anchor: str
    action: str
    next_observation: str
    reward: float
    valid: bool
    won: bool
    score: float | None = None
    truncated: bool = False
    state: str | None = None
    next_state: str | None = None
    given: dict[str, Any] | None = None
    next_given: dict[str, Any] | None = None
    no_op: bool | None = None
    restarts: int = 0

    @property
    def episode(self) -> tuple[str, int, int]:
        """Key of the episode in a batch."""
        return self.panel, self.group, self.sibling

    def extra_field(self) -> dict[str, Any]:
        """The entry for ``extra_fields``."""
        return {FIELD: asdict(self)}


@dataclass(frozen=True)
class Rows:
    """The environment steps in a batch of verl, trajectory by trajectory in time order.

    This canonical order makes the results of estimators independent, bit for bit, of how verl
    balanced the batch.

    Attributes:
        steps: One step for each row, padding excluded.
        place_N: Index of each step's row in verl's batch.
        total: Number of rows in verl's batch, padding included.
    """

    steps: list[StepRow]
    place_N: IntArray
    total: int

    @property
    def trajectories(self) -> list[Trajectory]:
        """The episodes, without prompts and tokens, which only verl has."""
        episodes = groupby(self.steps, key=lambda row: row.episode)
        return [_trajectory(list(episode)) for _, episode in episodes]

    def positions(
        self, order: Order, length_N: NDArray[np.int64], *, ranks: int, order_ranks: int
    ) -> IntArray:
        """``StepBatch.position_N``: by tokens for the order ``length``, else verl's batch order.

        The order ``balanced`` is that of verl if verl has the method's number of data-parallel
        ranks. Otherwise (one GPU) it is computed, as with trainer=local (ledger 27).

        Args:
            order: The shaper's setting.
            length_N: Number of tokens of each row, in the order of ``steps``.
            ranks: Number of data-parallel ranks over which verl has balanced the batch.
            order_ranks: Number of data-parallel ranks of the method.
        """
        if order == "length":
            return positions(length_N, "length", 1)
        # Balanced by tokens as in verl-agent; verl 0.9.1 balances by an estimate of the work.
        if order == "balanced" and ranks != order_ranks:
            return positions(length_N, "balanced", order_ranks)
        return self.place_N

    def spread(self, value_N: NDArray[Any]) -> NDArray[Any]:
        """Values of the steps in the order of verl's rows, 0 on padding; further axes are kept."""
        spread = np.zeros((self.total, *value_N.shape[1:]), dtype=value_N.dtype)
        spread[self.place_N] = value_N
        return spread


def read_rows(
    extra_fields: Sequence[Mapping[str, Any]], is_padding: Sequence[bool], *, episodes: int
) -> Rows:
    """Find the environment steps among verl's rows.

    Args:
        extra_fields: Fields of every row; those of padding rows are copies of another row's.
        is_padding: True for rows that verl added to fill its mini-batches.
        episodes: Expected number of episodes.

    Raises:
        RolloutError: A row is not from ``EnvironmentLoop``, or an episode or step is missing or
            duplicated, which would silently shift returns and credit.
    """
    places = [place for place, padding in enumerate(is_padding) if not padding]
    steps = {place: _row(extra_fields[place], place) for place in places}
    # Sorted, because verl balances the batch, whose order is thus not that of the episodes.
    places.sort(key=lambda place: (*steps[place].episode, steps[place].step))
    _check_complete([steps[place] for place in places], episodes)
    return Rows(
        [steps[place] for place in places], np.array(places, dtype=np.int64), len(is_padding)
    )


def _row(extra_fields: Mapping[str, Any], place: int) -> StepRow:
    """The environment step of row ``place`` of verl's batch."""
    try:
        return StepRow(**extra_fields[FIELD])
    except (KeyError, TypeError) as error:
        raise RolloutError(
            f"row {place} of verl's batch: extra_fields[{FIELD!r}] is no StepRow ({error}), got "
            f"keys {sorted(extra_fields)}; the agent loop adds StepRow(...).extra_field() to every "
            f"output, with the fields {', '.join(field.name for field in fields(StepRow))}"
        ) from error


def _check_complete(steps: Sequence[StepRow], episodes: int) -> None:
    """Check that no episode and no step of one is missing or duplicated in sorted steps.

    Raises:
        RolloutError: Steps of an episode, or episodes, are missing or duplicated.
    """
    found = 0
    for (panel, group, sibling), episode in groupby(steps, key=lambda row: row.episode):
        rows = list(episode)
        # Each row has its episode's length, so that a lost last step is noticed, too.
        if [row.step for row in rows] != list(range(rows[0].length)):
            raise RolloutError(
                f"panel {panel}, group {group}, sibling {sibling} (task {rows[0].task}): its "
                f"episode took {rows[0].length} steps, the batch has steps "
                f"{[row.step for row in rows]}: rows were lost or doubled on their way through verl"
            )
        found += 1

    if found != episodes:
        raise RolloutError(
            f"the batch has {found} episodes, {episodes} were asked for: the others failed; the "
            "log of the agent loops says why"
        )


def _trajectory(rows: list[StepRow]) -> Trajectory:
    """An episode from its rows in time order."""
    first, last = rows[0], rows[-1]
    results = [
        StepResult(
            row.action,
            row.valid,
            row.next_observation,
            row.reward,
            row is last,
            row.won,
            row.score,
            row.next_state,
            _given(row.next_given),
            row.no_op,
        )
        for row in rows
    ]
    slot = Slot(first.group, first.sibling, Task(first.task, first.family, first.sha256))
    anchors = [row.anchor for row in rows]
    states = [row.state for row in rows]
    given = [_given(row.given) for row in rows]
    return Trajectory(
        slot, anchors=anchors, results=results, states=states, given=given, restarts=first.restarts
    )


def _given(values: dict[str, Any] | None) -> GivenState | None:
    return None if values is None else GivenState(**values)


def spread_padding(is_padding: Sequence[bool], *, ranks: int, mini_batch: int) -> list[int]:
    """Order in which mini-batches have equal amounts of padding, up to one row for each rank.

    verl fills up a batch with rows from which nothing is learned, at the end of each rank's part,
    so that all of them are in the last mini-batch. With 4,100 rows in mini-batches of 256, the last
    one had four real rows, yet Adam and the mean over tokens made nearly a full step from them.
    verl-agent instead fills up with copies, and the last mini-batch has at least 128 real rows.

    Rank r has the rows from r * N / ranks on, and takes the next ``mini_batch / ranks`` of them for
    each mini-batch. Real rows keep their order.

    Args:
        is_padding: One flag for each of N rows, N a multiple of ``mini_batch``.
        ranks: Data-parallel ranks.
        mini_batch: Rows of a mini-batch, over all ranks.

    Returns:
        Indices of the present rows in their new order; no row changes its rank.
    """
    share = len(is_padding) // ranks
    order = []
    batches = len(is_padding) // mini_batch

    # Padding rows beyond the even share go to mini-batches in turn, continued from rank to rank.
    given = 0
    for rank in range(ranks):
        rows = range(rank * share, (rank + 1) * share)
        real = [row for row in rows if not is_padding[row]]
        padding = [row for row in rows if is_padding[row]]
        even, more = divmod(len(padding), batches)
        extra = {(given + turn) % batches for turn in range(more)}
        given += more
        for number in range(batches):
            filled = even + (number in extra)
            # The rest of this rank's part of the mini-batch are real rows, in their order.
            kept = mini_batch // ranks - filled
            order += [*real[:kept], *padding[:filled]]
            real = real[kept:]
            padding = padding[filled:]

    return order


def real_rows(is_padding: Sequence[bool], *, ranks: int, mini_batch: int) -> list[int]:
    """Number of real rows in each mini-batch; arguments as in :func:`spread_padding`."""
    padding_of_parts = np.reshape(
        is_padding, (ranks, len(is_padding) // mini_batch, mini_batch // ranks)
    )
    return [int(count) for count in mini_batch - padding_of_parts.sum(axis=(0, 2))]
