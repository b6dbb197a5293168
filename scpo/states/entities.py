"""States are equal if their texts name the same things equally often."""

from scpo.states.identity import Comparison, Identity, Visits, key_ids
from scpo.states.words import names_in
from scpo.steps import IntArray


def entities(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each multiset of names.

    Properties are ignored: "the mug 1 is hot" and "the mug 1 is cold" are one state. Names need
    numbers, as those of ALFWorld's objects and WebShop's products have. Texts of one state differ
    if a pronoun replaces the second mention of a name in one of them.

    Args:
        visits: The visits.
        comparison: Not read.
    """
    return key_ids(map(names_in, visits.text_M))


ENTITIES = Identity("entities", "named entities", entities)
