"""Identity by the run's scorer (exact, lexical, MiniLM, a reranker) and a threshold."""

import numpy as np

from scpo.states.identity import Comparison, Identity, Similarity, Visits, leader_labels, leaders_in
from scpo.steps import IntArray


def scored(visits: Visits, comparison: Comparison) -> IntArray:
    """Leader clusters of the scorer's similarity, the leader's text first.

    A scorer with a method ``similarities(texts)``, all pairs at once, is asked that way: sentence
    encoders embed each text once. Others are asked for the pairs of a text with the leaders so far.

    Raises:
        ConfigError: Scorer or threshold is None.
    """
    scorer = comparison.needed_scorer()
    threshold = comparison.needed_threshold()
    return leader_labels(visits, lambda texts: _leaders(texts, scorer, threshold))


def _leaders(texts: list[str], scorer: Similarity, threshold: float) -> list[int]:
    """Index of each text's leader: the first earlier one that it is similar to, or itself."""
    all_pairs = getattr(scorer, "similarities", None)
    matrix = None if all_pairs is None else all_pairs(texts)
    if matrix is not None:
        return leaders_in(matrix, threshold)

    # Each pair costs a reranker's forward pass, so that texts are compared only with leaders.
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


# Table 4's theta.
SCORER = Identity("scorer", "scorer", scored, threshold=0.6, requires=frozenset({"scorer"}))
