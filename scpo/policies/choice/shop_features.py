"""Features of the shop's states, and of pairs of state and action, hashed into the rows of a table."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from scpo.policies.choice.readers import Hashes, Prompt, PromptReader, joined, text_hash
from scpo.policies.choice.shop_reading import ShopAction, ShopState, read_shop


class ShopReader(PromptReader):
    """Reads the shop's prompts."""

    STATE = (
        "page", "turn", "searched", "lacks", "over", "read", "best lacks", "best over", "left", "astray", "phase",
    )  # fmt: skip
    COMMAND = (
        "verb", "own lacks", "own over", "opened", "ahead", "wanted", "chosen", "covers", "extra", "tried", "again",
    )  # fmt: skip
    PAIR_FEATURES = (
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
    """What each feature of an action joins. ``lacks``, ``over``: the fit of the product whose page it is; ``own``: of
    the one that a click opens; ``best``: of the best other one. The rest: :class:`ShopState`, :class:`ShopAction`."""
    STATE_FEATURES = (
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

    def read(self, text: str) -> Prompt:
        """See :class:`PromptReader`."""
        read = read_shop(text)
        rows = np.array([_action_row(action) for action in read.actions], dtype=np.uint64)
        return Prompt(read.commands, rows, np.array([*_state_row(read.state), read.step // 3], dtype=np.uint64))

    def pair_codes(self, columns: Mapping[str, Hashes]) -> Hashes:
        """See :class:`PromptReader`."""
        return joined([column for name, column in columns.items() if name != "phase"])


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
