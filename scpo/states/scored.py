"""Identity by the run's scorer (exact, lexical, MiniLM, a reranker) and a threshold."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ScorerError
from scpo.states.identity import Comparison, Identity, Similarity, Visits, leader_labels, leaders_in
from scpo.steps import IntArray


def scored(visits: Visits, comparison: Comparison) -> IntArray:
    """Leader clusters of the scorer's similarity, the leader's text first.

    If the scorer has a method ``similarities(texts)`` for all pairs at once, it is used: sentence
    encoders embed each text once. Otherwise each text is compared with the leaders so far.

    Raises:
        ConfigError: Scorer or threshold is None.
        ScorerError: The scorer's ``similarities`` returned anything but numbers in [0, 1].
    """
    scorer = comparison.needed_scorer()
    threshold = comparison.needed_threshold()
    return leader_labels(visits, lambda texts: _leaders(texts, scorer, threshold))


def _leaders(texts: list[str], scorer: Similarity, threshold: float) -> list[int]:
    """Index of each text's leader: the first earlier one that it is similar to, or itself."""
    all_pairs = getattr(scorer, "similarities", None)
    matrix = None if all_pairs is None else all_pairs(texts)
    if matrix is not None:
        _check(matrix, texts, scorer)
        return leaders_in(matrix, threshold)

    # Each pair costs a reranker's forward pass, so texts are compared only with leaders.
    leaders: list[int] = []
    chosen: list[int] = []
    for index, text in enumerate(texts):
        scores = (
            scorer.score([(texts[leader], text) for leader in leaders]) if leaders else np.zeros(0)
        )
        near = np.flatnonzero(scores >= threshold)
        chosen.append(leaders[int(near[0])] if len(near) else index)
        if not len(near):
            leaders.append(index)
    return chosen


def _check(matrix: NDArray[Any], texts: list[str], scorer: Similarity) -> None:
    """Refuse anything but a number in [0, 1] for each pair of texts.

    Raises:
        ScorerError: Names the scorer and a pair.
    """
    name = getattr(scorer, "name", type(scorer).__name__)
    if np.shape(matrix) != (len(texts), len(texts)):
        raise ScorerError(
            f"scorer {name!r}: similarities() of {len(texts)} texts gave an array of shape "
            f"{np.shape(matrix)}: expected ({len(texts)}, {len(texts)})"
        )
    # Negated, so that NaN, for which every comparison is false, counts as bad too.
    bad = np.argwhere(~((matrix >= 0) & (matrix <= 1)))
    if len(bad):
        first, second = bad[0]
        raise ScorerError(
            f"scorer {name!r}: similarities() gave {matrix[first, second]} to the pair "
            f"{(texts[first], texts[second])!r}: expected a number in [0, 1]"
        )


# Table 4's theta.
SCORER = Identity("scorer", "scorer", scored, threshold=0.6, requires=frozenset({"scorer"}))
