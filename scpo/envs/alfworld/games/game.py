"""What a game is, and where games come from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

SPLITS = ("train", "valid_seen", "valid_unseen")


@dataclass(frozen=True)
class Game:
    """The content of one game.

    Attributes:
        id: Stable name, ``<split>/...``, the same on every machine.
        family: One of the values of ``scpo.schema.FAMILIES``.
        sha256: Hash of the content.
        domain: PDDL domain.
        problem: PDDL problem.
        grammar: Text grammar, the task's sentence included.
        walkthrough: Commands that win the game.
    """

    id: str
    family: str
    sha256: str
    domain: str
    problem: str
    grammar: str
    walkthrough: tuple[str, ...]


class GameSource(Protocol):
    """A place that games are read from, one by one."""

    def ids(self, split: str) -> dict[str, Sequence[str]]:
        """Sorted ids of a split's games by family; some may turn out not to be playable."""

    def playable(self, game_id: str) -> bool:
        """Whether the game is known to be solvable."""

    def read(self, game_id: str) -> Game:
        """The game's content.

        Raises:
            GameError: There is no such game, or it cannot be read.
        """
