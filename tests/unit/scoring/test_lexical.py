import sys

import numpy as np
import pytest

from scpo.errors import ScorerError
from scpo.schema.scorer import ExactScorer, LexicalScorer
from scpo.scoring import make_scorer

SCORER = make_scorer(ExactScorer(kind="exact", name="exact"))


def test_only_equal_texts_are_similar():
    scores = SCORER.score([("a", "a"), ("a", "b"), ("a", "A"), ("a", "a ")])
    assert scores.dtype == np.float32
    assert scores.tolist() == [1, 0, 0, 0]


def test_exact_gives_no_scores_without_pairs_and_has_a_name():
    assert SCORER.score([]).shape == (0,)
    assert SCORER.name == "exact"


CONFIG = LexicalScorer(kind="lexical", name="lexical")


def test_it_is_the_share_of_characters_in_common():
    pytest.importorskip("rapidfuzz", reason="needs rapidfuzz: make setup")
    scores = make_scorer(CONFIG).score([("drawer 1", "drawer 1"), ("abc", "xyz"), ("drawer 1", "drawer 2"), ("", "a")])
    assert scores.dtype == np.float32
    assert scores.tolist() == [1, 0, np.float32(1 - 2 / 16), 0]


def test_no_pairs_no_scores_and_a_name():
    pytest.importorskip("rapidfuzz", reason="needs rapidfuzz: make setup")
    assert make_scorer(CONFIG).score([]).shape == (0,)
    assert make_scorer(CONFIG).name == "lexical"


def test_a_missing_package_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    with pytest.raises(ScorerError, match=r"pip install -c constraints.txt -e .\.\[local\]"):
        make_scorer(CONFIG)
