"""States are equal if names, last action, lasting verbs and, where there are any, admissible commands are equal.

What wording hides, the episode's own actions tell. Actions are the agent's, so an environment cannot reword them.
"""

from __future__ import annotations

import numpy as np

from scpo.states.closure import closed
from scpo.states.entities import names_in
from scpo.states.identity import Comparison, Identity
from scpo.states.visits import Visits, key_ids
from scpo.steps import BoolArray, IntArray

MOST_DIFFERENT = 0.005  # of pairs of equal states, whose episodes may differ in a lasting verb
FEWEST_EQUAL, FEWEST_DIFFERENT = 50, 20  # pairs without which nothing is concluded
ROWS_OF_A_CLASS = 60  # pairs grow with the square


def history(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each combination.

    Names are those of the text that the group's actions or commands use too: a time stamp is no thing that can be
    acted on. A verb lasts if the episodes of equal states agree in having used it; equal states are found by congruence
    closure over the batch (``lasting_verbs``). Verbs that are undone or counted are lost.
    """
    commands_M = visits.given("commands")
    known = _names_acted_on(visits)
    group_M = visits.group_M.tolist()
    named = [
        tuple(pair for pair in names_in(text) if pair[0] in known[group])
        for group, text in zip(group_M, visits.text_M, strict=True)
    ]
    used_MV, verbs = verbs_used(visits)
    lasting = used_MV[:, lasting_verbs(visits, used_MV)] if verbs else used_MV
    return key_ids(
        zip(
            named,
            visits.last_action_M,
            map(bytes, lasting.astype(np.uint8)),
            commands_M if commands_M is not None else [""] * len(visits),
            strict=True,
        )
    )


def _names_acted_on(visits: Visits) -> dict[int, set[str]]:
    """Names in the actions and admissible commands of each group."""
    known: dict[int, set[str]] = {}
    texts = [visits.batch.action_N[visits.row_M]]
    commands_M = visits.given("commands")
    if commands_M is not None:
        texts.append(commands_M)
    for column in texts:
        for group, text in set(zip(visits.group_M.tolist(), column, strict=True)):
            known.setdefault(group, set()).update(name for name, _ in names_in(text))
    return known


def verbs_used(visits: Visits) -> tuple[BoolArray, list[str]]:
    """The verbs, first words of actions, used before each visit, ``(visits, verbs)``, and the list of verbs."""
    batch, line = visits.batch, visits.batch.timeline
    verb_N = [action.split(maxsplit=1)[0] if action.strip() else "" for action in batch.action_N]
    verbs = sorted(set(verb_N))
    place = {verb: index for index, verb in enumerate(verbs)}
    code_N = np.array([place[verb] for verb in verb_N], dtype=np.int64)
    used_KTV = np.zeros((*line.row_KT.shape, len(verbs)), dtype=bool)
    k, t = np.nonzero(line.row_KT >= 0)
    used_KTV[k, t, code_N[line.row_KT[k, t]]] = True
    after_KTV = np.logical_or.accumulate(used_KTV, axis=1)
    before_KTV = np.zeros_like(after_KTV)
    before_KTV[:, 1:] = after_KTV[:, :-1]
    slot_M, step_M = line.slot_N[visits.row_M], line.step_N[visits.row_M]
    return np.where(visits.final_M[:, None], after_KTV[slot_M, step_M], before_KTV[slot_M, step_M]), verbs


def lasting_verbs(visits: Visits, used_MV: BoolArray) -> BoolArray:
    """The verbs in which episodes hardly ever differ where their states are equal, and often where they are not.

    Pairs are visits of one group after the same last action; equal are those that the congruence closure of equal
    texts joins. Needs no label: only that the world is deterministic.
    """
    equal_M = closed(visits, key_ids(visits.text_M))
    class_M = key_ids(zip(visits.group_M.tolist(), visits.last_action_M, strict=True))
    pairs_equal = pairs_other = 0
    differ_equal = np.zeros(used_MV.shape[1], dtype=np.int64)
    differ_other = np.zeros_like(differ_equal)
    order = np.argsort(class_M, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(class_M[order])) + 1):
        rows = members[:ROWS_OF_A_CLASS]
        first, second = np.triu_indices(len(rows), 1)
        equal = equal_M[rows[first]] == equal_M[rows[second]]
        differs = used_MV[rows[first]] ^ used_MV[rows[second]]
        pairs_equal, pairs_other = pairs_equal + int(equal.sum()), pairs_other + int((~equal).sum())
        differ_equal += differs[equal].sum(axis=0)
        differ_other += differs[~equal].sum(axis=0)
    if pairs_equal < FEWEST_EQUAL:
        return np.zeros(used_MV.shape[1], dtype=bool)
    lasts: BoolArray = (differ_equal <= MOST_DIFFERENT * pairs_equal) & (differ_other >= FEWEST_DIFFERENT)
    return lasts


HISTORY = Identity("history", "names and history", history)
