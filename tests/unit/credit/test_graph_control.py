"""The control that puts SCPO's credit where the graph of exact states would."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo.credit.assign import assign
from scpo.errors import StepBatchError
from tests.support.step_batches import (
    EqualityScorer,
    make_batch,
    method,
    random_batch,
    settings_of,
    shaper_config,
    stated,
    take,
)


def credits(batch, **changes):
    config = method(settings_of("gigpo"), shaper_config(**changes))
    return assign(batch, EqualityScorer(), config)[1].shaped


def test_the_same_credit_lands_on_the_failed_steps_that_led_nearer_to_success():
    # won: start a b c | lost: start a x, and start x a. Equal texts credit a at the start of the first alone; nearer
    # to success lead both steps to a.
    batch = make_batch((0, 0, "a b c", 10.0), (0, 1, "a x", 0.0), (0, 2, "x a", 0.0))
    batch = take(batch, np.arange(7), state_N=batch.anchor_N, next_state_N=batch.action_N)
    assert credits(batch).credit_N.tolist() == [0, 0, 0, 1, 0, 0, 1]
    batch = take(batch, np.arange(7), next_observation_N=[*batch.next_observation_N[:6], "another a"])
    assert credits(batch).credit_N.tolist() == [0, 0, 0, 1, 0, 0, 0]
    assert credits(batch, allocation="graph").credit_N.tolist() == [0, 0, 0, 0.5, 0, 0, 0.5]


def test_where_no_failed_step_led_nearer_all_of_them_share():
    batch = make_batch((0, 0, "a b", 10.0), (0, 1, "x a y", 0.0))
    batch = take(
        batch, np.arange(5), state_N=["s", "t", "u", "v", "w"], next_state_N=["t", "end", "v", "w", "other end"]
    )
    assert credits(batch).credit_N.tolist() == [0, 0, 0, 1, 0]
    assert credits(batch, allocation="graph").credit_N.tolist() == pytest.approx([0, 0, 1 / 3, 1 / 3, 1 / 3])


def test_without_states_it_says_what_is_missing():
    with pytest.raises(StepBatchError, match="needs state_N"):
        credits(make_batch((0, 0, "a", 10.0), (0, 1, "a", 0.0)), allocation="graph")


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_each_group_keeps_its_amount_on_surviving_steps_of_failures(seed):
    batch = stated(random_batch(seed, copies=3))
    matched, moved = credits(batch), credits(batch, allocation="graph")
    original_N = batch.original_N
    for group in set(batch.group_N.tolist()):
        rows = original_N & (batch.group_N == group)
        assert moved.credit_N[rows].sum() == pytest.approx(matched.credit_N[rows].sum(), abs=1e-4)
    assert not moved.credit_N[batch.success_N | ~moved.surviving_N].any()
    assert sum(match.credit_l.sum() for match in moved.matches) == pytest.approx(
        moved.credit_N[original_N].sum(), abs=1e-4
    )


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_credit_for_equal_states_is_scpo_with_the_exact_scorer_on_them(seed):
    batch = stated(random_batch(seed))
    by_state = credits(batch, step_text="action_next_state")
    told = take(batch, np.arange(len(batch)), is_copy_N=batch.is_copy_N, next_observation_N=batch.next_state_N)
    assert np.array_equal(by_state.credit_N, credits(told).credit_N)
    assert by_state.text_N[0] == f"{batch.action_N[0]} || {batch.next_state_N[0]}"
