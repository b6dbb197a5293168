"""Lucene's English text analysis (Anserini's default): what the original's search engine makes of a text.

Standard tokens (UAX #29 words), possessive 's removed, lower case, 33 stop words, Porter's stemmer with the extensions
of its author's reference implementation.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

STOP_WORDS = frozenset(
    str.split(
        "a an and are as at be but by for if in into is it no not of on or such that the their then there these they "
        "this to was will with"
    )
)
MAX_TOKEN = 255  # longer tokens are cut into pieces
APOSTROPHES = "'\u2019\uff07"

# The grammar of Lucene's StandardTokenizer, written with the properties of UAX #29. `X` is what a character may drag
# along; letters join over `.`, `'`, `:` and numbers over `.`, `,`, `'`, `;`.
_X = r"[\p{WB=Extend}\p{WB=Format}\p{WB=ZWJ}]*+"
_JOIN = rf"\p{{WB=ExtendNumLet}}{_X}"
_NUMBER = (
    rf"\p{{WB=Numeric}}{_X}"
    rf"(?:(?:(?:{_JOIN})*+|[\p{{WB=MidNum}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{_X})\p{{WB=Numeric}}{_X})*"
)
_LETTER = rf"[\p{{WB=ALetter}}\p{{WB=Hebrew_Letter}}]{_X}"
_LETTERS = (
    rf"{_LETTER}"
    rf"(?:(?:(?:{_JOIN})*+|[\p{{WB=MidLetter}}\p{{WB=MidNumLet}}\p{{WB=Single_Quote}}]{_X}){_LETTER})*"
)
_KATAKANA = rf"\p{{WB=Katakana}}{_X}(?:(?:{_JOIN})*+\p{{WB=Katakana}}{_X})*"
_RUN = rf"(?:{_KATAKANA}|(?:{_NUMBER}|{_LETTERS})+)"
_WORD = rf"(?:{_JOIN})*+{_RUN}(?:(?:{_JOIN})+{_RUN})*(?:{_JOIN})*+"
_NO_WORD = rf"(?:{_JOIN})++"  # consumed at once, so that a long run of underscores takes linear time
_IDEOGRAPH = rf"[\p{{Han}}\p{{Hiragana}}]{_X}"
_COMPLEX = rf"(?:\p{{Line_Break=Complex_Context}}{_X})+"  # Thai, Lao, Khmer, Myanmar: a run is one token
# Extended_Pictographic as of Unicode 12.1, which Lucene 9 is built on; later versions dropped ★ and others.
_PICTOGRAPHS = (
    "a9 ae 203c 2049 2122 2139 2194-2199 21a9-21aa 231a-231b 2328 2388 23cf 23e9-23f3 23f8-23fa 24c2 25aa-25ab 25b6 "
    "25c0 25fb-25fe 2600-2605 2607-2612 2614-2685 2690-2705 2708-2712 2714 2716 271d 2721 2728 2733-2734 2744 2747 "
    "274c 274e 2753-2755 2757 2763-2767 2795-2797 27a1 27b0 27bf 2934-2935 2b05-2b07 2b1b-2b1c 2b50 2b55 3030 303d "
    "3297 3299 1f000-1f0ff 1f10d-1f10f 1f12f 1f16c-1f171 1f17e-1f17f 1f18e 1f191-1f19a 1f1ad-1f1e5 1f201-1f20f 1f21a "
    "1f22f 1f232-1f23a 1f23c-1f23f 1f249-1f3fa 1f400-1f53d 1f546-1f64f 1f680-1f6ff 1f774-1f77f 1f7d5-1f7ff "
    "1f80c-1f80f 1f848-1f84f 1f85a-1f85f 1f888-1f88f 1f8ae-1f8ff 1f90c-1f93a 1f93c-1f945 1f947-1fffd"
)
_PICTURE = f"[{''.join(re.sub(r'[0-9a-f]+', lambda m: chr(int(m[0], 16)), r) for r in _PICTOGRAPHS.split())}]"
_PICTURE += r"[\p{Emoji_Modifier}\ufe0f]*"
_EMOJI = rf"{_PICTURE}(?:\u200d{_PICTURE})*|\p{{Regional_Indicator}}{{2}}|[0-9\#*]\ufe0f?\u20e3"


@functools.cache
def _token_pattern() -> Callable[[str], list[str]]:
    import regex  # type: ignore[import-untyped]

    pattern = regex.compile(f"({_EMOJI}|{_IDEOGRAPH}|{_COMPLEX}|{_WORD})|{_NO_WORD}", regex.V1)
    return pattern.findall  # type: ignore[no-any-return]


@functools.cache
def _stemmer() -> Callable[[str], str]:
    from nltk.stem.porter import PorterStemmer  # type: ignore[import-untyped]

    return functools.lru_cache(2**16)(PorterStemmer(mode=PorterStemmer.MARTIN_EXTENSIONS).stem)


def tokens(text: str) -> list[str]:
    """The words of ``text`` as they stand."""
    found = filter(None, _token_pattern()(text))
    return [word[start : start + MAX_TOKEN] for word in found for start in range(0, len(word), MAX_TOKEN)]


def analyse(text: str) -> list[str]:
    """The index terms of ``text``, in order."""
    words = (_without_possessive(word).lower() for word in tokens(text))
    stem = _stemmer()
    return [stem(word) if len(word) > 2 else word for word in words if word not in STOP_WORDS]


def _without_possessive(word: str) -> str:
    return word[:-2] if len(word) >= 2 and word[-1] in "sS" and word[-2] in APOSTROPHES else word
