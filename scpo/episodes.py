"""Episodes as a rollout loop collects them, and the ``StepBatch`` columns built from them."""

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
        next_observation: The environment's response; None: the observation of the next step. Only
            the last step of an episode must have it.
        reward: The environment's reward of this step.
        valid: The action had the required format.
        entropy: Mean token entropy of the response, in nats; for methods that require it (EMPG).
        hindsight_logprob: Mean token log-probability of the response given the outcome, in nats;
            for methods that require it (HCAPO).
        state: The agent's full view of its state before the action, as one text; for
            ``state_key="state"``.
        next_state: The same after the action; None: the state of the next step. If steps have
            states, only the last step of an episode must have it.
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
        group: Key of the task. Episodes with equal keys are siblings, which are compared.
        steps: In time order, at least one.
        won: Success as the benchmark defines it; None: True if the return exceeds the threshold
            (``success_above``).
        episode_return: The return that the environment reports, to be checked against the sum of
            the rewards; None: not checked.
        task: Task family, for diagnostics; empty: the text of ``group``.
    """

    group: Hashable
    steps: Sequence[Step]
    won: bool | None = None
    episode_return: float | None = None
    task: str = ""


# Optional columns of numbers, in which NaN marks a missing value.
_MEASURED = ("entropy_N", "hindsight_logprob_N")


def columns_of(episodes: Sequence[Episode], success_above: float | None) -> dict[str, Any]:
    """Columns of a ``StepBatch``, episode by episode in time order.

    Args:
        episodes: The siblings of all groups.
        success_above: As in ``StepBatch.from_episodes``.

    Returns:
        Column name -> list with a value for each step. Columns without any value are absent; single
        missing values of a measured column are NaN.

    Raises:
        StepBatchError: An episode is inconsistent or incomplete; the message names it.
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

    columns = {}
    for name in rows[0]:
        values = [row[name] for row in rows]
        if all(value is None for value in values):
            continue
        # Other gaps are left to StepBatch, which refuses them and names the row.
        if name in _MEASURED:
            values = [np.nan if value is None else value for value in values]
        columns[name] = values
    return columns


def _row(index: int, episode: Episode, at: int) -> dict[str, Any]:
    """Values of step ``at`` that the steps of an episode do not share.

    Raises:
        StepBatchError: It is the last step and ``next_observation`` is missing.
    """
    step = episode.steps[at]
    answer = step.next_observation
    next_state = step.next_state

    # Each step but the last leads to the observation and the state of the next step.
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
    """Sum of the rewards.

    Raises:
        StepBatchError: The environment reports another return.
    """
    total = float(sum(step.reward for step in episode.steps))
    reported = episode.episode_return
    # The two differ nearly always because the return is discounted, or because the final score was
    # copied to every step. The tolerance allows for sums in float32.
    if reported is not None and not np.isclose(total, reported, rtol=1e-4, atol=1e-4):
        raise StepBatchError(
            f"episode {index} (group {episode.group!r}): episode_return is {reported:g}, but its "
            f"rewards sum up to {total:g}; pass the undiscounted reward of every step, or leave "
            "episode_return out"
        )
    return total


def _warn_of_partial_success(episodes: Sequence[Episode]) -> None:
    """Warn if different positive returns count as success because no threshold was given.

    The text is the same in every training step, so Python shows it once.
    """
    returns = [_return(index, episode) for index, episode in enumerate(episodes)]
    positive = [total for total in returns if total > 0]
    if positive and not np.isclose(min(positive), max(positive), rtol=1e-4, atol=1e-4):
        warnings.warn(
            "episode returns differ, and every one above 0 counts as success, partial scores such "
            "as 0.2 too: pass success_above=<the return that a success exceeds> (tau_succ), or "
            "success_above=0.0 if this is meant",
            # The warning shows the line that calls StepBatch.from_episodes.
            stacklevel=4,
        )


def _check_kinds(episodes: Sequence[Episode]) -> None:
    """Check the types of episodes and steps, so that later code need not.

    Python does not check annotations, and a wrong type would fail in other code or not at all: a
    generator is exhausted by the first pass, a list as group cannot be a key, and the text "False"
    counts as True.

    Raises:
        StepBatchError: A value has a wrong type; the message names the episode and the step.
    """
    if not hasattr(episodes, "__len__"):
        raise StepBatchError(
            f"episodes is a {type(episodes).__name__}; pass a list of scpo.Episode: "
            "from_episodes([...])"
        )
    if not len(episodes):
        raise StepBatchError("there are no episodes; pass at least one scpo.Episode")
    for index, episode in enumerate(episodes):
        _check_episode(index, episode)


def _check_episode(index: int, episode: Episode) -> None:
    if not isinstance(episode, Episode):
        raise StepBatchError(
            f"episode {index} is a {type(episode).__name__}; pass scpo.Episode(group=..., "
            "steps=[scpo.Step(...)])"
        )
    named = f"episode {index} (group {episode.group!r})"
    if episode.group is None or not isinstance(episode.group, Hashable):
        raise StepBatchError(
            f"{named}: groups are compared by this value, so pass a text, a number or a tuple of "
            "these"
        )
    if not (episode.won is None or isinstance(episode.won, bool | np.bool_)):
        raise StepBatchError(f"{named}: won is {episode.won!r}, expected True, False or None")
    if not hasattr(episode.steps, "__len__"):
        raise StepBatchError(
            f"{named}: steps is a {type(episode.steps).__name__}; pass a list of scpo.Step"
        )
    if not len(episode.steps):
        raise StepBatchError(f"{named} has no steps; leave it out")

    for at, step in enumerate(episode.steps):
        if not isinstance(step, Step):
            raise StepBatchError(
                f"episode {index}, step {at} is a {type(step).__name__}; pass "
                "scpo.Step(observation=..., action=..., next_observation=..., reward=...)"
            )
        _check_step(f"{named}, step {at}", step)


def _check_step(place: str, step: Step) -> None:
    """Check texts and reward of a step; of the texts only ``next_observation`` may be None."""
    for name in ("observation", "action", "next_observation"):
        value = getattr(step, name)
        if not (isinstance(value, str) or (value is None and name == "next_observation")):
            raise StepBatchError(
                f"{place}: {name} is {str(value)[:40]!r} of type {type(value).__name__}, expected "
                "a str; pass the text that the environment showed or the agent answered"
            )
    if not isinstance(step.reward, Real | np.bool_):
        raise StepBatchError(f"{place}: reward is {step.reward!r}, expected a number")
