"""Congruence closure: equal actions in equal states have equal results (deterministic world)."""

from scpo.states.congruence import closed
from scpo.states.identity import Comparison, Identity, Visits, key_ids
from scpo.steps import IntArray


def closure(visits: Visits, comparison: Comparison) -> IntArray:
    """Finest labels, closed under actions, that merge equal texts and siblings' first states.

    In a stochastic world the closure merges states that differ, and one false merge causes others.
    If observations are reworded it finds few of the equal states (recall 0.13 to 0.21 in
    docs/meaning.md). It is therefore more useful as the source of examples for ``learned``.

    Args:
        visits: The visits.
        comparison: Not read.

    Returns:
        ``label_M``.
    """
    return closed(visits.batch, visits.group_M, key_ids(visits.text_M))


CLOSURE = Identity("closure", "congruence closure", closure)
