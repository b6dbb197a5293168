"""States are equal if they agree in learned features: those in which known equal states agree.

The features are learned anew from each batch, without labels. No memory is kept between training
steps, so a resumed run finds the same states, and a new wording is learned in the step in which it
first occurs.
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

# A feature is kept if equal states differ in it at most this many times as often as other states.
# Not 0, because one false merge of the closure would then drop a feature that is right everywhere
# else.
MOST_DIFFERENT = 0.05

# Least number of pairs of other states that differ in a kept feature: over fewer pairs the rate is
# unreliable.
FEWEST_DIFFERENT = 20

# Largest number of visits of a class that are compared, since the number of pairs grows with its
# square. The first visits are taken, so that no random numbers are needed.
ROWS_OF_A_CLASS = 60


def learned(visits: Visits, comparison: Comparison) -> IntArray:
    """One label for each combination of last action, lasting verbs and the features that are kept.

    Candidate features are the multiset of names that the group's actions or commands use, and the
    count of each word that is not part of a name. The congruence closure of equal texts provides
    pairs of equal states. A candidate is kept if such pairs differ in it far less often than other
    pairs of visits after the same last action. Paraphrased words, and names that pronouns replace,
    differ among equal states and are dropped. The information that only dropped features carry is
    lost: recall is gained at the cost of precision.

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
    """The features in which equal states differ far less often than other states.

    Pairs of visits of one group after the same last action are compared.

    Args:
        visits: The visits.
        value_MF: A feature's value at each visit, ``(visits, features)``.
        equal_M: Label of each visit; visits with equal labels are known to be equal states.

    Returns:
        ``kept_F``, True for features to keep; all False if no pair is known to be equal.
    """
    class_M = key_ids(zip(visits.group_M.tolist(), visits.last_action_M, strict=True))
    pairs_equal = pairs_other = 0
    differ_equal = np.zeros(value_MF.shape[1], dtype=np.int64)
    differ_other = np.zeros_like(differ_equal)
    order = np.argsort(class_M, kind="stable")
    # Positions in `order` at which the next class begins.
    starts = np.flatnonzero(np.diff(class_M[order])) + 1
    for members in np.split(order, starts):
        rows = members[:ROWS_OF_A_CLASS]
        first, second = np.triu_indices(len(rows), 1)
        equal = equal_M[rows[first]] == equal_M[rows[second]]
        differs = value_MF[rows[first]] != value_MF[rows[second]]
        pairs_equal += int(equal.sum())
        pairs_other += int((~equal).sum())
        differ_equal += differs[equal].sum(axis=0)
        differ_other += differs[~equal].sum(axis=0)

    # differ_equal / pairs_equal <= MOST_DIFFERENT * differ_other / pairs_other, without dividing.
    kept: BoolArray = (differ_other >= FEWEST_DIFFERENT) & (
        differ_equal * pairs_other <= MOST_DIFFERENT * differ_other * pairs_equal
    )
    return kept if pairs_equal else np.zeros_like(kept)


LEARNED = Identity("learned", "learned features", learned)
