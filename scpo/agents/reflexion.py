"""Reflexion (arXiv 2303.11366): reflect after a failed attempt, read the reflection in the next.

The actor is ReAct, as in the paper's experiments on ALFWorld. The environment's result decides
whether an attempt failed; the model does not judge itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from scpo.agents.base import Turn
from scpo.agents.react import React, turns_text

_MEMORY = (
    "You attempted this task before and failed. What you noted after each attempt, oldest "
    "first:\n{notes}\n\n"
)
_QUESTION = (
    "{memory}You have just attempted a task and failed. This is what you read at the beginning:\n"
    "-----\n{opening}\n-----\n\n"
    "This is what you thought and did, oldest first:\n{turns}\n\n"
    "The attempt ended without success. Do not continue it. In at most five sentences, name the "
    "decision that cost you the success and write a concrete plan for the next attempt, with the "
    "objects and places by name. Write the plan only, without tags."
)


class Reflexion:
    """See ``scpo.agents.base.ReflectingAgent``.

    Args:
        turns: Number of an attempt's latest turns that are shown.
        trials: Maximum number of attempts.
        memory: Number of the latest reflections that are shown.
    """

    def __init__(self, turns: int, trials: int, memory: int) -> None:
        self.trials = trials
        self.memory = memory
        self.actor = React(turns)

    def prompt(self, current: str, turns: Sequence[Turn], reflections: Sequence[str]) -> str:
        """Latest reflections, then ReAct's prompt."""
        return self._notes(reflections) + self.actor.prompt(current, turns, ())

    def reflection_prompt(self, turns: Sequence[Turn], reflections: Sequence[str]) -> str:
        """Earlier reflections, the attempt's first prompt, its latest turns, and the question.

        The first prompt is included, because the latest turns need not contain the task.
        """
        return _QUESTION.format(
            memory=self._notes(reflections),
            opening=turns[0].prompt.strip(),
            turns=turns_text(turns, self.actor.turns),
        )

    def _notes(self, reflections: Sequence[str]) -> str:
        # Bounded as in the paper, so that the prompt does not grow with every attempt.
        latest = reflections[-self.memory :]
        if not latest:
            return ""
        return _MEMORY.format(notes="\n".join(f"- {note}" for note in latest))
