"""Features of the shop's states, and of pairs of state and action, hashed into the rows of a table.

Simpler than ALFWorld's (``scpo.policies.choice.features``): what a pair depends on is a row of small numbers, so equal
pairs are found by their rows, and their order is one of contents.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scpo.policies.choice.hashing import Hashes, Names, joined, plain_features, text_hash
from scpo.policies.choice.shop_reading import ShopAction, ShopRead, ShopState, read_shop

PAIR_FEATURES: tuple[Names, ...] = (
    ("verb",),
    ("verb", "page", "turn"),
    ("verb", "left", "astray"),
    ("verb", "lacks", "over"),
    ("verb", "lacks", "over", "left", "astray"),
    ("verb", "best lacks", "best over"),
    ("verb", "lacks", "over", "best lacks", "best over"),
    ("verb", "read", "lacks"),
    ("verb", "own lacks", "own over"),
    ("verb", "own lacks", "own over", "opened", "ahead"),
    ("verb", "opened", "ahead"),
    ("verb", "wanted", "chosen"),
    ("verb", "wanted", "chosen", "lacks", "over"),
    ("verb", "covers", "extra", "tried"),
    ("verb", "covers", "tried", "searched"),
    ("verb", "again", "searched"),
)
"""What each feature of an action joins. ``lacks``, ``over``: the fit of the product whose page it is; ``own``: of the
one that a click opens; ``best``: of the best other one. The rest: :class:`ShopState`, :class:`ShopAction`."""
STATE_FEATURES: tuple[Names, ...] = (
    ("page", "turn"),
    ("page", "left", "astray"),
    ("page", "lacks", "over"),
    ("page", "lacks", "over", "left", "astray"),
    ("page", "best lacks", "best over"),
    ("phase",),
    ("phase", "page", "left"),
    ("phase", "page", "lacks", "over"),
    ("searched", "page", "best lacks"),
)
"""What a critic reads. ``phase``: a third of the steps taken."""

_STATE = ("page", "turn", "searched", "lacks", "over", "read", "best lacks", "best over", "left", "astray")
_ACTION = ("verb", "own lacks", "own over", "opened", "ahead", "wanted", "chosen", "covers", "extra", "tried", "again")


@dataclass(frozen=True)
class ShopPrompt:
    """What is kept of a prompt.

    Attributes:
        commands: The actions' texts.
        row_AW: What the features of each one depend on: the state, and the action.
        phase: A third of the steps taken.
    """

    commands: tuple[str, ...]
    row_AW: Hashes
    phase: int


class ShopReader:
    """Reads the shop's prompts; it keeps nothing.

    Args:
        buckets: Rows of the table that features are hashed into; 0 stands for none.
    """

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets

    def read(self, text: str) -> ShopPrompt:
        """Read a prompt.

        Raises:
            ConfigError: It is another prompt.
        """
        return self.prompt(read_shop(text))

    def prompt(self, read: ShopRead) -> ShopPrompt:
        """The numbers of a prompt's content."""
        state = _state_row(read.state)
        rows = np.array([state + _action_row(action) for action in read.actions], dtype=np.uint64)
        return ShopPrompt(read.commands, rows, read.step // 3)

    def pair_features(self, prompts: Sequence[ShopPrompt]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Features of the distinct pairs of all actions of these prompts, and which pair each action is.

        Returns:
            ``feature_KF`` in an order of their contents; and the place in it of every action, prompt after prompt.
        """
        row_CW = np.concatenate([prompt.row_AW for prompt in prompts])
        _, first_K, place_C = np.unique(joined(list(row_CW.T)), return_index=True, return_inverse=True)
        columns = dict(zip((*_STATE, *_ACTION), row_CW[first_K].T, strict=True))
        return np.stack(plain_features(columns, PAIR_FEATURES, self._buckets), axis=1), place_C

    def state_features(self, prompts: Sequence[ShopPrompt]) -> NDArray[np.int64]:
        """Features of each prompt's state, for a critic: (N, F)."""
        row_NW = np.stack([prompt.row_AW[0, : len(_STATE)] for prompt in prompts])
        columns = dict(zip(_STATE, row_NW.T, strict=True))
        columns["phase"] = np.array([prompt.phase for prompt in prompts], dtype=np.uint64)
        return np.stack(plain_features(columns, STATE_FEATURES, self._buckets), axis=1)


@functools.lru_cache(maxsize=16384)
def _state_row(state: ShopState) -> list[int]:
    return [
        text_hash(state.page), state.turn, state.searched, *state.fit, state.read, *state.best, state.left,
        state.astray,
    ]  # fmt: skip


@functools.lru_cache(maxsize=16384)
def _action_row(action: ShopAction) -> list[int]:
    verb, fit, *rest = action
    return [text_hash(verb), *fit, *map(int, rest)]
