"""Lanes: engine copies that hold a game at some state."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import numpy as np

from scpo.envs.alfworld.engine.downward_library import LABEL, OPERATOR, load_library
from scpo.envs.alfworld.planning.translation import Translation


class Lane:
    """One copy of the library. It can be put at any state of its game without replaying the way there."""

    def __init__(self) -> None:
        self._library = load_library()
        self._operators = np.zeros(64, OPERATOR)
        self._effects = np.zeros(8, LABEL)
        self._jumps: tuple[int, ...] = ()
        self._initial: tuple[bool, ...] = ()
        self._flipped: AbstractSet[int] = frozenset()

    def load(self, translation: Translation) -> None:
        """Forget the current game and stand at the start of another."""
        self._library.load_sas(translation.sas)
        self._jumps, self._initial = translation.jumps, translation.initial
        self._flipped = frozenset()

    def move(self, flipped: AbstractSet[int]) -> None:
        """Stand at the state in which exactly these variables differ from the start."""
        for variable in self._flipped ^ flipped:
            true = self._initial[variable] != (variable in flipped)
            self._library.apply_operator(self._jumps[variable] + (not true), self._effects.ctypes.data)
        self._flipped = flipped

    def apply(self, operator: int, effects: int) -> list[int]:
        """Apply an operator; returns the values it set (``2 * variable``, plus 1 for false), in the library's order.

        The caller says with ``move`` where it is before the next call: what an operator did is for it to judge.
        """
        if effects > len(self._effects):
            self._effects = np.zeros(2 * effects, LABEL)
        self._effects.fill(b"")  # the library ends a label with one zero byte and leaves what stood behind it
        self._library.apply_operator(operator, self._effects.ctypes.data)
        return [int(label) for label in self._effects[:effects].tolist()]

    def arrive(self, flipped: AbstractSet[int]) -> None:
        """Note that the last applied operator led to this state."""
        self._flipped = flipped

    def applicable(self) -> tuple[list[int], list[int]]:
        """Applicable operators in the library's order, and how many values each sets."""
        count = self._library.get_applicable_operators_count()
        if count > len(self._operators):
            self._operators = np.zeros(2 * count, OPERATOR)
        self._library.get_applicable_operators(self._operators.ctypes.data)
        found = self._operators[:count]
        return found["id"].tolist(), found["effects"].tolist()

    def won(self) -> bool:
        """Whether the goal holds."""
        return bool(self._library.check_goal())
