from itertools import chain

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.errors import ScorerError
from scpo.scoring.cache import PairCache
from tests.support.step_batches import CompanyScorer, TableScorer

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


def test_a_step_begins_with_nothing_known():
    cache = PairCache(TableScorer(TABLE))
    for _ in range(2):
        cache.begin_step()
        cache.score([("a", "b")])
        cache.score([("b", "a"), ("a", "b")])
    assert cache.scorer.asked == [[("a", "b")], [("b", "a")]] * 2


def test_a_score_of_zero_is_known_too():
    cache = PairCache(TableScorer(default=0.0))
    cache.score([("a", "b")])
    cache.score([("a", "b")])
    assert len(cache.scorer.asked) == 1


@given(st.lists(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("abc")), max_size=8)), st.data())
def test_within_a_step_an_answer_is_kept_and_a_repeated_step_gets_the_same_ones(calls, data):
    cache = PairCache(CompanyScorer(default=0.5))
    for _ in range(data.draw(st.integers(0, 3), label="steps before")):
        cache.score([("a", "a"), ("b", "b")][: data.draw(st.integers(0, 2))])
        cache.begin_step()

    def step():
        cache.begin_step()
        return [cache.score(pairs).tolist() for pairs in calls]

    first = step()
    assert first == step()
    pairs, scores = chain.from_iterable(calls), chain.from_iterable(first)
    answers = set(zip(pairs, scores, strict=True))
    assert len(answers) == len({pair for pair, _ in answers})


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


def test_the_report_says_how_many_pairs_were_truncated_since_the_step_began():
    scorer = TableScorer(TABLE)
    scorer.counts = {}
    cache = PairCache(scorer)
    assert cache.report() == {}
    scorer.counts = {"computed": 2, "truncated": 1}
    assert cache.report() == {"scpo/pairs_truncated": 0.5}
    cache.begin_step()
    assert cache.report() == {}
    scorer.counts = {"computed": 6, "truncated": 2, "crashes": 1}
    assert cache.report() == {"scpo/pairs_truncated": 0.25, "scpo/scorer_crashes": 1}


def test_a_scorer_that_does_not_count_has_nothing_to_report():
    cache = PairCache(TableScorer(TABLE))
    cache.score([("a", "b")])
    assert cache.report() == {}
