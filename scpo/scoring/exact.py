"""The scorer that knows only equality; as a control it shows what semantic similarity adds."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scpo.schema.scorer import ExactScorer


class Exact:
    """1 for equal texts, 0 for others."""

    def __init__(self, config: ExactScorer) -> None:
        self.name = config.identity

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Similarity of each pair."""
        return np.fromiter((first == second for first, second in pairs), dtype=np.float32, count=len(pairs))
