"""States are equal if names, last action, lasting verbs and admissible commands, if any, are equal.

Rewording an observation may hide what has changed, but the episode's actions cannot be reworded.
"""

import numpy as np

from scpo.states.identity import (
    Comparison,
    Identity,
    Visits,
    acted_names,
    key_ids,
    lasting_verbs,
    verbs_used,
)
from scpo.steps import IntArray


def history(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each combination of names, last action, lasting verbs and commands.

    Only names that the group's actions or commands use count, which excludes time stamps. The label
    does not show whether a verb was undone or how often it was used.

    Args:
        visits: The visits.
        comparison: Not read: lasting verbs are found anew in each batch.

    Returns:
        ``label_M``.
    """
    named = acted_names(visits)
    used_MV, _ = verbs_used(visits)
    lasting_MV = used_MV[:, lasting_verbs(visits, used_MV, key_ids(named))]
    # As bytes, because arrays cannot be hashed.
    lasting = map(bytes, lasting_MV.astype(np.uint8))
    commands_M = visits.given("commands")
    if commands_M is None:
        commands_M = np.full(len(visits), "", dtype=object)
    return key_ids(zip(named, visits.last_action_M, lasting, commands_M, strict=True))


HISTORY = Identity("history", "names and history", history)
