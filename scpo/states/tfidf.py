"""States are equal if the cosine of their texts' TF-IDF vectors reaches a threshold."""

import re

import numpy as np
from numpy.typing import NDArray

from scpo.states.identity import Comparison, Identity, Visits, key_ids, leader_labels, leaders_in
from scpo.steps import IntArray

_WORD = re.compile(r"\w+")


def tfidf(visits: Visits, comparison: Comparison) -> IntArray:
    """Leader clusters by cosine, with document frequencies over the group's own texts.

    Weight of a word: count * (ln((1 + n) / (1 + df)) + 1) for n distinct texts, as in
    scikit-learn's default. Unlike in scikit-learn's default pattern, words of one character count:
    "cabinet 1" and "cabinet 2" differ in nothing else.

    Raises:
        ConfigError: The threshold is None.
    """
    threshold = comparison.needed_threshold()
    return leader_labels(visits, lambda texts: leaders_in(_cosines(texts), threshold))


def _cosines(texts: list[str]) -> NDArray[np.float64]:
    """Cosines of the TF-IDF vectors of all pairs of texts, ``(texts, texts)``, in [0, 1]."""
    words: list[str] = []
    text_of_word: list[int] = []
    for index, text in enumerate(texts):
        found = _WORD.findall(text.lower())
        words += found
        text_of_word += [index] * len(found)

    # Words are numbered without gaps, so that one bincount over (text, word) cells counts them all.
    _, word_id = np.unique(key_ids(words), return_inverse=True)
    vocabulary = int(word_id.max(initial=-1)) + 1
    cell = np.array(text_of_word, dtype=np.int64) * vocabulary + word_id
    count = np.bincount(cell, minlength=len(texts) * vocabulary).reshape(len(texts), vocabulary)

    document_frequency = (count > 0).sum(axis=0)
    inverse_frequency = np.log((1 + len(texts)) / (1 + document_frequency)) + 1
    weighted = count * inverse_frequency
    norm = np.linalg.norm(weighted, axis=1, keepdims=True)
    # A text without words has norm 0.
    unit = weighted / np.where(norm > 0, norm, 1.0)
    # Rounded, because the cosine of equal vectors may differ from 1 in its last bits.
    cosine: NDArray[np.float64] = np.clip(np.round(unit @ unit.T, 12), 0, 1)
    # A text without words equals only itself.
    np.fill_diagonal(cosine, 1.0)
    return cosine


# Our choice; the search recipe of verl-agent sets 0.9 for its own ratio.
TFIDF = Identity("tfidf", "TF-IDF", tfidf, threshold=0.9)
