"""Agent interface: the prompt of each step and, for some agents, a reflection between attempts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

# A thought that is not closed goes to the end: responses are cut at a limit of tokens.
_THOUGHT = re.compile(r"<think>(.*?)(?:</think>|$)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Turn:
    """Finished step of an attempt.

    Attributes:
        prompt: The environment's prompt, without the agent's additions.
        response: The model's response.
        action: The action that was executed.
        answer: The observation that followed.
    """

    prompt: str
    response: str
    action: str
    answer: str


class Agent(Protocol):
    """Prompting method for one attempt of a task."""

    def prompt(self, current: str, turns: Sequence[Turn], reflections: Sequence[str]) -> str:
        """Prompt of the next step.

        Args:
            current: The environment's prompt.
            turns: The finished steps of this attempt.
            reflections: Reflections after the earlier attempts, oldest first.
        """


@runtime_checkable
class ReflectingAgent(Agent, Protocol):
    """Agent that attempts a task until it wins, reflecting between attempts.

    Checked at run time (``isinstance``): the evaluation plays further attempts only for such
    agents.

    Attributes:
        trials: Maximum number of attempts.
    """

    trials: int

    def reflection_prompt(self, turns: Sequence[Turn], reflections: Sequence[str]) -> str:
        """Prompt that asks for a reflection on a failed attempt; arguments as in ``prompt``."""


def thought(response: str) -> str:
    """Text between the thinking tags, on one line; empty without them."""
    return one_line(" ".join(_THOUGHT.findall(response)))


def without_thoughts(response: str) -> str:
    """Response without its thinking, on one line."""
    return one_line(_THOUGHT.sub(" ", response))


def one_line(text: str) -> str:
    """Replace runs of white space by one space."""
    return " ".join(text.split())


class Plain:
    """Agent without additions: the main table's plain prompting row."""

    def prompt(self, current: str, turns: Sequence[Turn], reflections: Sequence[str]) -> str:
        """The environment's prompt."""
        del turns, reflections
        return current
