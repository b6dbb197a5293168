"""States are equal if their texts are equal (GiGPO and the graph estimators)."""

from scpo.states.identity import Comparison, Identity, Visits, key_ids
from scpo.steps import IntArray


def exact(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each text.

    Estimators compare texts for equality themselves (``scpo.advantages.anchors``). The matcher
    calls this function, and so does ``scpo.credit.states`` if a scorer is unavailable.
    """
    return key_ids(visits.text_M)


EXACT = Identity("exact", "equal texts", exact)
