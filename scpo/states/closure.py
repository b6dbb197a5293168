"""Congruence closure: equal actions in equal states have equal results (deterministic world)."""

from scpo.states.congruence import closed
from scpo.states.identity import Comparison, Identity, Visits, key_ids
from scpo.steps import IntArray


def closure(visits: Visits, comparison: Comparison) -> IntArray:
    """Finest labels, closed under actions, that merge equal texts and siblings' first states.

    In a stochastic world the closure merges states that differ, and one false merge spreads.
    """
    return closed(visits.batch, visits.group_M, key_ids(visits.text_M))


CLOSURE = Identity("closure", "congruence closure", closure)
