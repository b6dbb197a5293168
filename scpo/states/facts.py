"""Identity by the environment's structured facts and the things named in the observation."""

from scpo.states.identity import Comparison, Identity, Visits, key_ids
from scpo.states.words import names_in
from scpo.steps import IntArray


def facts(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each pair of facts and names.

    The names are of the raw observation, whichever text ``state_key`` selects: what the state text
    adds to it are the facts, and commands, which would name things that the agent does not see.

    Raises:
        StepBatchError: The environment gives no facts.
    """
    fact_M = visits.needed("facts", "facts")
    return key_ids(
        (fact, names_in(text)) for fact, text in zip(fact_M, visits.observation_M, strict=True)
    )


FACTS = Identity("facts", "entities and facts", facts, requires=frozenset({"facts"}))
