"""BM25 exactly as Lucene computes it: lengths in one byte, scores in float32, ties by document id.

score(q, d) = Σ_t w_t − w_t / (1 + f_td / (k1 (1 − b + b |d| / avg))),  w_t = n_t · ln(1 + (N − df_t + ½) / (df_t + ½))
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scpo.envs.webshop.catalogue.lucene_text import analyse

K1, B = np.float32(0.9), np.float32(0.4)  # Anserini's defaults
EXACT_LENGTHS = 24  # lengths below are stored exactly; Lucene's SmallFloat has that many codes left over


@dataclass(frozen=True, slots=True)
class Posting:
    """Documents that hold a term, how often, and the term's weight."""

    document: NDArray[np.int32]
    frequency: NDArray[np.float32]
    idf: np.float32


class SearchIndex:
    """An inverted index over ``documents``: id to text."""

    def __init__(self, documents: Mapping[str, str]) -> None:
        self._ids = sorted(documents)  # ties go by id, so documents are numbered in that order
        counts = [Counter(analyse(documents[name])) for name in self._ids]
        lengths = [sum(count.values()) for count in counts]
        filled = sum(length > 0 for length in lengths)
        average = np.float32(sum(lengths) / max(filled, 1))
        length_D = np.array([quantised(length) for length in lengths], dtype=np.float32)
        self._inverse_D = np.float32(1) / (K1 * ((np.float32(1) - B) + B * length_D / average))
        self._postings = _postings(counts, filled)

    def search(self, query: str, hits: int) -> list[str]:
        """Ids of the best ``hits`` documents that share a term with ``query``, best first."""
        score_D = np.zeros(len(self._ids))  # Lucene adds the float32 parts in double precision
        for term, repeats in Counter(analyse(query)).items():
            if posting := self._postings.get(term):
                weight = posting.idf * np.float32(repeats)
                share = np.float32(1) + posting.frequency * self._inverse_D[posting.document]
                score_D[posting.document] += weight - weight / share
        rounded_D = score_D.astype(np.float32)
        found = np.nonzero(rounded_D)[0]
        best = heapq.nsmallest(hits, zip((-rounded_D[found]).tolist(), found.tolist(), strict=True))
        return [self._ids[document] for _, document in best]


def _postings(counts: list[Counter[str]], filled: int) -> dict[str, Posting]:
    documents: dict[str, list[int]] = defaultdict(list)
    frequencies: dict[str, list[int]] = defaultdict(list)
    for document, count in enumerate(counts):
        for term, frequency in count.items():
            documents[term].append(document)
            frequencies[term].append(frequency)
    return {
        term: Posting(
            np.array(found, dtype=np.int32),
            np.array(frequencies[term], dtype=np.float32),
            np.float32(math.log(1 + (filled - len(found) + 0.5) / (len(found) + 0.5))),
        )
        for term, found in documents.items()
    }


def quantised(length: int) -> int:
    """``length`` after Lucene stored it in one byte: exact below 40, then with four significant bits above 24."""
    if length < EXACT_LENGTHS:
        return length
    rest = length - EXACT_LENGTHS
    shift = max(rest.bit_length() - 4, 0)
    return EXACT_LENGTHS + (rest >> shift << shift)
