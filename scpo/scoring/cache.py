"""What was scored before in a training step, in memory: the samples ask again for what the walks read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scpo.shaping.drive import Scorer, TextPair, checked


class PairCache:
    """Answers pairs that were scored before in the same training step from memory, and asks ``scorer`` for the rest.

    It forgets everything when a step begins. What the scorer is asked, and in which calls, is then a function of the
    step alone: a run that was resumed gets the same answers as one that was not, also from a scorer whose last bits
    depend on what else a call asks. Remembering pairs across steps would spare few of them (docs/scoring.md), and then
    every checkpoint would have to hold all that was remembered. The memory holds what one step asks for, no more.
    """

    def __init__(self, scorer: Scorer) -> None:
        self.scorer = scorer
        self._known: dict[TextPair, np.float32] = {}
        self._before: Counter[str] = Counter()

    @property
    def name(self) -> str:
        """The scorer's."""
        return self.scorer.name

    def begin_step(self) -> None:
        """Forget all pairs, and count from here on."""
        self._known.clear()
        self._before = self._counts()

    def score(self, pairs: Sequence[TextPair]) -> NDArray[np.float32]:
        """Similarity of each pair, as the scorer gave it.

        Raises:
            ScorerError: The scorer gave something else than similarities in [0, 1]; nothing of it is kept.
        """
        new = [pair for pair in dict.fromkeys(pairs) if pair not in self._known]
        if new:
            self._known.update(zip(new, checked(self.scorer, new), strict=True))
        return np.array([self._known[pair] for pair in pairs], dtype=np.float32)

    def report(self) -> dict[str, float]:
        """What the scorer did since the step began, for the timing log.

        ``scpo/pairs_truncated``: the share of the pairs that it scored of which a side was cut, for scorers that say
        so; ``scpo/scorer_crashes``: of its process, if it has one and it crashed.
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
