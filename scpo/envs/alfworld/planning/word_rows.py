"""Thousands of short rows of words (operators, atoms) in a few bytes each, and as JSON."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

from pydantic import PlainSerializer, PlainValidator

Atom = tuple[str, ...]
"""A predicate or action and its arguments, in lower case as the translator writes them."""


@dataclass(frozen=True)
class NameTable:
    """Rows of words; ``table[i]`` is a tuple of words.

    A game has some 2800 operators with names of 130 characters: 0.5 MB as text, 30 kB here.

    Attributes:
        words: All words; number 0 is the empty word that fills up short rows.
        width: Words per row.
        codes: Numbers of the words, row after row.
    """

    words: tuple[str, ...]
    width: int
    codes: Annotated[Sequence[int], PlainValidator(partial(array, "H")), PlainSerializer(list)]

    @classmethod
    def of(cls, rows: Iterable[Atom]) -> NameTable:
        """Build a table."""
        rows = list(rows)
        width = max(map(len, rows), default=1)
        numbers = {"": 0}
        codes = array("H")
        for row in rows:
            codes.extend(numbers.setdefault(word, len(numbers)) for word in (*row, *[""] * (width - len(row))))
        return cls(tuple(numbers), width, codes)

    def __len__(self) -> int:
        return len(self.codes) // self.width

    def __getitem__(self, row: int) -> Atom:
        codes = self.codes[row * self.width : (row + 1) * self.width]
        return tuple([self.words[code] for code in codes if code])

    def __iter__(self) -> Iterator[Atom]:
        return (self[row] for row in range(len(self)))
