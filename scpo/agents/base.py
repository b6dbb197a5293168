"""Agent interface: the prompt of each step and, for some agents, a reflection between attempts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

_THOUGHT = re.compile(r"<think>(.*?)(?:</think>|$)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True)
class Turn:
    """One finished step of an attempt.

    Attributes:
        prompt: The environment's prompt, without what the agent added.
        response: What the model wrote.
        action: What was executed.
        answer: What the environment said to it.
    """

    prompt: str
    response: str
    action: str
    answer: str


class Agent(Protocol):
    """One way to prompt a model through an attempt of a task."""

    def prompt(self, current: str, turns: Sequence[Turn], reflections: Sequence[str]) -> str:
        """What the model reads now.

        Args:
            current: The environment's prompt.
            turns: The finished steps of this attempt.
            reflections: What was written after the earlier attempts, oldest first; empty without any.
        """


@runtime_checkable
class ReflectingAgent(Agent, Protocol):
    """An agent that attempts a task again until it wins, and is asked what went wrong in between.

    Attributes:
        trials: How many attempts there are at most.
    """

    trials: int

    def reflection_prompt(self, turns: Sequence[Turn], reflections: Sequence[str]) -> str:
        """The question after a failed attempt of these turns; ``reflections`` as in ``prompt``."""


def thought(response: str) -> str:
    """What stands between the thinking tags, on one line; empty without them."""
    return one_line(" ".join(_THOUGHT.findall(response)))


def without_thoughts(response: str) -> str:
    """A response less its thinking, on one line."""
    return one_line(_THOUGHT.sub(" ", response))


def one_line(text: str) -> str:
    """Runs of white space become one space."""
    return " ".join(text.split())


class Plain:
    """See ``scpo.agents.base.Agent``."""

    def prompt(self, current: str, turns: Sequence[Turn], reflections: Sequence[str]) -> str:
        """The environment's prompt."""
        del turns, reflections
        return current
