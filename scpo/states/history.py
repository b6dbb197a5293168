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

    Only names that the group's actions or commands use count, which excludes time stamps. Whether a
    verb was undone, and how often it was used, is not represented.

    Args:
        visits: The visits.
        comparison: Not read: lasting verbs are found anew in each batch.

    Returns:
        ``label_M``.
    """
    commands_M = visits.given("commands")
    named = acted_names(visits)

    # Only lasting verbs are kept.
    used_MV, _ = verbs_used(visits)
    kept = used_MV[:, lasting_verbs(visits, used_MV, key_ids(named))]
    return key_ids(
        zip(
            named,
            visits.last_action_M,
            # As bytes, because arrays cannot be hashed.
            map(bytes, kept.astype(np.uint8)),
            commands_M if commands_M is not None else [""] * len(visits),
            strict=True,
        )
    )


HISTORY = Identity("history", "names and history", history)
