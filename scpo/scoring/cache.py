"""Cache of the pairs scored in a training step, which the diagnostics of the step score again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scpo.shaping.drive import Scorer, TextPair, checked


class PairCache:
    """Cache in front of a scorer, emptied when a training step begins.

    The scorer's calls then depend only on the step, so a resumed run gets the same scores as an
    uninterrupted one, even from a scorer whose last bits depend on the other pairs of a call.
    Caching across steps would save few pairs (docs/scoring.md), and every checkpoint would have to
    hold the cache. The size of the cache is bounded by the pairs of one step.

    Args:
        scorer: Answers the pairs that are not cached.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self._known: dict[TextPair, np.float32] = {}
        self._before: Counter[str] = Counter()

    @property
    def name(self) -> str:
        """Name of the scorer."""
        return self.scorer.name

    def begin_step(self) -> None:
        """Empty the cache and the counts."""
        self._known.clear()
        self._before = self._counts()

    def score(self, pairs: Sequence[TextPair]) -> NDArray[np.float32]:
        """Similarity of each pair, as the scorer gave it.

        Raises:
            ScorerError: The scorer failed, or did not return a number in [0, 1] for each pair;
                none of its answers is cached.
        """
        # Always in this order, because the composition of a call may change a score's last bits.
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if new:
            self._known.update(zip(new, checked(self.scorer, new), strict=True))
        return np.array([self._known[pair] for pair in pairs], dtype=np.float32)

    def similarities(self, texts: Sequence[str]) -> NDArray[np.float32] | None:
        """Similarities of all pairs of texts, neither checked nor cached.

        Returns:
            ``(texts, texts)``; None for a scorer that only scores given pairs.
        """
        all_pairs = getattr(self.scorer, "similarities", None)
        return None if all_pairs is None else all_pairs(texts)

    def report(self) -> dict[str, float]:
        """Statistics of the scorer since the step began, for the timing log.

        ``scpo/pairs_truncated``: share of the scored pairs with a truncated text, for scorers that
        count these; ``scpo/scorer_crashes``: number of crashes of the scorer's process, if any.
        """
        new = self._counts() - self._before
        report = {}
        if new["computed"]:
            report["scpo/pairs_truncated"] = new["truncated"] / new["computed"]
        if new["crashes"]:
            report["scpo/scorer_crashes"] = float(new["crashes"])
        return report

    def _counts(self) -> Counter[str]:
        return Counter(getattr(self.scorer, "counts", {}))
