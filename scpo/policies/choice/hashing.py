"""Hashes of words and of joined columns: how features become rows of a table."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Names = tuple[str, ...]
"""The columns that a feature joins."""

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # of Fibonacci hashing; odd, so that no bit is lost
_SHIFT = np.uint64(29)


@functools.lru_cache(maxsize=65536)
def text_hash(text: str) -> int:
    """64 bits that follow from the text; 0 for none."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") if text else 0


def bucket(columns: Mapping[str, Hashes], names: Names, number: int, buckets: int) -> NDArray[np.int64]:
    """Rows, from 1 on, of a table of ``buckets`` for feature ``number``, which joins these columns; 0 is none."""
    return (joined([columns[name] for name in names], number) % np.uint64(buckets - 1)).astype(np.int64) + 1


def plain_features(columns: Mapping[str, Hashes], features: Iterable[Names], buckets: int) -> list[NDArray[np.int64]]:
    """Rows of a table for features that are numbered from 1 on, one after another."""
    return [bucket(columns, names, number, buckets) for number, names in enumerate(features, 1)]


def joined(columns: Sequence[Hashes], start: int = 0) -> Hashes:
    """One hash of several numbers in order; multiplications wrap around."""
    joined = np.full(len(columns[0]), start, dtype=np.uint64)
    for column in columns:
        joined = (joined ^ column) * _MULTIPLIER
        joined ^= joined >> _SHIFT
    return joined * _MULTIPLIER ^ joined >> _SHIFT
