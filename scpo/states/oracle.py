"""Identity by the simulator's canonical texts: an upper bound, only for studies."""

from scpo.states.identity import Comparison, Identity, Visits, key_ids
from scpo.steps import IntArray


def oracle(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each canonical text, of the kind that ``key`` selects.

    The control of every study of rewording: by it all estimators must equal themselves by equal
    texts without rewording.

    Raises:
        StepBatchError: The environment does not give it.
    """
    return key_ids(
        visits.needed("true_anchor" if visits.key == "anchor" else "true_state", "oracle")
    )


ORACLE = Identity("oracle", "oracle", oracle, requires=frozenset({"truth"}))
