"""Identity by the environment's structured facts and the things named in the observation."""

from scpo.states.identity import Comparison, Identity, Visits, key_ids
from scpo.states.words import names_in
from scpo.steps import IntArray


def facts(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each pair of facts and names.

    The names are those in the raw observation for any ``state_key``. The state text adds the facts,
    which are compared anyway, and commands, which name things that the agent does not see.

    Raises:
        StepBatchError: The environment gives no facts.
    """
    fact_M = visits.needed("facts", "facts")
    return key_ids(
        (fact, names_in(text)) for fact, text in zip(fact_M, visits.observation_M, strict=True)
    )


FACTS = Identity("facts", "entities and facts", facts, requires=frozenset({"facts"}))
