import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo.advantages.gagpo import accumulated, gagpo
from scpo.advantages.outcomes import step_returns
from tests.support.step_batches import make_batch, random_batch, settings_of, take

# start -> a -> won | start -> a -> lost; with gamma 1/2: returns 5, 10 | 0, 0; V(start) = 2.5, V(a) = 5
BATCH = make_batch((0, 0, "a c", 10.0), (0, 1, "a x", 0.0))


def config(**changes):
    return settings_of("gagpo", **({"gamma": 0.5, "gae_lambda": 0.5, "normalisation": "mean_norm"} | changes))


def sums(batch, bonus_N=None, **changes):
    bonus_N = np.zeros(len(batch), np.float32) if bonus_N is None else np.asarray(bonus_N, np.float32)
    return accumulated(batch, step_returns(batch, config(**changes).gamma), bonus_N, config(**changes))


def advantages(batch, **changes):
    zeros_N = np.zeros(len(batch), np.float32)
    return gagpo(batch, step_returns(batch, config(**changes).gamma), zeros_N, config(**changes))


def test_hand_worked():
    # differences: 0 + 2.5 - 2.5 = 0, 10 - 5 = 5 | 0, -5; each step takes a quarter of what follows
    assert sums(BATCH, gae_lambda=0.0).tolist() == [0, 5, 0, -5]
    assert sums(BATCH).tolist() == [1.25, 5, -1.25, -5]
    assert advantages(BATCH).tolist() == [1.25, 5, -1.25, -5]  # their mean is 0


def test_rows_are_normalised_over_their_group():
    batch = make_batch((0, 0, "a c", 10.0), (0, 1, "a x", 0.0), (1, 2, "b", 10.0), (1, 3, "c", 0.0))
    answer_N = advantages(batch, normalisation="mean_std_norm")
    for group in (0, 1):
        rows = batch.group_N == group
        assert answer_N[rows].mean() == pytest.approx(0, abs=1e-6)
        assert answer_N[rows].std(ddof=1) == pytest.approx(1, abs=1e-5)


def test_the_bonus_reaches_the_steps_before():
    assert (sums(BATCH, [0, 0, 0, 2]) - sums(BATCH)).tolist() == [0, 0, 0.5, 2]


def test_without_a_success_nothing_is_worth_anything():
    assert not advantages(make_batch((0, 0, "a b a", 0.0), (0, 1, "b", 0.0))).any()


def test_a_rollout_alone_is_as_good_as_itself():
    assert not advantages(make_batch((0, 0, "a b c", 10.0), (1, 1, "a", 0.0))).any()


def test_a_loop_and_a_revisit_pay_for_the_detour():
    step_N = sums(make_batch((0, 0, "a b a c", 10.0)), gae_lambda=0.0)
    assert step_N[1] < 0 < step_N[3]


def test_a_reward_before_the_end_counts_where_it_was_earned():
    early = take(BATCH, np.arange(4), reward_N=[10.0, 0, 0, 0])
    assert sums(early, gae_lambda=0.0).tolist() == [5, 0, -5, 0]


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_with_lambda_one_it_is_the_return_less_the_value(seed):
    batch = random_batch(seed, copies=3)
    return_N = step_returns(batch, 0.5)
    value = {}
    for row in range(len(batch)):
        value.setdefault((batch.group_N[row], batch.anchor_N[row]), []).append(float(return_N[row]))
    value_N = [np.mean(value[key]) for key in zip(batch.group_N, batch.anchor_N, strict=True)]
    assert sums(batch, gae_lambda=1.0) == pytest.approx(return_N - value_N, abs=1e-5)
