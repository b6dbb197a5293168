"""BM25 search with Lucene's English text analysis (Anserini's default).

Analysis: standard tokens (UAX #29 words), possessive 's removed, lower case, 33 stop words,
Porter's stemmer with the extensions of its author's reference implementation.

Scores are computed as Lucene does, with document lengths in one byte and float32 sums; ties are
broken by document id:

score(q, d) = Σ_t w_t − w_t / (1 + f_td / (k1 (1 − b + b |d| / avg))),
w_t = n_t · ln(1 + (N − df_t + ½) / (df_t + ½))
"""

from __future__ import annotations

import functools
import heapq
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from collections.abc import Callable

STOP_WORDS = frozenset(
    str.split(
        "a an and are as at be but by for if in into is it no not of on or such that the their "
        "then there these they this to was will with"
    )
)

# Largest length of a token; longer ones are cut into pieces, as by Lucene's StandardTokenizer.
MAX_TOKEN = 255

# Apostrophes before a possessive s: Lucene's EnglishPossessiveFilter knows these three.
APOSTROPHES = "'\u2019\uff07"

# The grammar of Lucene's StandardTokenizer, written with the properties of UAX #29. `_X` matches
# the marks that belong to the character before them. `.`, `'` and `:` do not separate letters; `.`,
# `,`, `'` and `;` do not separate digits.
_X = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+"
_JOIN = rf"\p{{WB=ExtendNumLet}}{_X}"
_NUMBER = (
    rf"\p{{WB=Numeric}}{_X}"
    rf"(?:(?:(?:{_JOIN})*+|[\p{{WB=MidNum}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{_X})"
    rf"\p{{WB=Numeric}}{_X})*"
)
_LETTER = rf"[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]{_X}"
_LETTERS = (
    rf"{_LETTER}"
    rf"(?:(?:(?:{_JOIN})*+|[\p{{WB=MidLetter}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{_X})"
    rf"{_LETTER})*"
)
_KATAKANA = rf"\p{{WB=Katakana}}{_X}(?:(?:{_JOIN})*+\p{{WB=Katakana}}{_X})*"
_RUN = rf"(?:{_KATAKANA}|(?:{_NUMBER}|{_LETTERS})+)"
_WORD = rf"(?:{_JOIN})*+{_RUN}(?:(?:{_JOIN})+{_RUN})*(?:{_JOIN})*+"
_NO_WORD = (
    # Possessive, so that a long run of underscores takes linear time.
    rf"(?:{_JOIN})++"
)
_IDEOGRAPH = rf"[\p{{Han}}\p{{Hiragana}}]{_X}"
_COMPLEX = (
    # Thai, Lao, Khmer, Myanmar: a run is one token.
    rf"(?:\p{{Line_Break=Complex_Context}}{_X})+"
)

# Extended_Pictographic as of Unicode 12.1, which Lucene 9 is built on; later versions dropped ★ and
# others.
_PICTOGRAPHS = (
    "a9 ae 203c 2049 2122 2139 2194-2199 21a9-21aa 231a-231b 2328 2388 23cf 23e9-23f3 23f8-23fa "
    "24c2 25aa-25ab 25b6 25c0 25fb-25fe 2600-2605 2607-2612 2614-2685 2690-2705 2708-2712 2714 "
    "2716 271d 2721 2728 2733-2734 2744 2747 274c 274e 2753-2755 2757 2763-2767 2795-2797 27a1 "
    "27b0 27bf 2934-2935 2b05-2b07 2b1b-2b1c 2b50 2b55 3030 303d 3297 3299 1f000-1f0ff 1f10d-1f10f "
    "1f12f 1f16c-1f171 1f17e-1f17f 1f18e 1f191-1f19a 1f1ad-1f1e5 1f201-1f20f 1f21a 1f22f "
    "1f232-1f23a 1f23c-1f23f 1f249-1f3fa 1f400-1f53d 1f546-1f64f 1f680-1f6ff 1f774-1f77f "
    "1f7d5-1f7ff 1f80c-1f80f 1f848-1f84f 1f85a-1f85f 1f888-1f88f 1f8ae-1f8ff 1f90c-1f93a "
    "1f93c-1f945 1f947-1fffd"
)

# The characters are substituted before the spaces between ranges are removed.
_RANGES = re.sub(r"[0-9a-f]+", lambda code: chr(int(code[0], 16)), _PICTOGRAPHS).replace(" ", "")
_PICTURE = f"[{_RANGES}]" + r"[\p{Emoji_Modifier}\ufe0f]*"
_EMOJI = rf"{_PICTURE}(?:\u200d{_PICTURE})*|\p{{Regional_Indicator}}{{2}}|[0-9\#*]\ufe0f?\u20e3"


@functools.cache
def _token_pattern() -> Callable[[str], list[str]]:
    """Compiled tokenizer; the package ``regex``, because ``re`` lacks the properties of Unicode."""
    import regex  # type: ignore[import-untyped]

    pattern = regex.compile(f"({_EMOJI}|{_IDEOGRAPH}|{_COMPLEX}|{_WORD})|{_NO_WORD}", regex.V1)
    return pattern.findall  # type: ignore[no-any-return]


@functools.cache
def _stemmer() -> Callable[[str], str]:
    """Porter's stemmer, cached by word: titles share most of theirs."""
    from nltk.stem.porter import PorterStemmer  # type: ignore[import-untyped]

    return functools.lru_cache(2**16)(PorterStemmer(mode=PorterStemmer.MARTIN_EXTENSIONS).stem)


def tokens(text: str) -> list[str]:
    """Words of ``text``, unchanged."""
    pieces = []
    # Runs without a word match the pattern too, as an empty text.
    for word in filter(None, _token_pattern()(text)):
        pieces += [word[start : start + MAX_TOKEN] for start in range(0, len(word), MAX_TOKEN)]
    return pieces


def analyse(text: str) -> list[str]:
    """The index terms of ``text``, in order.

    Stop words are removed before stemming, as in Lucene's chain of filters; words of one or two
    letters have no stem.
    """
    words = (_without_possessive(word).lower() for word in tokens(text))
    stem = _stemmer()
    return [stem(word) if len(word) > 2 else word for word in words if word not in STOP_WORDS]


def _without_possessive(word: str) -> str:
    if len(word) >= 2 and word[-1] in "sS" and word[-2] in APOSTROPHES:
        return word[:-2]
    return word


# Anserini's defaults.
K1, B = np.float32(0.9), np.float32(0.4)

# Lengths below it are stored exactly, in the codes that Lucene's SmallFloat leaves over.
EXACT_LENGTHS = 24


@dataclass(frozen=True, slots=True)
class Posting:
    """Documents that hold a term.

    Attributes:
        document: Their numbers, ascending.
        frequency: How often each of them holds it; in float32, the type of Lucene's sums.
        idf: The term's inverse document frequency.
    """

    document: NDArray[np.int32]
    frequency: NDArray[np.float32]
    idf: np.float32


class SearchIndex:
    """An inverted index over ``documents``: id to text.

    The types of all intermediate results are Lucene's: equal scores are common among products of
    one kind, and a last bit would decide which of them is among the 50 that a search returns.
    """

    def __init__(self, documents: Mapping[str, str]) -> None:
        # Ties go by id, so documents are numbered in that order.
        self._ids = sorted(documents)
        counts = [Counter(analyse(documents[name])) for name in self._ids]
        lengths = [sum(count.values()) for count in counts]
        filled = sum(length > 0 for length in lengths)
        average = np.float32(sum(lengths) / max(filled, 1))
        length_D = np.array([quantised(length) for length in lengths], dtype=np.float32)
        self._inverse_D = np.float32(1) / (K1 * ((np.float32(1) - B) + B * length_D / average))
        self._postings = _postings(counts, filled)

    def search(self, query: str, hits: int) -> list[str]:
        """Ids of the best ``hits`` documents that share a term with ``query``, best first."""
        # Lucene adds the float32 parts in double precision.
        score_D = np.zeros(len(self._ids))
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
    """Postings by term.

    Args:
        counts: Terms of each document, in the order of document numbers.
        filled: Number of documents with any term; Lucene does not count empty ones.
    """
    documents: dict[str, list[int]] = defaultdict(list)
    frequencies: dict[str, list[int]] = defaultdict(list)
    for document, count in enumerate(counts):
        for term, frequency in count.items():
            documents[term].append(document)
            frequencies[term].append(frequency)
    postings = {}
    for term, found in documents.items():
        # Lucene's form of the inverse document frequency, which is never negative.
        odds = (filled - len(found) + 0.5) / (len(found) + 0.5)
        postings[term] = Posting(
            np.array(found, dtype=np.int32),
            np.array(frequencies[term], dtype=np.float32),
            np.float32(math.log(1 + odds)),
        )
    return postings


def quantised(length: int) -> int:
    """Document length as Lucene stores it in one byte (``SmallFloat.intToByte4``).

    Of the part above 24, four significant bits are kept, so lengths below 40 are exact and longer
    documents of nearly equal length score alike.
    """
    if length < EXACT_LENGTHS:
        return length
    rest = length - EXACT_LENGTHS
    shift = max(rest.bit_length() - 4, 0)
    return EXACT_LENGTHS + (rest >> shift << shift)
