"""Scorers without a model: text equality and character overlap.

Compared with them, a neural scorer shows what a model of meaning adds.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ScorerError
from scpo.installed import install_command
from scpo.schema.scorer import ExactScorer, LexicalScorer


class Exact:
    """1 for equal texts, 0 for others.

    The default of ``scale=study``: in texts made from templates, texts that differ in one word
    differ in meaning, and the credit rule is studied without the errors of a scorer.
    """

    def __init__(self, config: ExactScorer) -> None:
        self.name = config.identity

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Similarity of each pair."""
        return np.fromiter(
            (first == second for first, second in pairs), dtype=np.float32, count=len(pairs)
        )


class Lexical:
    """1 - d / (|a| + |b|), d the number of inserted and deleted characters (rapidfuzz's ``ratio``).

    Symmetric, and 1 for two empty texts.

    Raises:
        ScorerError: rapidfuzz is not installed.
    """

    def __init__(self, config: LexicalScorer) -> None:
        try:
            from rapidfuzz.distance import Indel
        except ImportError as error:
            raise ScorerError(
                f"the lexical scorer needs rapidfuzz: {install_command('local')}"
            ) from error
        self.name = config.identity
        self._similarity = Indel.normalized_similarity

    def score(self, pairs: Sequence[tuple[str, str]]) -> NDArray[np.float32]:
        """Similarity of each pair."""
        return np.fromiter(
            (self._similarity(*pair) for pair in pairs), dtype=np.float32, count=len(pairs)
        )
