"""Names, words and verbs: what the texts and actions of visits tell of a state."""

from __future__ import annotations

import functools
import re
from collections import Counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scpo.states.identity import Visits, key_ids
from scpo.steps import BoolArray, IntArray

# Only the most frequent words of a batch are counted.
MOST_WORDS = 512

# Threshold for the strongest of some thousand correlations, of which chance gives 4.5.
LEAST_Z = 6.0
_WORD = re.compile(r"[a-z]+(?! \d)")
Names = tuple[tuple[str, int], ...]

# "cabinet 1", "B07XYZ1234", "$12.99": a word that holds a digit; a bare number goes with the word
# before it. Possessive quantifiers: words without a digit, nearly all, are passed without
# backtracking.
_NAME = re.compile(r"\b[a-z]++ \d++\b|(?<![\w$.])[a-z_$.]*+\d[\w.]*\b")


@functools.lru_cache(maxsize=131072)
def names_in(text: str) -> Names:
    """The names with a number that a text has, and how often each, sorted."""
    # Texts of a batch share most of their sentences, so that these are searched once.
    found = [name for sentence in text.lower().split(". ") for name in _names_of(sentence)]
    return tuple(sorted(Counter(found).items()))


@functools.lru_cache(maxsize=131072)
def _names_of(sentence: str) -> tuple[str, ...]:
    return tuple(_NAME.findall(sentence))


def acted_names(visits: Visits) -> list[tuple[tuple[str, int], ...]]:
    """The names in each text that the group's actions or commands use, and how often each."""
    known = _names_acted_on(visits)
    return [
        tuple(pair for pair in names_in(text) if pair[0] in known[group])
        for group, text in zip(visits.group_M.tolist(), visits.text_M, strict=True)
    ]


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
    """The verbs used before each visit, ``(visits, verbs)``, and the list of verbs.

    A verb is the first word of an action.
    """
    batch = visits.batch
    line = visits.batch.timeline
    verb_N = [action.split(maxsplit=1)[0] if action.strip() else "" for action in batch.action_N]
    verbs = sorted(set(verb_N))
    place = {verb: index for index, verb in enumerate(verbs)}
    code_N = np.array([place[verb] for verb in verb_N], dtype=np.int64)
    used_KTV = np.zeros((*line.row_KT.shape, len(verbs)), dtype=bool)
    k, t = np.nonzero(line.row_KT >= 0)
    used_KTV[k, t, code_N[line.row_KT[k, t]]] = True
    after_KTV = np.logical_or.accumulate(used_KTV, axis=1)
    before_KTV = np.zeros_like(after_KTV)
    # What was used before a step was used up to the step before it; before the first, nothing was.
    before_KTV[:, 1:] = after_KTV[:, :-1]
    slot_M = line.slot_N[visits.row_M]
    step_M = line.step_N[visits.row_M]
    return np.where(
        visits.final_M[:, None], after_KTV[slot_M, step_M], before_KTV[slot_M, step_M]
    ), verbs


def lasting_verbs(visits: Visits, used_MV: BoolArray, name_id_M: IntArray) -> BoolArray:
    """The verbs that leave a trace: after them, the words differ from what they are without.

    Needs no label. Visits of a group with the same last action and names are compared: if the
    presence of some word correlates with whether a verb was used (z of at least ``LEAST_Z``), the
    verb lasts. Forward selection: the strongest verb joins what the next ones are compared within,
    so that a verb which only accompanies a lasting one is left out.

    Args:
        visits: The visits.
        used_MV: Which verbs were used before each visit.
        name_id_M: The names of each visit's text, by number.
    """
    lasts_V = np.zeros(used_MV.shape[1], dtype=bool)
    has_MW = word_counts(visits) > 0
    class_M = key_ids(
        zip(visits.group_M.tolist(), visits.last_action_M, name_id_M.tolist(), strict=True)
    )
    for _ in range(used_MV.shape[1]):
        z_V = np.where(lasts_V, 0.0, _strongest(used_MV, has_MW, class_M))
        best = int(np.argmax(z_V))
        if z_V[best] < LEAST_Z:
            break
        lasts_V[best] = True
        # The next verbs are compared among visits that agree in this one.
        class_M = key_ids(zip(class_M.tolist(), used_MV[:, best].tolist(), strict=True))
    return lasts_V


def _strongest(used_MV: BoolArray, has_MW: BoolArray, class_M: IntArray) -> NDArray[np.float64]:
    """For each verb the largest |r| sqrt(n) with a word's presence, within classes."""
    _, class_id_M = np.unique(class_M, return_inverse=True)
    used = _centred(used_MV, class_id_M)
    has = _centred(has_MW, class_id_M)
    # Only visits whose class varies in the verb are informative.
    varies_MV = used != 0
    covariance_VW = used.T @ has
    # The centred values of a class sum to 0, so that sums of products are covariances within
    # classes.
    variance_V = (used**2).sum(axis=0)
    variance_VW = varies_MV.T.astype(np.float64) @ has**2
    count_V = varies_MV.sum(axis=0)
    scale_VW = np.sqrt(variance_V[:, None] * variance_VW)
    r_VW = np.divide(covariance_VW, scale_VW, out=np.zeros_like(covariance_VW), where=scale_VW > 0)
    z_V: NDArray[np.float64] = np.abs(r_VW).max(axis=1, initial=0.0) * np.sqrt(count_V)
    return z_V


def _centred(value_MF: BoolArray, class_id_M: IntArray) -> NDArray[np.float64]:
    count_C = np.bincount(class_id_M)
    sums = np.zeros((len(count_C), value_MF.shape[1]))
    np.add.at(sums, class_id_M, value_MF.astype(np.float64))
    return value_MF - (sums / count_C[:, None])[class_id_M]


def word_counts(visits: Visits) -> NDArray[np.int64]:
    """Count the batch's most frequent words in each text, shape ``(visits, words)``.

    A word before a number is a part of a name and not counted.
    """
    words = {text: Counter(_WORD.findall(text.lower())) for text in set(visits.text_M)}
    totals: Counter[str] = Counter()
    for counted in words.values():
        totals.update(counted)
    # Ties by word, so that the columns do not depend on the order of the texts.
    most = sorted(totals, key=lambda word: (-totals[word], word))[:MOST_WORDS]
    column = {word: index for index, word in enumerate(most)}
    counts: dict[str, NDArray[np.int64]] = {}
    for text, counted in words.items():
        counts[text] = np.zeros(len(column), dtype=np.int64)
        for word, count in counted.items():
            if word in column:
                counts[text][column[word]] = count

    rows: list[Any] = [counts[text] for text in visits.text_M]
    if rows:
        return np.stack(rows)
    return np.zeros((0, len(column)), dtype=np.int64)
