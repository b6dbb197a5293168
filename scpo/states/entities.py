"""States are equal if their texts name the same things equally often."""

from scpo.states.identity import Comparison, Identity, Visits, key_ids
from scpo.states.words import names_in
from scpo.steps import IntArray


def entities(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each multiset of names.

    Properties are ignored: "the mug 1 is hot" and "the mug 1 is cold" are one state. Needs names
    with numbers, as ALFWorld's things and WebShop's products have; a pronoun in place of a second
    mention makes another state of the same.

    Args:
        visits: The visits.
        comparison: Not read.
    """
    return key_ids(map(names_in, visits.text_M))


ENTITIES = Identity("entities", "named entities", entities)
