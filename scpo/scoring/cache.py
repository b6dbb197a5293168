"""What was scored before, in memory: step texts repeat from batch to batch, so a pair is often known already."""

from __future__ import annotations

import hashlib
from collections import Counter, OrderedDict
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from scpo.shaping.drive import Scorer, TextPair, checked

CACHED_PAIRS = 262_144
"""Scores kept, least recently used out first: about 45 MB."""

K = TypeVar("K")
V = TypeVar("V")


class LeastRecentlyUsed(OrderedDict[K, V]):
    """A dict that keeps ``capacity`` entries and forgets the least recently used."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity

    def find(self, key: K) -> V | None:
        """The value, which is now the most recently used; None: not known."""
        value = self.get(key)
        if value is not None:
            self.move_to_end(key)
        return value

    def keep(self, key: K, value: V) -> None:
        """Remember a value, at the expense of the oldest."""
        self[key] = value
        self.move_to_end(key)
        while len(self) > self.capacity:
            self.popitem(last=False)


class PairCache:
    """Answers pairs that were scored before from memory, by scorer and ordered pair, and asks ``scorer`` for the rest.

    An entry is found by a 128-bit hash of the scorer's name and both texts, so that its size does not depend on theirs.
    It is not written to disk: the scores of another process are never trusted.

    Attributes:
        counts: Since the start: ``asked`` pairs that were answered, and how many of them were ``known``.
    """

    def __init__(self, scorer: Scorer, capacity: int = CACHED_PAIRS) -> None:
        self.scorer = scorer
        self.counts: Counter[str] = Counter()
        self._reported: Counter[str] = Counter()
        self._scores: LeastRecentlyUsed[bytes, np.float32] = LeastRecentlyUsed(capacity)

    @property
    def name(self) -> str:
        """The scorer's."""
        return self.scorer.name

    def score(self, pairs: Sequence[TextPair]) -> NDArray[np.float32]:
        """Similarity of each pair, as the scorer gave it.

        Raises:
            ScorerError: The scorer gave something else than similarities in [0, 1]; nothing of it is kept.
        """
        keys = [self._key(pair) for pair in pairs]
        known = {key: score for key in keys if (score := self._scores.find(key)) is not None}
        new = {key: pair for key, pair in zip(keys, pairs, strict=True) if key not in known}
        if new:
            known.update(zip(new, checked(self.scorer, list(new.values())), strict=True))
            for key in new:
                self._scores.keep(key, known[key])
        self.counts.update(asked=len(pairs), known=len(pairs) - len(new))
        return np.array([known[key] for key in keys], dtype=np.float32)

    def report(self) -> dict[str, float]:
        """Counts since the last report, for the timing log: after a resume the memory is cold and they differ.

        ``scpo/cache_hit_rate``: share of the pairs asked for that were known; ``scpo/pairs_computed``: the others;
        ``scpo/pairs_truncated``: the share of these of which a side was cut, for scorers that say so;
        ``scpo/scorer_crashes``: of its process, if it has one and it crashed.
        """
        counts = self.counts + Counter(getattr(self.scorer, "counts", {}))
        new, self._reported = counts - self._reported, counts
        report = {"scpo/pairs_computed": float(new["asked"] - new["known"])}
        if new["asked"]:
            report["scpo/cache_hit_rate"] = new["known"] / new["asked"]
        if new["computed"]:
            report["scpo/pairs_truncated"] = new["truncated"] / new["computed"]
        if new["crashes"]:
            report["scpo/scorer_crashes"] = float(new["crashes"])
        return report

    def _key(self, pair: TextPair) -> bytes:
        digest = hashlib.blake2b(digest_size=16)
        for text in (self.name, *pair):
            encoded = text.encode("utf-8", "surrogatepass")
            digest.update(len(encoded).to_bytes(8, "little") + encoded)
        return digest.digest()
