"""Parser of an instruction: the thing, its options, the price bound, and possible searches.

Synthetic instructions end with ``with <name>: <value>, and <name>: <value>, and price lower than
<bound> dollars``, as in the original; a human one has only the last part, and its options occur
anywhere in its text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

FILLER = frozenset(
    str.split(
        "find me a an and the with for is price lower than dollars i am looking need would like"
    )
)
"""Words without content in any instruction."""

MOST_SEARCHES = 8
"""Searches that a choice policy is offered on the search page."""

# Words that a query leaves out; FILLER alone is also left out of compact prompts.
_STOP = FILLER | frozenset(
    str.split("of to in on or it that my i'm want some which has have get buy can you please")
)
_BOUND = re.compile(r",? *and price lower than (\d+(?:\.\d+)?) dollars\.?$")
_NEXT_OPTION = re.compile(r", and (?=[^:,]+: )")
_CLAUSE = re.compile(r",| with | that | which | for | and ")
_WORD = re.compile(r"[a-z0-9]+(?:['.-][a-z0-9]+)*")


@dataclass(frozen=True)
class Wish:
    """Parts of an instruction, in lower case.

    Attributes:
        words: Content words without options and price, each once.
        options: Values by name; none of a human instruction.
        bound: Highest price in US dollars; None: no bound.
        phrases: Its clauses without options and price, made of ``words`` only.
    """

    words: tuple[str, ...]
    options: dict[str, str]
    bound: float | None
    phrases: tuple[str, ...]


@functools.lru_cache(maxsize=16384)
def parse_wish(instruction: str) -> Wish:
    """The parts of an instruction."""
    text = one_line(instruction).lower()
    if limit := _BOUND.search(text):
        text = text[: limit.start()]
    # After the price, which has the form of an option.
    text, options = _split_options(text)
    phrases = filter(None, (" ".join(_content(clause)) for clause in _CLAUSE.split(text)))
    words = tuple(dict.fromkeys(_content(text)))
    return Wish(words, options, float(limit[1]) if limit else None, tuple(dict.fromkeys(phrases)))


@functools.lru_cache(maxsize=16384)
def searches(instruction: str) -> tuple[str, ...]:
    """Possible searches made of the instruction's words: at most ``MOST_SEARCHES``, each once.

    In this order: the wish without options and price; with the options' values; all words of the
    instruction, price included; the clauses up to the first "with", which name the thing; every
    clause by itself.
    """
    wish = parse_wish(instruction)
    text = one_line(instruction).lower()
    named = " ".join(_content(text.partition(" with ")[0]))
    whole = " ".join(wish.words)
    found = [whole, " ".join([whole, *wish.options.values()]), text, named, *wish.phrases]
    typed = (" ".join(_WORD.findall(text)) for text in found)
    return tuple(dict.fromkeys(filter(None, typed)))[:MOST_SEARCHES]


def asked_for(instruction: str, name: str, value: str) -> bool:
    """Return True if the instruction asks for this value of an option.

    By the option's name or, in an instruction without named options, by its words.
    """
    wish = parse_wish(instruction)
    if wish.options:
        return wish.options.get(name) == value
    return (
        f" {' '.join(_WORD.findall(value))} " in f" {' '.join(_WORD.findall(instruction.lower()))} "
    )


@functools.lru_cache(maxsize=65536)
def words_of(text: str) -> frozenset[str]:
    """The words of a text in lower case."""
    return frozenset(_WORD.findall(text.lower()))


@functools.lru_cache(maxsize=65536)
def one_line(text: str) -> str:
    """A text with single spaces."""
    return " ".join(text.split())


def _split_options(text: str) -> tuple[str, dict[str, str]]:
    """A text without its options, and these."""
    colon = text.find(": ")
    # The last "with" before the first colon: the thing's own name may contain an earlier one.
    start = text.rfind(" with ", 0, colon) if colon >= 0 else -1
    if start < 0:
        return text, {}
    pairs = (part.partition(": ") for part in _NEXT_OPTION.split(text[start + len(" with ") :]))
    return text[:start], {name: value for name, _, value in pairs}


def _content(text: str) -> Iterator[str]:
    """Words of a text that are worth searching for, in their order."""
    return (word for word in _WORD.findall(text) if word not in _STOP)
