"""Play one episode inside verl's agent loop, turn by turn as in ``scpo.rollout``."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from scpo.envs.base import Environment, StepResult, given_state, state_text
from scpo.errors import EnvironmentFailure, refuse_without_space
from scpo.generation import Generation
from scpo.rollout import Slot
from scpo.trainers.verl.verl_rows import StepRow

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Answer:
    """Response to a prompt, and the weight versions that verl asks for.

    Attributes:
        generation: Text and tokens; ``prompt_ids`` are those that the model read.
        origin: Fields of verl that are copied into ``extra_fields``.
        prompt: The whole prompt as text, from which a hindsight prompt is made.
    """

    generation: Generation
    origin: Mapping[str, Any]
    prompt: str = ""


@dataclass(frozen=True)
class Turn:
    """One output of the agent loop: tokens of a response, and the environment's step on it."""

    answer: Answer
    row: StepRow


Ask = Callable[[str], Awaitable[Answer]]


async def play(
    environment: Environment, panel: str, slot: Slot, ask: Ask, *, retries: int
) -> list[Turn]:
    """Play one episode to its end.

    Args:
        environment: Starts the episode.
        panel: Panel of the task.
        slot: Group, number among the siblings, and task of the episode.
        ask: Samples a response to a prompt.
        retries: How often the episode may start again after its environment failed.

    Returns:
        The turns in time order.

    Raises:
        EnvironmentFailure: The environment failed more often than ``retries`` allows.
    """
    # After a failure all turns are dropped, because the state in the environment is lost.
    for attempt in range(retries + 1):
        try:
            turns = await _attempt(environment, panel, slot, ask)
            return [replace(turn, row=replace(turn.row, restarts=attempt)) for turn in turns]
        except EnvironmentFailure as failure:
            refuse_without_space(failure, f"episode of task {slot.task.id} cannot be played")
            if attempt == retries:
                raise EnvironmentFailure(
                    f"episode of task {slot.task.id} (group {slot.group}, sibling {slot.sibling}) "
                    f"failed {attempt + 1} times, {retries} retries are allowed "
                    f"(env.failure_retries): {failure}"
                ) from failure
            logger.warning(
                "%s; the episode starts again (%d of %d retries)", failure, attempt + 1, retries
            )

    raise AssertionError("unreachable: the last attempt returns or raises")


async def _attempt(environment: Environment, panel: str, slot: Slot, ask: Ask) -> list[Turn]:
    """Play the episode once, without retries."""
    episode = environment.start(slot.task, slot.sibling)
    turns: list[Turn] = []
    while not episode.done:
        # Read before the step, which changes them.
        anchor = episode.observation
        state = state_text(episode)
        given = given_state(episode)
        answer = await ask(episode.prompt())
        result = episode.step(answer.generation.text)
        row = _row(
            panel, slot, step=len(turns), anchor=anchor, result=result, generation=answer.generation
        )
        row = replace(row, state=state, given=None if given is None else asdict(given))
        turns.append(Turn(answer, row))
    # Every row has the episode's length, so that `read_rows` notices lost rows.
    return [replace(turn, row=replace(turn.row, length=len(turns))) for turn in turns]


def _row(
    panel: str, slot: Slot, *, step: int, anchor: str, result: StepResult, generation: Generation
) -> StepRow:
    """The row of one step; the caller adds the state before it and the episode's length."""
    return StepRow(
        panel=panel,
        group=slot.group,
        sibling=slot.sibling,
        step=step,
        # Known only at the end of the episode.
        length=0,
        task=slot.task.id,
        family=slot.task.family,
        sha256=slot.task.sha256,
        anchor=anchor,
        action=result.action,
        next_observation=result.observation,
        reward=result.reward,
        valid=result.valid,
        won=result.won,
        score=result.score,
        truncated=generation.truncated,
        next_state=result.state,
        next_given=None if result.given is None else asdict(result.given),
        no_op=result.no_op,
    )
