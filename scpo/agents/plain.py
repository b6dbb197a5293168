"""The plain agent: the environment's prompt and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from scpo.agents.base import Turn


class Plain:
    """See ``scpo.agents.base.Agent``."""

    def prompt(self, current: str, turns: Sequence[Turn], reflections: Sequence[str]) -> str:
        """The environment's prompt."""
        del turns, reflections
        return current
