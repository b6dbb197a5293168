"""Choice policy's features of WebShop prompts.

Lexical, as for ALFWorld: words of the wish are compared with words that were shown, prices with the
wish's bound. No feature holds a product or a word itself, so no product can be learned by heart.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from scpo.envs.webshop.wish import asked_for, parse_wish, words_of
from scpo.policies.choice.readers import (
    Hashes,
    Prompt,
    PromptReader,
    joined,
    split_prompt,
    text_hash,
)

WISH = "wish: "
_HEADS = (WISH, "page: ", "product: ", "last: ", "step: ")
_PRICE = re.compile(r"\$(\d+(?:\.\d+)?)")
_ACTION = re.compile(r"(search|click)\[(.*)\]")
_BUTTONS = {
    "back to search": "back",
    "< prev": "previous",
    "next >": "next",
    "buy now": "buy",
    "description": "description",
    "features": "features",
    "reviews": "reviews",
}
# Bound of the words of a wish that a product lacks: with more missing it is no better or worse.
MOST_LACKED = 5

# Bound of the counts of options, searches and better products.
MOST = 3


class Fit(NamedTuple):
    """Fit of a product to the wish, as far as it was shown; lower is better.

    Attributes:
        lacks: Words of the wish that were not seen of it, at most ``MOST_LACKED``; one more for no
            product.
        price: 0 within the bound, 1 in part (a range), 2 above.
    """

    lacks: int
    price: int


NONE = Fit(MOST_LACKED + 1, 0)


class ShopState(NamedTuple):
    """State shared by all actions of a prompt.

    Attributes:
        page: Its kind.
        turn: Number of the page of results.
        searched: Searches so far.
        fit: Fit of the product whose page it is.
        read: How many of its description and features were read.
        best: The best fit among the other products that were seen and not opened; on results, of
            this page's.
        left: Options that the wish asks for, that the page offers and of which none is chosen
            rightly.
        astray: Options that are chosen otherwise than the wish asks.
    """

    page: str
    turn: int
    searched: int
    fit: Fit
    read: int
    best: Fit
    left: int
    astray: int


class ShopAction(NamedTuple):
    """Description of an action; zeros and ``NONE`` for parts that it does not have.

    Attributes:
        verb: A button's name, ``open``, ``option`` or ``search``.
        fit: Fit of the product that it opens.
        opened: That product was opened before.
        ahead: Unopened products of the page that fit better, or as well at an earlier position than
            it.
        wanted: The wish asks for this value.
        chosen: Of this option: 0 nothing is chosen, 1 this value, 2 another that is asked for, 3
            another.
        covers: Share of the wish's words that are searched for: 0 under a half, 1 under all, 2 all.
        extra: 1 with words of the options, 2 with words beyond, too.
        tried: It was searched for before.
        again: It was done last.
    """

    verb: str
    fit: Fit = NONE
    opened: bool = False
    ahead: int = 0
    wanted: bool = False
    chosen: int = 0
    covers: int = 0
    extra: int = 0
    tried: bool = False
    again: bool = False


@dataclass(frozen=True)
class ShopRead:
    """A prompt's content.

    Attributes:
        state: Parts shared by all actions.
        step: Steps taken.
        commands: Texts of the listed actions, in the prompt's order.
        actions: Their descriptions, in the same order.
    """

    state: ShopState
    step: int
    commands: tuple[str, ...]
    actions: tuple[ShopAction, ...]


class _Seen(NamedTuple):
    """Product of the notes.

    Attributes:
        fit: How it fits the wish, by what was shown of it.
        opened: Any of its pages was read.
        read: Number of its description and features that were read.
    """

    fit: Fit
    opened: bool
    read: int


def read_shop(prompt: str) -> ShopRead:
    """Read a prompt with a memory (``env.prompt=memory``) of the shop.

    Raises:
        ConfigError: It is another prompt.
    """
    headed, notes, commands = split_prompt(prompt, _HEADS)
    wish, page, product, last, step = headed
    noted = _Notes(wish)
    for line in notes:
        noted.take(line)
    kind, _, turn = page.partition(" ")
    # Only a page of results lists products; on others their names are not buttons.
    listed = []
    if kind == "results":
        clicked = [name for _, name in map(_parts, commands)]
        listed = [name for name in clicked if name in noted.seen]
    state = _state(noted, kind, int(turn), product, listed)
    ahead = _ahead(noted, listed)
    actions = []
    for text in commands:
        actions.append(_action(noted, text, ahead)._replace(again=text == last))
    return ShopRead(state, int(step), commands, tuple(actions))


@dataclass
class _Notes:
    """Notes between a prompt's head and its actions.

    Attributes:
        wish: The instruction.
        searched: Searches so far.
        chosen: Chosen values by the option's name.
        options: (name, value) of all that the page offers, in its order.
        seen: Products that were listed or opened, by ASIN in lower case.
    """

    wish: str
    searched: list[str] = field(default_factory=list)
    chosen: dict[str, str] = field(default_factory=dict)
    options: list[tuple[str, str]] = field(default_factory=list)
    seen: dict[str, _Seen] = field(default_factory=dict)

    def take(self, line: str) -> None:
        """Take in one line."""
        head, _, rest = line.partition(" ")
        name, _, value = rest.partition(": ")
        if head == "seen":
            asin, price, read, matched = rest.split(" | ")
            self.seen[asin] = _fit(self.wish, price, matched, read)
        elif head == "searched":
            self.searched.append(rest)
        elif head == "chosen":
            self.chosen[name] = value
        else:
            self.options.append((name, value))

    def wants(self, name: str, value: str) -> bool:
        """Return True if the wish asks for this value."""
        return asked_for(self.wish, name, value)


@functools.lru_cache(maxsize=65536)
def _fit(wish: str, price: str, matched: str, read: str) -> _Seen:
    """Compare a product's note with the wish; cached, since notes are repeated in every prompt.

    Args:
        wish: The instruction.
        price: As pages print it, a range included.
        matched: Words of the wish that its texts have.
        read: Its pages that were read.
    """
    asked = parse_wish(wish)
    lacks = min(len(asked.words) - len(matched.split()), MOST_LACKED)
    pages = read.split()
    # Reviews are left out: their page is always empty.
    details = sum(page in ("description", "features") for page in pages)
    return _Seen(Fit(lacks, _above_bound(price, asked.bound)), bool(pages), details)


def _above_bound(price: str, bound: float | None) -> int:
    """Ends of a product's price range above the bound, 0 to 2; 1 if it shows no price."""
    if bound is None:
        return 0
    prices = [float(found) for found in _PRICE.findall(price)]
    if not prices:
        return 1
    # A single price counts as both ends of its range.
    return (prices[0] > bound) + (prices[-1] > bound)


def _state(noted: _Notes, kind: str, turn: int, product: str, listed: Sequence[str]) -> ShopState:
    """Summarise what all actions of a prompt share.

    Args:
        noted: What the notes say.
        kind: Kind of the page.
        turn: Its number, on pages of results.
        product: ASIN of the product whose page it is; empty on others.
        listed: Products of a page of results.
    """
    here = noted.seen.get(product)
    # On a product's page the alternatives are all products seen so far, not those of one page.
    others = listed if kind == "results" else [name for name in noted.seen if name != product]
    unopened = [noted.seen[name] for name in others if not noted.seen[name].opened]
    best = min((seen.fit for seen in unopened), default=NONE)
    # Options, not values: of several values that the wish asks for, one can be chosen.
    wanted = {name for name, value in noted.options if noted.wants(name, value)}
    right = {name for name, value in noted.chosen.items() if noted.wants(name, value)}
    return ShopState(
        kind,
        min(turn, MOST) if kind == "results" else 0,
        min(len(noted.searched), MOST),
        here.fit if here else NONE,
        here.read if here else 0,
        best,
        min(len(wanted - right), MOST),
        min(len(noted.chosen.keys() - right), MOST),
    )


def _ahead(noted: _Notes, listed: Sequence[str]) -> dict[str, int]:
    """Rank of each product of a page among the unopened ones."""
    # Unopened products first, then by fit; ties by place on the page.
    ordered = sorted(listed, key=lambda name: (noted.seen[name].opened, noted.seen[name].fit))
    return {name: min(rank, MOST) for rank, name in enumerate(ordered)}


def _action(noted: _Notes, text: str, ahead: dict[str, int]) -> ShopAction:
    """Describe a listed action: a search, a button, a product, or an option's value."""
    verb, argument = _parts(text)
    if verb == "search":
        covers, extra = _query(noted.wish, argument)
        return ShopAction("search", covers=covers, extra=extra, tried=argument in noted.searched)
    if argument in _BUTTONS:
        return ShopAction(_BUTTONS[argument])
    if argument in ahead:
        seen = noted.seen[argument]
        return ShopAction("open", seen.fit, seen.opened, ahead[argument])
    # A value of several options belongs to the last one, as in the shop itself.
    name = next((name for name, value in reversed(noted.options) if value == argument), "")
    return ShopAction(
        "option", wanted=noted.wants(name, argument), chosen=_chosen(noted, name, argument)
    )


def _chosen(noted: _Notes, name: str, value: str) -> int:
    """``ShopAction.chosen`` of a value of the option ``name``."""
    now = noted.chosen.get(name)
    if now is None:
        return 0
    if now == value:
        return 1
    if noted.wants(name, now):
        return 2
    return 3


@functools.lru_cache(maxsize=16384)
def _query(wish: str, query: str) -> tuple[int, int]:
    """Coverage of the wish by a search, and its other words."""
    asked = parse_wish(wish)
    typed = words_of(query)
    share = sum(word in typed for word in asked.words) / max(len(asked.words), 1)
    # Three levels are enough to tell a search of everything from one of a part.
    covers = 0
    if share == 1:
        covers = 2
    elif share >= 0.5:
        covers = 1

    options = set()
    for value in asked.options.values():
        options |= set(words_of(value))
    beyond = typed - set(asked.words)
    extra = 0
    if beyond:
        extra = 2 if beyond - options else 1
    return covers, extra


@functools.lru_cache(maxsize=65536)
def _parts(action: str) -> tuple[str, str]:
    match = _ACTION.fullmatch(action)
    return (match[1], match[2]) if match else ("", action)


class ShopReader(PromptReader):
    """Reads the shop's prompts."""

    STATE = (
        "page",
        "turn",
        "searched",
        "lacks",
        "over",
        "read",
        "best lacks",
        "best over",
        "left",
        "astray",
        "phase",
    )
    COMMAND = (
        "verb",
        "own lacks",
        "own over",
        "opened",
        "ahead",
        "wanted",
        "chosen",
        "covers",
        "extra",
        "tried",
        "again",
    )
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
    """Columns joined by each feature of an action.

    ``lacks``, ``over``: fit of the product whose page it is; ``own``: of the product that a click
    opens; ``best``: of the best other product. For the rest see :class:`ShopState` and
    :class:`ShopAction`.
    """
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
    """Columns joined for a critic. ``phase``: steps // 3."""

    def read(self, text: str) -> Prompt:
        """See :class:`PromptReader`."""
        read = read_shop(text)
        command_AW = np.array([_action_row(action) for action in read.actions], dtype=np.uint64)
        phase = read.step // 3
        state_W = np.array([*_state_row(read.state), phase], dtype=np.uint64)
        return Prompt(read.commands, command_AW, state_W)

    def pair_codes(self, columns: Mapping[str, Hashes]) -> Hashes:
        """See :class:`PromptReader`."""
        return joined([column for name, column in columns.items() if name != "phase"])


@functools.lru_cache(maxsize=16384)
def _state_row(state: ShopState) -> list[int]:
    return [
        text_hash(state.page),
        state.turn,
        state.searched,
        *state.fit,
        state.read,
        *state.best,
        state.left,
        state.astray,
    ]


@functools.lru_cache(maxsize=16384)
def _action_row(action: ShopAction) -> list[int]:
    verb, fit, *rest = action
    return [text_hash(verb), *fit, *map(int, rest)]
