"""Identity by the simulator's canonical texts: an upper bound, only for studies."""

from scpo.states.identity import Comparison, Identity, Visits, key_ids
from scpo.steps import IntArray


def oracle(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each canonical text, that of the observation or the state as ``key`` selects.

    The control of studies with reworded observations: with this identity an estimator must give the
    advantages that it gives with equal texts when nothing is reworded.

    Raises:
        StepBatchError: The environment does not provide canonical texts.
    """
    if visits.key == "anchor":
        return key_ids(visits.needed("true_anchor", "oracle"))
    return key_ids(visits.needed("true_state", "oracle"))


ORACLE = Identity("oracle", "oracle", oracle, requires=frozenset({"truth"}))
