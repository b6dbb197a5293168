"""Episodes as a rollout loop has them, and the columns of a ``StepBatch`` that follow from them."""

from __future__ import annotations

import math
import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from scpo.errors import StepBatchError


@dataclass(frozen=True)
class Step:
    """One environment step.

    Attributes:
        observation: Text that the environment showed before the action, without history: GiGPO's
            anchor state.
        action: The action that was executed.
        next_observation: The environment's response; None: the next step's observation, so only the
            last step of an episode must have it.
        reward: The environment's reward of this step.
        valid: The action had the required format.
        entropy: Mean token entropy of the response, in nats; for methods that require it (EMPG).
        hindsight_logprob: Mean token log-probability given the outcome; for methods that require it
            (HCAPO).
        state: The agent's full view of its state before the action, as one text; for
            ``state_key="state"``.
        next_state: The same after the action; None: the next step's, so only the last step of an
            episode must have it.
    """

    observation: str
    action: str
    next_observation: str | None = None
    reward: float = 0.0
    valid: bool = True
    entropy: float | None = None
    hindsight_logprob: float | None = None
    state: str | None = None
    next_state: str | None = None


@dataclass(frozen=True)
class Episode:
    """One rollout.

    Attributes:
        group: Key of the task: episodes with equal groups are siblings, compared with one another.
        steps: In time order, at least one.
        won: The benchmark's meaning of success; None: the return exceeds the threshold.
        episode_return: The environment's own return, checked against the sum of the rewards; None:
            that sum.
        task: Task family, for diagnostics; empty: the group.
    """

    group: Hashable
    steps: Sequence[Step]
    won: bool | None = None
    episode_return: float | None = None
    task: str = ""


def columns_of(episodes: Sequence[Episode], success_above: float | None) -> dict[str, Any]:
    """Columns of a ``StepBatch``, episode by episode in time order.

    Args:
        episodes: The siblings of all groups.
        success_above: As in ``StepBatch.from_episodes``.

    Returns:
        Column name -> list of one value for each step; optional columns that no step has are
        absent.

    Raises:
        StepBatchError: An episode is inconsistent or incomplete; names it.
    """
    _check_kinds(episodes)
    if success_above is None:
        _warn_of_partial_success(episodes)
        success_above = 0.0
    if not math.isfinite(success_above):
        raise StepBatchError(f"success_above is {success_above}, expected a finite return")

    # Groups are numbered in order of appearance, so any hashable key may name one.
    groups: dict[Hashable, int] = {}
    rows: list[dict[str, Any]] = []
    for index, episode in enumerate(episodes):
        total = _return(index, episode)
        shared = {
            "group_N": groups.setdefault(episode.group, len(groups)),
            "trajectory_N": index,
            "task_N": episode.task or str(episode.group),
            "episode_return_N": total,
            "success_N": total > success_above,
            "won_N": total > success_above if episode.won is None else episode.won,
            "is_copy_N": False,
        }
        for at in range(len(episode.steps)):
            rows.append({**shared, **_row(index, episode, at), "position_N": len(rows)})

    columns = {name: [row[name] for row in rows] for name in rows[0]}
    return {name: values for name, values in columns.items() if not _unmeasured(name, values)}


def _row(index: int, episode: Episode, at: int) -> dict[str, Any]:
    """Columns of step ``at`` of an episode that are the step's own.

    Raises:
        StepBatchError: It is the last step and ``next_observation`` is missing.
    """
    step = episode.steps[at]
    answer = step.next_observation
    next_state = step.next_state

    # Before the end, what came of a step is what the next step began with.
    if at + 1 < len(episode.steps):
        following = episode.steps[at + 1]
        if answer is None:
            answer = following.observation
        if next_state is None:
            next_state = following.state
    if answer is None:
        raise StepBatchError(
            f"episode {index}, step {at}, its last: next_observation is missing; pass what the "
            "environment answered"
        )

    return {
        "step_N": at,
        "anchor_N": step.observation,
        "action_N": step.action,
        "next_observation_N": answer,
        "reward_N": step.reward,
        "valid_N": step.valid,
        "entropy_N": step.entropy,
        "hindsight_logprob_N": step.hindsight_logprob,
        "state_N": step.state,
        "next_state_N": next_state,
    }


def _return(index: int, episode: Episode) -> float:
    """Sum of the rewards; an error if the environment reports another return."""
    total = float(sum(step.reward for step in episode.steps))
    said = episode.episode_return
    # A return that differs is nearly always a discounted one, or a final score that was copied to
    # every step. The tolerance allows for sums in float32.
    if said is not None and not np.isclose(total, said, rtol=1e-4, atol=1e-4):
        raise StepBatchError(
            f"episode {index} (group {episode.group!r}): episode_return is {said:g}, but its "
            f"rewards sum up to {total:g}; pass the undiscounted reward of every step, or leave "
            "episode_return out"
        )
    return total


def _warn_of_partial_success(episodes: Sequence[Episode]) -> None:
    """Warn if several positive returns count as success and no threshold was given.

    The text is the same in every training step, so Python shows it once.
    """
    returns = [_return(index, episode) for index, episode in enumerate(episodes)]
    won = [total for total in returns if total > 0]
    if won and not np.isclose(min(won), max(won), rtol=1e-4, atol=1e-4):
        warnings.warn(
            "episode returns differ, and every one above 0 counts as success, partial scores such "
            "as 0.2 too: pass success_above=<the return that a success exceeds> (tau_succ), or "
            "success_above=0.0 if this is meant",
            # The caller of StepBatch.from_episodes, not this file, is what the warning should name.
            stacklevel=4,
        )


def _unmeasured(name: str, values: list[Any]) -> bool:
    """Return True if an optional column is missing in every row; single gaps become NaN.

    Only the measured columns have a value for "missing": a state text that some rows lack is left
    to ``StepBatch``, which refuses it and names the row.
    """
    missing = all(value is None for value in values)
    if name in ("entropy_N", "hindsight_logprob_N"):
        values[:] = [np.nan if value is None else value for value in values]
    return missing


def _check_kinds(episodes: Sequence[Episode]) -> None:
    """Check the types of episodes and steps, so that later code need not.

    Python checks no annotation, and a wrong type would fail far from here, or not at all: a
    generator is used up by the first pass, a list as group cannot be a key, the text "False" counts
    as True.

    Raises:
        StepBatchError: A value has another type; names episode and step.
    """
    if not hasattr(episodes, "__len__"):
        raise StepBatchError(
            f"episodes is a {type(episodes).__name__}; pass a list of scpo.Episode: "
            "from_episodes([...])"
        )
    if not len(episodes):
        raise StepBatchError("there are no episodes; pass at least one scpo.Episode")
    for index, episode in enumerate(episodes):
        if not isinstance(episode, Episode):
            raise StepBatchError(
                f"episode {index} is a {type(episode).__name__}; pass scpo.Episode(group=..., "
                "steps=[scpo.Step(...)])"
            )
        named = f"episode {index} (group {episode.group!r})"

        # Keys, flags and lists of the episode.
        if episode.group is None or not isinstance(episode.group, Hashable):
            raise StepBatchError(
                f"{named}: a group is compared, so pass a text, a number or a tuple"
            )
        if not (episode.won is None or isinstance(episode.won, bool | np.bool_)):
            raise StepBatchError(f"{named}: won is {episode.won!r}, expected True, False or None")
        if not hasattr(episode.steps, "__len__"):
            raise StepBatchError(
                f"{named}: steps is a {type(episode.steps).__name__}; pass a list of scpo.Step"
            )
        if not len(episode.steps):
            raise StepBatchError(
                f"episode {index} (group {episode.group!r}) has no steps; leave it out"
            )

        # Its steps.
        for at, step in enumerate(episode.steps):
            if not isinstance(step, Step):
                raise StepBatchError(
                    f"episode {index}, step {at} is a {type(step).__name__}; pass "
                    "scpo.Step(observation=..., action=..., next_observation=..., reward=...)"
                )
            _check_texts(f"{named}, step {at}", step)
            if not isinstance(step.reward, Real | np.bool_):
                raise StepBatchError(
                    f"{named}, step {at}: reward is {step.reward!r}, expected a number"
                )


def _check_texts(place: str, step: Step) -> None:
    """Observations and actions are compared as texts; only what came of a step may be left out."""
    for name in ("observation", "action", "next_observation"):
        value = getattr(step, name)
        if not (isinstance(value, str) or (value is None and name == "next_observation")):
            raise StepBatchError(
                f"{place}: {name} is {str(value)[:40]!r} of type {type(value).__name__}, expected "
                "a str; pass the text that the agent was shown or answered"
            )
