"""Choice policy's features of WebShop prompts.

Features compare texts, as for ALFWorld: words of the wish (the instruction) with words that were
shown, and prices with the wish's bound. No feature contains a product's name or a word, so products
cannot be memorised.
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
# Cap of the number of the wish's words that a product lacks: products that lack more are equal.
MOST_LACKED = 5

# Cap of page numbers, ranks, and counts of options and searches.
MOST = 3


class Fit(NamedTuple):
    """Fit of a product to the wish, by what was shown of the product; lower is better.

    Attributes:
        lacks: Number of the wish's words that were not seen in the product's texts, at most
            ``MOST_LACKED``; ``MOST_LACKED`` + 1 if there is no product.
        over: 0 if the price is within the wish's bound, 1 if only a part of the price range is or
            no price is shown, 2 if it is above the bound.
    """

    lacks: int
    over: int


NONE = Fit(MOST_LACKED + 1, 0)


class ShopState(NamedTuple):
    """State shared by all actions of a prompt; numbers other than ``read`` are at most ``MOST``.

    Attributes:
        page: Kind of the page.
        number: Number of the page of results; 0 on other pages.
        searched: Number of searches so far.
        fit: Fit of the product whose page it is; ``NONE`` on other pages.
        read: Number of its pages "description" and "features" that were read.
        best: Best fit among the other products that were seen and not opened; on a page of results,
            only among those of the page.
        left: Number of the page's options that offer a value that the wish asks for, and of which
            no such value is chosen.
        astray: Number of options whose chosen value the wish does not ask for.
    """

    page: str
    number: int
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
        fit: Fit of the product that the action opens.
        opened: The product was opened before.
        rank: Rank of the product among the page's products, from 0: unopened products first, then
            by fit, then by position; at most ``MOST``.
        wanted: The wish asks for the option's value.
        chosen: Chosen value of the option: 0 none, 1 this one, 2 another that the wish asks for, 3
            another that the wish does not ask for.
        covers: Share of the wish's words in the query: 0 under a half, 1 under all, 2 all.
        extra: Further words in the query: 0 none, 1 only words of the wish's options, 2 others.
        tried: The same query was searched for before.
        again: The last action was the same.
    """

    verb: str
    fit: Fit = NONE
    opened: bool = False
    rank: int = 0
    wanted: bool = False
    chosen: int = 0
    covers: int = 0
    extra: int = 0
    tried: bool = False
    again: bool = False


@dataclass(frozen=True)
class ShopRead:
    """Content of a prompt.

    Attributes:
        state: Parts shared by all actions.
        step: Number of steps taken.
        commands: Texts of the listed actions, in the prompt's order.
        actions: Descriptions of the listed actions, in the same order.
    """

    state: ShopState
    step: int
    commands: tuple[str, ...]
    actions: tuple[ShopAction, ...]


class _Seen(NamedTuple):
    """Product in the notes.

    Attributes:
        fit: Fit to the wish.
        opened: True if any of the product's pages was read.
        read: Number of its pages "description" and "features" that were read.
    """

    fit: Fit
    opened: bool
    read: int


def read_shop(prompt: str) -> ShopRead:
    """Read a prompt of the shop with a memory (``env.prompt=memory``).

    Raises:
        ConfigError: It is not such a prompt.
    """
    headed, notes, commands = split_prompt(prompt, _HEADS)
    wish, page, product, last, step = headed
    noted = _Notes(wish)
    for line in notes:
        noted.take(line)
    kind, _, number = page.partition(" ")
    # Only a page of results has buttons for products.
    listed = []
    if kind == "results":
        arguments = [argument for _, argument in map(_parts, commands)]
        listed = [argument for argument in arguments if argument in noted.seen]
    state = _state(noted, kind, int(number), product, listed)
    ranks = _ranks(noted, listed)
    actions = []
    for text in commands:
        actions.append(_action(noted, text, ranks)._replace(again=text == last))
    return ShopRead(state, int(step), commands, tuple(actions))


@dataclass
class _Notes:
    """Notes between a prompt's head and its actions.

    Attributes:
        wish: The instruction.
        searched: Queries so far.
        chosen: Chosen value of each option.
        options: (name of the option, value) of all values that the page offers, in the page's
            order.
        seen: Products that were listed or opened, by ASIN in lower case.
    """

    wish: str
    searched: list[str] = field(default_factory=list)
    chosen: dict[str, str] = field(default_factory=dict)
    options: list[tuple[str, str]] = field(default_factory=list)
    seen: dict[str, _Seen] = field(default_factory=dict)

    def take(self, line: str) -> None:
        """Add the content of one line.

        A line is ``seen <asin> | <price> | <pages read> | <matched words>``, ``searched <query>``,
        ``chosen <name>: <value>`` or ``option <name>: <value>``.
        """
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
        price: Price or price range, as pages print it.
        matched: Words of the wish that the product's texts contain.
        read: Names of the product's pages that were read.
    """
    asked = parse_wish(wish)
    lacks = min(len(asked.words) - len(matched.split()), MOST_LACKED)
    pages = read.split()
    # Reviews are left out: their page is always empty.
    details = sum(page in ("description", "features") for page in pages)
    return _Seen(Fit(lacks, _above_bound(price, asked.bound)), bool(pages), details)


def _above_bound(price: str, bound: float | None) -> int:
    """Number of the ends of a price range that are above the bound; 1 if no price is shown."""
    if bound is None:
        return 0
    prices = [float(found) for found in _PRICE.findall(price)]
    if not prices:
        return 1
    # A single price counts as both ends of its range.
    return (prices[0] > bound) + (prices[-1] > bound)


def _state(noted: _Notes, kind: str, number: int, product: str, listed: Sequence[str]) -> ShopState:
    """Summarise what all actions of a prompt share.

    Args:
        noted: Content of the notes.
        kind: Kind of the page.
        number: Number of the page, which is read only on a page of results.
        product: ASIN of the product whose page it is; empty on other pages.
        listed: Products of a page of results.
    """
    here = noted.seen.get(product)
    # On a product's page the alternatives are all products seen so far, not those of one page.
    others = listed if kind == "results" else [name for name in noted.seen if name != product]
    unopened = [noted.seen[name] for name in others if not noted.seen[name].opened]
    best = min((seen.fit for seen in unopened), default=NONE)
    # Names of options, not values: the wish may ask for several values of an option, of which only
    # one can be chosen.
    wanted = {name for name, value in noted.options if noted.wants(name, value)}
    right = {name for name, value in noted.chosen.items() if noted.wants(name, value)}
    return ShopState(
        kind,
        min(number, MOST) if kind == "results" else 0,
        min(len(noted.searched), MOST),
        here.fit if here else NONE,
        here.read if here else 0,
        best,
        min(len(wanted - right), MOST),
        min(len(noted.chosen.keys() - right), MOST),
    )


def _ranks(noted: _Notes, listed: Sequence[str]) -> dict[str, int]:
    """``ShopAction.rank`` of each product of a page."""
    # Unopened products first, then by fit; `sorted` keeps ties in the order of the page.
    ordered = sorted(listed, key=lambda name: (noted.seen[name].opened, noted.seen[name].fit))
    return {name: min(rank, MOST) for rank, name in enumerate(ordered)}


def _action(noted: _Notes, text: str, ranks: dict[str, int]) -> ShopAction:
    """Describe a listed action: a search, a button, a product, or an option's value."""
    verb, argument = _parts(text)
    if verb == "search":
        covers, extra = _query(noted.wish, argument)
        return ShopAction("search", covers=covers, extra=extra, tried=argument in noted.searched)
    if argument in _BUTTONS:
        return ShopAction(_BUTTONS[argument])
    if argument in ranks:
        seen = noted.seen[argument]
        return ShopAction("open", seen.fit, seen.opened, ranks[argument])
    # A value of several options belongs to the last one, as in the shop itself.
    name = next((name for name, value in reversed(noted.options) if value == argument), "")
    return ShopAction(
        "option", wanted=noted.wants(name, argument), chosen=_chosen(noted, name, argument)
    )


def _chosen(noted: _Notes, name: str, value: str) -> int:
    """``ShopAction.chosen`` of a value of the option ``name``."""
    current = noted.chosen.get(name)
    if current is None:
        return 0
    if current == value:
        return 1
    if noted.wants(name, current):
        return 2
    return 3


@functools.lru_cache(maxsize=16384)
def _query(wish: str, query: str) -> tuple[int, int]:
    """``ShopAction.covers`` and ``ShopAction.extra`` of a query."""
    asked = parse_wish(wish)
    typed = words_of(query)
    share = sum(word in typed for word in asked.words) / max(len(asked.words), 1)
    # Three levels are enough to distinguish queries for the whole wish from queries for a part.
    covers = 0
    if share == 1:
        covers = 2
    elif share >= 0.5:
        covers = 1

    options: set[str] = set()
    for value in asked.options.values():
        options |= words_of(value)
    beyond = typed - set(asked.words)
    extra = 0
    if beyond:
        extra = 2 if beyond - options else 1
    return covers, extra


@functools.lru_cache(maxsize=65536)
def _parts(action: str) -> tuple[str, str]:
    """Verb and argument of ``verb[argument]``; for any other text, an empty verb and the text."""
    match = _ACTION.fullmatch(action)
    return (match[1], match[2]) if match else ("", action)


class ShopReader(PromptReader):
    """Reads the shop's prompts."""

    STATE = (
        "page",
        "number",
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
        "rank",
        "wanted",
        "chosen",
        "covers",
        "extra",
        "tried",
        "again",
    )
    PAIR_FEATURES = (
        ("verb",),
        ("verb", "page", "number"),
        ("verb", "left", "astray"),
        ("verb", "lacks", "over"),
        ("verb", "lacks", "over", "left", "astray"),
        ("verb", "best lacks", "best over"),
        ("verb", "lacks", "over", "best lacks", "best over"),
        ("verb", "read", "lacks"),
        ("verb", "own lacks", "own over"),
        ("verb", "own lacks", "own over", "opened", "rank"),
        ("verb", "opened", "rank"),
        ("verb", "wanted", "chosen"),
        ("verb", "wanted", "chosen", "lacks", "over"),
        ("verb", "covers", "extra", "tried"),
        ("verb", "covers", "tried", "searched"),
        ("verb", "again", "searched"),
    )
    """Columns joined by each feature of an action.

    ``lacks`` and ``over`` are the two parts of a :class:`Fit`: without prefix, of the product whose
    page it is; ``own``: of the product that a click opens; ``best``: of the best other product. For
    the rest see :class:`ShopState` and :class:`ShopAction`.
    """
    STATE_FEATURES = (
        ("page", "number"),
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
    """Columns ``ShopReader.STATE`` of a state, without ``phase``."""
    return [
        text_hash(state.page),
        state.number,
        state.searched,
        *state.fit,
        state.read,
        *state.best,
        state.left,
        state.astray,
    ]


@functools.lru_cache(maxsize=16384)
def _action_row(action: ShopAction) -> list[int]:
    """Columns ``ShopReader.COMMAND`` of an action."""
    verb, fit, *rest = action
    return [text_hash(verb), *fit, *map(int, rest)]
