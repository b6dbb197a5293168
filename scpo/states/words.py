"""Names and verbs in single texts and actions."""

from __future__ import annotations

import functools
import re
from collections import Counter

Names = tuple[tuple[str, int], ...]
"""Names with a number in a text, each with its count, sorted."""

# A word and the number after it, such as "cabinet 1", or a word that holds a digit, such as
# "B07XYZ1234" or "$12.99". Possessive quantifiers, because nearly all words have no digit and would
# otherwise cost backtracking.
_NAME = re.compile(r"\b[a-z]++ \d++\b|(?<![\w$.])[a-z_$.]*+\d[\w.]*\b")


@functools.lru_cache(maxsize=131072)
def names_in(text: str) -> Names:
    """The names with a number in a text, each with its count, sorted."""
    # By sentence, because texts share most of their sentences and `_names_of` caches them.
    counts: Counter[str] = Counter()
    for sentence in text.lower().split(". "):
        counts.update(_names_of(sentence))
    return tuple(sorted(counts.items()))


@functools.lru_cache(maxsize=131072)
def _names_of(sentence: str) -> tuple[str, ...]:
    return tuple(_NAME.findall(sentence))


def first_name(action: str) -> str | None:
    """First name with a number in an action, or None: the thing that is acted on."""
    found = _NAME.search(action.lower())
    return found.group(0) if found else None


def verb_of(action: str) -> str:
    """First word of an action, or an empty string."""
    return action.split(maxsplit=1)[0] if action.strip() else ""
