"""States are equal if what a batch shows to be kept by equal states is equal.

Learned anew from each batch, without labels: nothing is carried from step to step, so that a
resumed run finds the same states, and new wordings are met as soon as they occur.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from scpo.states.congruence import closed
from scpo.states.identity import (
    Comparison,
    Identity,
    Visits,
    acted_names,
    key_ids,
    lasting_verbs,
    verbs_used,
    word_counts,
)
from scpo.steps import BoolArray, IntArray

# Maximum rate of differences among equal states, relative to others. Not 0: one false merge of the
# closure would drop a feature that separates states everywhere else.
MOST_DIFFERENT = 0.05

# Minimum number of pairs of other states that differ in a kept feature: a rate of fewer pairs is
# unreliable.
FEWEST_DIFFERENT = 20

# The number of pairs grows with the square of the number of rows. The first ones of a class are
# taken, so that no random number is involved.
ROWS_OF_A_CLASS = 60


def learned(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each combination of last action, lasting verbs and the features that are kept.

    Candidates are the multiset of names that the group's actions use, and the count of each word
    that is not part of a name. A candidate is kept if visits that the congruence closure of equal
    texts joins differ in it far less than others after the same last action do. A paraphrased word,
    or names that pronouns replace, differ among equal states and are dropped. Information that only
    such words carry is lost: a trade of precision for recall. Admissible commands are not read.

    Args:
        visits: The visits.
        comparison: Not read.

    Returns:
        ``label_M``.
    """
    # Candidates: the names as one feature, then the count of each word.
    name_id_M = key_ids(acted_names(visits))
    value_MF = np.concatenate([name_id_M[:, None], word_counts(visits)], axis=1)
    # Examples of equal states, found without labels.
    equal_M = closed(visits.batch, visits.group_M, key_ids(visits.text_M))
    kept_F = kept_by_equals(visits, value_MF, equal_M)

    # Lasting verbs, among visits with equal names if names are kept.
    used_MV, _ = verbs_used(visits)
    names_kept = name_id_M if kept_F[0] else np.zeros_like(name_id_M)
    used_MV = used_MV[:, lasting_verbs(visits, used_MV, names_kept)]
    features = np.concatenate([value_MF[:, kept_F], used_MV], axis=1).astype(np.int64)
    return key_ids(
        zip(
            visits.group_M.tolist(),
            visits.last_action_M,
            map(bytes, np.ascontiguousarray(features)),
            strict=True,
        )
    )


def kept_by_equals(visits: Visits, value_MF: NDArray[np.int64], equal_M: IntArray) -> BoolArray:
    """The features in which equal states differ far less often than others.

    Pairs are visits of one group after the same last action.

    Args:
        visits: The visits.
        value_MF: A feature's value at each visit, ``(visits, features)``.
        equal_M: Labels of states that are known to be equal.

    Returns:
        ``kept_F``; none where no two equal states are known.
    """
    class_M = key_ids(zip(visits.group_M.tolist(), visits.last_action_M, strict=True))
    pairs_equal = pairs_other = 0
    differ_equal = np.zeros(value_MF.shape[1], dtype=np.int64)
    differ_other = np.zeros_like(differ_equal)
    order = np.argsort(class_M, kind="stable")
    for members in np.split(order, np.flatnonzero(np.diff(class_M[order])) + 1):
        rows = members[:ROWS_OF_A_CLASS]
        first, second = np.triu_indices(len(rows), 1)
        equal = equal_M[rows[first]] == equal_M[rows[second]]
        differs = value_MF[rows[first]] != value_MF[rows[second]]
        pairs_equal, pairs_other = pairs_equal + int(equal.sum()), pairs_other + int((~equal).sum())
        differ_equal += differs[equal].sum(axis=0)
        differ_other += differs[~equal].sum(axis=0)

    # differ_equal / pairs_equal <= MOST_DIFFERENT * differ_other / pairs_other, without dividing.
    kept: BoolArray = (differ_other >= FEWEST_DIFFERENT) & (
        differ_equal * pairs_other <= MOST_DIFFERENT * differ_other * pairs_equal
    )
    return kept if pairs_equal else np.zeros_like(kept)


LEARNED = Identity("learned", "learned features", learned)
