import numpy as np

from scpo.schema.scorer import ExactScorer
from scpo.scoring import make_scorer

SCORER = make_scorer(ExactScorer(kind="exact", name="exact"))


def test_only_equal_texts_are_similar():
    scores = SCORER.score([("a", "a"), ("a", "b"), ("a", "A"), ("a", "a ")])
    assert scores.dtype == np.float32
    assert scores.tolist() == [1, 0, 0, 0]


def test_no_pairs_no_scores_and_a_name():
    assert SCORER.score([]).shape == (0,)
    assert SCORER.name == "exact"
