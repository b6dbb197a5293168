"""States are equal if names, last action, lasting verbs and admissible commands, if any, are equal.

What wording hides, the episode's own actions tell: an environment cannot reword them.
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
    """One label for each combination.

    Names count if the group's actions or commands use them too, which excludes time stamps. Verbs
    that were undone, and how often a verb was used, are not represented.

    Args:
        visits: The visits.
        comparison: Not read: lasting verbs are counted anew in each batch.

    Returns:
        ``label_M``.
    """
    commands_M = visits.given("commands")
    named = acted_names(visits)

    # Verbs used before each visit, of those that leave a trace in the texts.
    used_MV, _ = verbs_used(visits)
    kept = used_MV[:, lasting_verbs(visits, used_MV, key_ids(named))]
    return key_ids(
        zip(
            named,
            visits.last_action_M,
            # A row as bytes can be hashed; an array cannot.
            map(bytes, kept.astype(np.uint8)),
            commands_M if commands_M is not None else [""] * len(visits),
            strict=True,
        )
    )


HISTORY = Identity("history", "names and history", history)
