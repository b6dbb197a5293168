"""The form of a prompt with a memory (``env.prompt=memory``), whatever its environment remembers.

Lines with fixed heads (the task first, the step last), notes of what was seen, and what can be chosen.
"""

from __future__ import annotations

import functools
import re
from typing import NamedTuple

from scpo.errors import ConfigError

_OFFER = "> "


class MemoryPrompt(NamedTuple):
    """A prompt's parts: what follows each head, the notes, and the commands that it offers."""

    headed: tuple[str, ...]
    notes: list[str]
    commands: tuple[str, ...]


def split_prompt(prompt: str, heads: tuple[str, ...]) -> MemoryPrompt:
    """Cut a prompt into its parts.

    Args:
        prompt: Its text.
        heads: With what its first lines begin.

    Raises:
        ConfigError: It is another prompt.
    """
    above, offered, below = prompt.partition(f"\n{_OFFER}")
    headed = _headed(heads).match(above)
    if not offered or headed is None:
        raise not_a_memory(prompt, heads[:1])
    return MemoryPrompt(headed.groups(), above[headed.end() :].split("\n")[1:], _listed(below))


@functools.cache
def _headed(heads: tuple[str, ...]) -> re.Pattern[str]:
    """The first lines, each with its head."""
    return re.compile("\n".join(f"{re.escape(head)}(.*)" for head in heads))


def not_a_memory(prompt: str, first_heads: tuple[str, ...]) -> ConfigError:
    """The error of a prompt that begins with none of these heads, or offers nothing."""
    heads = " or ".join(map(repr, first_heads))
    return ConfigError(
        f"model=choice reads only env.prompt=memory, which begins with {heads} and lists commands after {_OFFER!r}; "
        f"got a prompt that begins with {prompt[:40]!r}"
    )


@functools.lru_cache(maxsize=16384)
def _listed(below: str) -> tuple[str, ...]:
    return tuple(below.split(f"\n{_OFFER}"))
