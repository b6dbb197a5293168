"""Leader clustering: each text joins the first similar leader, or becomes a new leader.

The result depends on the order, as in GiGPO's difflib option: texts are visited in the trainer's
processing order.
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from scpo.states.identity import Visits, key_ids
from scpo.steps import IntArray


def leader_labels(visits: Visits, leaders_of: Callable[[list[str]], Sequence[int]]) -> IntArray:
    """Labels of visits whose texts are clustered inside their group.

    Args:
        visits: The visits.
        leaders_of: For each of a group's distinct texts, in order, the index of its leader.
    """
    text_id_M = key_ids(visits.text_M)
    order = visits.order_M
    label_M = np.zeros(len(visits), dtype=np.int64)
    for group in np.unique(visits.group_M):
        members = order[visits.group_M[order] == group]
        _, first, place = np.unique(text_id_M[members], return_index=True, return_inverse=True)
        in_order = np.argsort(first)
        texts = [visits.text_M[members[first[distinct]]] for distinct in in_order]
        rank = np.argsort(in_order)
        label_M[members] = np.asarray(leaders_of(texts), dtype=np.int64)[rank[place]]
    return label_M


def leaders_in(similarity: NDArray[np.floating], threshold: float) -> list[int]:
    """The leader of each text from the similarities of all pairs, ``(texts, texts)``."""
    near = similarity >= threshold
    is_leader = np.zeros(len(near), dtype=bool)
    chosen = []
    for index, row in enumerate(near):
        candidates = np.flatnonzero(row[:index] & is_leader[:index])
        is_leader[index] = not len(candidates)
        chosen.append(int(candidates[0]) if len(candidates) else index)
    return chosen
