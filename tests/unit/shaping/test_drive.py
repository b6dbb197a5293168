from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.recorded import recorded
from scpo.errors import ScorerError
from scpo.scoring import PairCache
from scpo.shaping.drive import MatchTask, checked, credit_batch
from scpo.shaping.matcher import MATCHERS, MatchRule, match_dense
from scpo.shaping.shaper import shape
from tests.support.step_batches import CompanyScorer, EqualityScorer, TableScorer, shaper_config

RULE = MatchRule(0.6, 0.4)


def task(reference, failed, order=None, group=0):
    return MatchTask(group, tuple(reference), tuple(failed), tuple(range(len(failed)) if order is None else order))


def test_credit_and_pairs_of_a_hand_worked_task():
    scorer = EqualityScorer()
    matched = credit_batch([task("abc", "axbc")], scorer, RULE)
    # a~a; b~x no, back to the start: a~x no; a~b no; a~c no
    assert matched.traces[0].credit_l(4).tolist() == [1, 0, 0, 0]
    assert scorer.asked == [[("a", "a")], [("b", "x")], [("a", "x")], [("a", "b")], [("a", "c")]]
    assert matched.pairs == (12 + 3, 5, 5, 1, 0)


def test_siblings_share_rounds_and_questions():
    scorer = EqualityScorer()
    matched = credit_batch([task("ab", "ab"), task("ab", "ab"), task("ab", "b")], scorer, RULE)
    assert scorer.asked == [[("a", "a"), ("a", "b")], [("b", "b")]]
    assert matched.pairs == (4 + 4 + 2 + 1, 5, 3, 2, 0)
    assert [trace.credit_l(len(t)).tolist() for trace, t in zip(matched.traces, ["ab", "ab", "b"], strict=True)] == [
        [1, 1], [1, 1], [0]
    ]  # fmt: skip


def test_the_dense_driver_scores_every_distinct_pair_in_one_call():
    scorer = EqualityScorer()
    matched = credit_batch([task("ab", "xy"), task("cd", "x", group=1)], scorer, RULE, dense=True)
    assert len(scorer.asked) == 1
    assert matched.pairs.dense == matched.pairs.scored == 4 + 1 + 2 + 1
    assert matched.pairs.asked == 3


def test_the_forward_matcher_needs_no_self_similarity():
    matched = credit_batch([task("ab", "xy")], EqualityScorer(), MatchRule(0.6, 0.4, matcher="forward"), dense=True)
    assert matched.pairs.dense == matched.pairs.scored == 4


@pytest.mark.parametrize("tasks", [[], [task("", "ab")], [task("ab", "")], [task("", "")]])
@pytest.mark.parametrize("dense", [False, True])
def test_nothing_to_match_asks_for_nothing_more_than_it_must(tasks, dense):
    scorer = EqualityScorer()
    matched = credit_batch(tasks, scorer, RULE, dense=dense)
    assert [trace.credited for trace in matched.traces] == [()] * len(tasks)
    assert matched.pairs.asked == 0
    assert dense or not scorer.asked


def test_the_reference_text_comes_first_and_the_earlier_one_within_the_reference():
    table = {("a", "p"): 0.9, ("b", "q"): 0.1, ("a", "b"): 0.8}
    scorer = TableScorer(table)
    credit_batch([task("ab" + "c", "pq")], scorer, RULE)
    assert scorer.asked == [[("a", "p")], [("b", "q")], [("a", "q")]]
    scorer = TableScorer({("a", "p"): 0.9, ("b", "q"): 0.9, ("a", "b"): 0.8})
    credit_batch([task("abc", "pqr")], scorer, RULE)
    assert scorer.asked[2:] == [[("c", "r")], [("a", "b")], [("b", "r")], [("a", "r")]]


def test_seconds_are_split_by_stage():
    matched = credit_batch([task("abc", "abx")], EqualityScorer(), RULE)
    assert set(matched.seconds) == {"scoring", "self_similarity", "matching"}
    assert all(value > 0 for value in matched.seconds.values())


def test_a_walk_at_the_start_has_the_steps_to_come_scored_ahead():
    plain, ahead = EqualityScorer(), EqualityScorer()
    one = [task("abc", "xyab")]
    lazy, speculative = credit_batch(one, plain, RULE), credit_batch(one, ahead, RULE, speculate=True)
    assert plain.asked == [[("a", "x")], [("a", "y")], [("a", "a")], [("b", "b")]]
    assert ahead.asked == [[("a", "x"), ("a", "y"), ("a", "a"), ("a", "b")], [("b", "b")]]
    assert speculative.traces == lazy.traces
    assert lazy.pairs == (12 + 3, 4, 4, 2, 0)
    assert speculative.pairs == (12 + 3, 4, 4, 2, 1)  # nobody came to read (a, b)


def test_steps_are_scored_ahead_in_processing_order_and_never_for_the_forward_match():
    scorer = EqualityScorer()
    credit_batch([task("ab", "xyz", order=(2, 0, 1))], scorer, RULE, speculate=True)
    assert scorer.asked == [[("a", "z"), ("a", "x"), ("a", "y")]]
    scorer = EqualityScorer()
    credit_batch([task("ab", "x")], scorer, MatchRule(0.6, 0.4, matcher="forward"), speculate=True)
    assert scorer.asked == [[("a", "x")], [("b", "x")]]


@st.composite
def text_problems(draw):
    """Tasks over a small vocabulary, so that texts repeat, and a scorer that depends on the order of a pair."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    words = [f"text {i}" for i in range(draw(st.integers(1, 6)))]
    levels = np.array([0.1, 0.6, 0.7, 0.9, 1.0], np.float32)[: draw(st.integers(2, 5))]
    table = {(first, second): rng.choice(levels) for first in words for second in words}
    tasks = []
    for group in range(draw(st.integers(1, 3))):
        reference = rng.choice(words, rng.integers(0, 7)).tolist()
        for _ in range(draw(st.integers(1, 3))):
            failed = rng.choice(words, rng.integers(0, 9)).tolist()
            tasks.append(task(reference, failed, rng.permutation(len(failed)).tolist(), group))
    return tasks, table


@settings(max_examples=1000)
@given(
    problem=text_problems(),
    theta=st.sampled_from([0.6, 0.7, 1.0]),
    matcher=st.sampled_from(sorted(MATCHERS)),
    monotonic=st.booleans(),
    after=st.sampled_from(["stop", "restart"]),
)
def test_lazy_equals_dense_and_the_full_matrix_bit_for_bit(problem, theta, matcher, monotonic, after):
    tasks, table = problem
    rule = MatchRule(theta, 0.4, monotonic, matcher, after)
    lazy = credit_batch(tasks, TableScorer(table), rule)
    dense = credit_batch(tasks, TableScorer(table), rule, dense=True)
    ahead = credit_batch(tasks, TableScorer(table), rule, speculate=True)
    assert lazy.traces == dense.traces == ahead.traces
    assert lazy.pairs.asked == dense.pairs.asked
    assert lazy.pairs.scored <= min(lazy.pairs.asked, dense.pairs.scored)
    assert ahead.pairs[:4] == lazy.pairs[:4]
    assert ahead.pairs.scored + ahead.pairs.speculated <= dense.pairs.scored
    for one, trace in zip(tasks, lazy.traces, strict=True):
        m, length = len(one.reference), len(one.failed)
        similarity = np.array([table[u, v] for u in one.reference for v in one.failed], np.float32).reshape(m, length)
        among = np.array([table[u, v] for u in one.reference for v in one.reference], np.float32).reshape(m, m)
        expected = match_dense(
            similarity, among, theta, 0.4, one.order, monotonic, matcher=matcher, after_full_match=after
        )
        assert np.array_equal(trace.credit_l(length), expected)


@settings(max_examples=200)
@given(problem=text_problems(), first_dense=st.booleans(), speculate=st.booleans())
def test_drivers_with_the_same_answers_give_the_same_credit(problem, first_dense, speculate):
    tasks, table = problem
    cache = PairCache(CompanyScorer(table))
    first = credit_batch(tasks, cache, RULE, dense=first_dense, speculate=speculate)
    second = credit_batch(tasks, cache, RULE, dense=not first_dense)
    assert first.traces == second.traces


@settings(max_examples=200)
@given(problem=text_problems(), theta=st.sampled_from([0.5, 0.65, 0.8]))
def test_company_moves_credit_by_as_much_as_the_scores_where_none_is_near_theta(problem, theta):
    tasks, table = problem
    rule = MatchRule(theta, 0.4)
    lazy, dense = (credit_batch(tasks, CompanyScorer(table), rule, dense=mode) for mode in (False, True))
    bound = 1e-6 * len(table) / (1 - 0.4)
    for one, ours, full in zip(tasks, lazy.traces, dense.traces, strict=True):
        assert ours.walk == full.walk
        assert ours.credit_l(len(one.failed)) == pytest.approx(full.credit_l(len(one.failed)), abs=bound)


@pytest.mark.parametrize(
    ("answers", "complaint"),
    [
        (["0.5", "1"], r"with <U3, the first '0.5': expected numbers in \[0, 1\]"),
        ([0.5 + 1j, 0.5], r"with complex128, the first \(0.5\+1j\): expected numbers"),
        ([None, 0.5], r"with object, the first None: expected numbers"),
        ([0.5], r"with an array of shape \(1,\): expected \(2,\)"),
        ([[0.5], [0.5]], r"with an array of shape \(2, 1\)"),
        ([0.5, np.nan], r"gave nan to the pair \('c', 'd'\)"),
        ([0.5, np.inf], r"gave inf to the pair \('c', 'd'\)"),
        ([-0.01, 0.5], r"gave -0.01 to the pair \('a', 'b'\)"),
        ([0.5, 1.01], r"gave 1.01 to the pair \('c', 'd'\)"),
    ],
)
def test_answers_that_are_no_similarities_are_refused(answers, complaint):
    scorer = Mock(score=lambda pairs: np.array(answers))
    scorer.name = "broken"
    with pytest.raises(ScorerError, match=complaint):
        checked(scorer, [("a", "b"), ("c", "d")])


def test_a_scorer_without_a_name_is_named_by_its_class():
    class Mine:
        def score(self, pairs):
            return [1.7 for _ in pairs]

    with pytest.raises(ScorerError, match=r"scorer 'Mine' gave 1\.7 to the pair"):
        checked(Mine(), [("a", "b")])


def test_a_scorer_that_fails_is_named_with_a_pair():
    scorer = Mock(score=Mock(side_effect=KeyError("vase")))
    scorer.name = "mine"
    message = r"scorer 'mine' failed on 2 pairs, the first of them \('x{57}\.\.\.', 'b'\), with KeyError: 'vase'"
    with pytest.raises(ScorerError, match=message) as caught:
        checked(scorer, [("x" * 90, "b"), ("c", "d")])
    assert isinstance(caught.value.__cause__, KeyError)


def test_on_recorded_rollouts_the_lazy_walk_needs_a_fraction_of_the_pairs():
    config = shaper_config()
    asked = dense = scored = speculated = lazy_rounds = rounds = 0
    for step, batch, _ in recorded():
        scorers = [EqualityScorer() for _ in range(3)]
        lazy, full, ahead = (
            shape(batch, scorer, config.model_copy(update={"dense": dense}), (0, step), speculate=speculate)
            for scorer, dense, speculate in zip(scorers, (False, True, False), (False, False, True), strict=True)
        )
        assert np.array_equal(lazy.credit_N, full.credit_N)
        assert np.array_equal(lazy.credit_N, ahead.credit_N)
        asked, dense, scored = asked + lazy.pairs.asked, dense + lazy.pairs.dense, scored + lazy.pairs.scored
        lazy_rounds, rounds = lazy_rounds + len(scorers[0].asked), rounds + len(scorers[2].asked)
        speculated += ahead.pairs.speculated
    assert dense > 9 * asked
    assert dense > 20 * scored
    assert speculated < 0.1 * scored
    assert lazy_rounds > 1.5 * rounds
