"""States are equal if the cosine of their texts' TF-IDF vectors reaches a threshold."""

import re

import numpy as np
from numpy.typing import NDArray

from scpo.states.identity import Comparison, Identity, Visits, key_ids, leader_labels, leaders_in
from scpo.steps import IntArray

_WORD = re.compile(r"\w+")


def tfidf(visits: Visits, comparison: Comparison) -> IntArray:
    """Leader clusters of the cosine, with document frequencies of the group's own texts.

    Weight of a word: count * (ln((1 + n) / (1 + df)) + 1) for n distinct texts, as in
    scikit-learn's default.
    """
    threshold = comparison.needed_threshold()
    return leader_labels(visits, lambda texts: leaders_in(_cosines(texts), threshold))


def _cosines(texts: list[str]) -> NDArray[np.float64]:
    words = [_WORD.findall(text.lower()) for text in texts]
    text_of_word = np.repeat(np.arange(len(texts)), [len(found) for found in words])
    _, word_id = np.unique(key_ids(word for found in words for word in found), return_inverse=True)
    vocabulary = int(word_id.max(initial=-1)) + 1
    pair = text_of_word * vocabulary + word_id
    count = np.bincount(pair, minlength=len(texts) * vocabulary).reshape(len(texts), vocabulary)
    frequency = (count > 0).sum(axis=0)
    weighted = count * (np.log((1 + len(texts)) / (1 + frequency)) + 1)
    norm = np.linalg.norm(weighted, axis=1, keepdims=True)
    unit = weighted / np.where(norm > 0, norm, 1.0)
    # A text without words equals only itself; rounding may move the cosine of equal vectors off 1.
    cosine: NDArray[np.float64] = np.clip(np.round(unit @ unit.T, 12), 0, 1)
    np.fill_diagonal(cosine, 1.0)
    return cosine


# Ours; verl-agent's search recipe sets its ratio to 0.9.
TFIDF = Identity("tfidf", "TF-IDF", tfidf, threshold=0.9)
