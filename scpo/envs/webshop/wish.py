"""Parser of an instruction: the thing, its options, the price bound, and possible searches.

Synthetic instructions end with ``with <name>: <value>, and <name>: <value>, and price lower than
<bound> dollars``, as in the original WebShop. A human instruction ends with the price bound only;
the values of its options may occur anywhere in its text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

FILLER = frozenset(
    str.split(
        "find me a an and the with for is price lower than dollars i am looking need would like"
    )
)
"""Words that carry no content in any instruction; compact prompts leave out only these."""

MOST_SEARCHES = 8
"""Largest number of searches that the search page offers to a choice policy."""

# Words that are not content words, left out of most searches.
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
        words: Content words outside the options and the price bound, each once.
        options: Option name -> value; empty for a human instruction.
        bound: Price bound in US dollars; None: no bound.
        phrases: Content words of each clause outside the options and the price bound, each phrase
            once.
    """

    words: tuple[str, ...]
    options: dict[str, str]
    bound: float | None
    phrases: tuple[str, ...]


@functools.lru_cache(maxsize=16384)
def parse_wish(instruction: str) -> Wish:
    """Split an instruction into its parts."""
    text = one_line(instruction).lower()
    bound = None
    # Removed first, because the bound would otherwise be part of the last option's value.
    if limit := _BOUND.search(text):
        bound = float(limit[1])
        text = text[: limit.start()]
    text, options = _split_options(text)
    words = tuple(_distinct(_content(text)))
    phrases = tuple(_distinct(" ".join(_content(clause)) for clause in _CLAUSE.split(text)))
    return Wish(words, options, bound, phrases)


@functools.lru_cache(maxsize=16384)
def searches(instruction: str) -> tuple[str, ...]:
    """Possible searches made of the instruction's words: at most ``MOST_SEARCHES``, each once.

    In this order: the content words without options and price; the same with the options' values;
    all words of the instruction, price included; the content words before the first "with", which
    name the thing; each phrase.
    """
    wish = parse_wish(instruction)
    text = one_line(instruction).lower()
    whole = " ".join(wish.words)
    with_options = " ".join([whole, *wish.options.values()])
    thing = " ".join(_content(text.partition(" with ")[0]))
    candidates = [whole, with_options, text, thing, *wish.phrases]
    queries = _distinct(" ".join(_WORD.findall(candidate)) for candidate in candidates)
    return tuple(queries[:MOST_SEARCHES])


def asked_for(instruction: str, name: str, value: str) -> bool:
    """Return True if the instruction asks for this value of an option.

    In an instruction without named options, the words of the value must occur in a row.
    """
    wish = parse_wish(instruction)
    if wish.options:
        return wish.options.get(name) == value
    wanted = " ".join(_WORD.findall(value))
    text = " ".join(_WORD.findall(instruction.lower()))
    # With spaces around both, only whole words match.
    return f" {wanted} " in f" {text} "


@functools.lru_cache(maxsize=65536)
def words_of(text: str) -> frozenset[str]:
    """The words of a text in lower case."""
    return frozenset(_WORD.findall(text.lower()))


@functools.lru_cache(maxsize=65536)
def one_line(text: str) -> str:
    """A text on one line: each run of white space becomes a single space."""
    return " ".join(text.split())


def _split_options(text: str) -> tuple[str, dict[str, str]]:
    """Split a text into the part before its options and the options (name -> value)."""
    colon = text.find(": ")
    # The options begin after the last "with" before the first colon; an earlier "with" belongs to
    # the thing's description.
    start = text.rfind(" with ", 0, colon) if colon >= 0 else -1
    if start < 0:
        return text, {}
    pairs = (part.partition(": ") for part in _NEXT_OPTION.split(text[start + len(" with ") :]))
    return text[:start], {name: value for name, _, value in pairs}


def _content(text: str) -> Iterator[str]:
    """Content words of a text, in their order."""
    return (word for word in _WORD.findall(text) if word not in _STOP)


def _distinct(texts: Iterable[str]) -> list[str]:
    """The texts that are not empty, each once, in the order of their first occurrence."""
    return list(dict.fromkeys(filter(None, texts)))
