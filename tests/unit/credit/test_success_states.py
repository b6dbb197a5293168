import numpy as np
import pytest
from hypothesis import given
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
    take,
)

STATES = ["anchor_without_success", "state_without_success"]


def with_states(batch):
    return take(batch, np.arange(len(batch)), state_N=batch.anchor_N)


def credit(batch, **changes):
    answer = assign(batch, EqualityScorer(), method(settings_of("gigpo"), shaper_config(**changes)), seed=(3, 1))
    return answer[1].shaped


def test_a_match_from_a_state_that_a_success_passed_earns_nothing():
    batch = make_batch((0, 0, "a b c", 1), (0, 1, "a b x", 0), (0, 2, "x b c", 0))
    forward = {"matcher": "forward", "order": "chronological"}
    assert credit(batch, **forward).credit_N.tolist() == [0, 0, 0, 1, 1, 0, 0, 1, 1]
    shaped = credit(batch, **forward, credited_states="anchor_without_success")
    assert shaped.credit_N.tolist() == [0, 0, 0, 0, 0, 0, 0, 1, 0]  # b after x: no success was there
    assert [match.credit_l.tolist() for match in shaped.matches] == [[0, 0, 0], [0, 1, 0]]


def test_a_success_of_another_group_does_not_count():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "x b", 0), (1, 2, "x b", 1))
    shaped = credit(batch, matcher="forward", order="chronological", credited_states="anchor_without_success")
    assert shaped.credit_N.tolist() == [0, 0, 0, 1, 0, 0]


@pytest.mark.parametrize("states", STATES)
@given(seed=st.integers(0, 10_000), copies=st.integers(0, 4))
def test_credit_is_only_dropped(states, seed, copies):
    batch = with_states(random_batch(seed, copies=copies))
    everywhere = credit(batch, matcher="forward").credit_N
    kept = credit(batch, matcher="forward", credited_states=states).credit_N
    passed = {(g, a) for g, a, won in zip(batch.group_N, batch.anchor_N, batch.success_N, strict=True) if won}
    alone = np.array([(g, a) not in passed for g, a in zip(batch.group_N, batch.anchor_N, strict=True)])
    assert kept.tolist() == np.where(alone, everywhere, 0).tolist()


def test_states_are_compared_where_asked():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "x b", 0))
    same = take(batch, np.arange(4), state_N=["s", "t", "s", "t"])
    rule = {"matcher": "forward", "order": "chronological"}
    assert credit(same, **rule, credited_states="anchor_without_success").credit_N.tolist() == [0, 0, 0, 1]
    assert not credit(same, **rule, credited_states="state_without_success").credit_N.any()


def test_a_batch_without_states_is_refused():
    with pytest.raises(StepBatchError, match="state_N"):
        credit(make_batch((0, 0, "a", 1), (0, 1, "a", 0)), credited_states="state_without_success")
