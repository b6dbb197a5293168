import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.errors import ScorerError
from scpo.scoring.cache import LeastRecentlyUsed, PairCache
from tests.support.step_batches import TableScorer

TABLE = {("a", "b"): 0.25, ("b", "a"): 0.75, ("a", "a"): 1.0, ("ab", "c"): 0.5, ("a", "bc"): 0.125}


def test_a_known_pair_is_not_asked_again_and_its_order_matters():
    cache = PairCache(TableScorer(TABLE))
    assert cache.score([("a", "b")]).tolist() == [0.25]
    assert cache.score([("b", "a"), ("a", "b"), ("a", "a")]).tolist() == [0.75, 0.25, 1.0]
    assert cache.scorer.asked == [[("a", "b")], [("b", "a"), ("a", "a")]]


def test_a_pair_that_is_asked_twice_in_a_call_is_scored_once():
    cache = PairCache(TableScorer(TABLE))
    assert cache.score([("a", "b"), ("b", "a"), ("a", "b")]).tolist() == [0.25, 0.75, 0.25]
    assert cache.scorer.asked == [[("a", "b"), ("b", "a")]]


def test_texts_that_read_the_same_joined_are_different_pairs():
    assert PairCache(TableScorer(TABLE)).score([("ab", "c"), ("a", "bc")]).tolist() == [0.5, 0.125]


def test_an_entry_belongs_to_one_scorer():
    cache = PairCache(TableScorer({("a", "b"): 0.25}))
    cache.score([("a", "b")])
    cache.scorer = TableScorer({("a", "b"): 0.5})
    cache.scorer.name = "another table"
    assert cache.score([("a", "b")]).tolist() == [0.5]


def test_a_score_of_zero_is_known_too():
    cache = PairCache(TableScorer(default=0.0))
    cache.score([("a", "b")])
    cache.score([("a", "b")])
    assert len(cache.scorer.asked) == 1


def test_the_oldest_entries_are_forgotten():
    recent = LeastRecentlyUsed(2)
    for key, value in ("a", 1), ("b", 2):
        recent.keep(key, value)
    assert recent.find("a") == 1
    recent.keep("c", 3)
    assert list(recent) == ["a", "c"]
    assert recent.find("b") is None


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("abc")), max_size=8)), st.integers(1, 6))
def test_answers_do_not_depend_on_the_capacity(calls, capacity):
    table = {pair: np.float32(i / 6) for i, pair in enumerate(itertools.product("ab", "abc"))}
    cache = PairCache(TableScorer(table), capacity)
    for pairs in calls:
        assert cache.score(pairs).tolist() == [table[pair] for pair in pairs]
        assert len(cache._scores) <= capacity


def test_no_pairs_no_scores():
    cache = PairCache(TableScorer())
    assert cache.score([]).shape == (0,)
    assert not cache.scorer.asked


def test_half_a_surrogate_is_a_text_like_any_other():
    assert PairCache(TableScorer({("\ud800", "x"): 0.5})).score([("\ud800", "x")]).tolist() == [0.5]


def test_bad_answers_are_refused_and_not_kept():
    cache = PairCache(TableScorer({("a", "b"): np.nan}))
    for _ in range(2):
        with pytest.raises(ScorerError, match="gave nan"):
            cache.score([("a", "b")])
    assert len(cache.scorer.asked) == 2
    assert cache.report() == {"scpo/pairs_computed": 0}


def test_the_report_counts_since_the_last_one():
    cache = PairCache(TableScorer(TABLE))
    assert cache.report() == {"scpo/pairs_computed": 0}
    cache.score([("a", "b"), ("b", "a"), ("a", "b")])
    assert cache.report() == {"scpo/pairs_computed": 2, "scpo/cache_hit_rate": 1 / 3}
    cache.score([("a", "b")])
    assert cache.report() == {"scpo/pairs_computed": 0, "scpo/cache_hit_rate": 1}


def test_the_report_says_how_many_pairs_were_truncated():
    scorer = TableScorer(TABLE)
    scorer.counts = {}
    cache = PairCache(scorer)
    cache.score([("a", "b"), ("b", "a")])
    scorer.counts = {"computed": 2, "truncated": 1}
    assert cache.report() == {"scpo/pairs_computed": 2, "scpo/cache_hit_rate": 0, "scpo/pairs_truncated": 0.5}
