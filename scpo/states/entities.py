"""States are equal if their texts name the same things equally often."""

import functools
import re
from collections import Counter

from scpo.states.identity import Comparison, Identity
from scpo.states.visits import Visits, key_ids
from scpo.steps import IntArray

Names = tuple[tuple[str, int], ...]

# "cabinet 1", "B07XYZ1234", "$12.99": a word that holds a digit; a bare number goes with the word
# before it. Possessive quantifiers: words without a digit, nearly all, are passed without
# backtracking.
_NAME = re.compile(r"\b[a-z]++ \d++\b|(?<![\w$.])[a-z_$.]*+\d[\w.]*\b")


@functools.lru_cache(maxsize=131072)
def names_in(text: str) -> Names:
    """The names with a number that a text has, and how often each, sorted."""
    # Texts of a batch share most of their sentences, so that these are searched once.
    found = [name for sentence in text.lower().split(". ") for name in _names_of(sentence)]
    return tuple(sorted(Counter(found).items()))


@functools.lru_cache(maxsize=131072)
def _names_of(sentence: str) -> tuple[str, ...]:
    return tuple(_NAME.findall(sentence))


def entities(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each multiset of names.

    Properties are ignored: "the mug 1 is hot" and "the mug 1 is cold" are one state.
    """
    return key_ids(map(names_in, visits.text_M))


ENTITIES = Identity("entities", "named entities", entities)
