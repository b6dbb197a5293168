import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.advantages.rloo import rloo
from tests.support.step_batches import (
    make_batch,
    random_batch,
    settings_of,
    take,
)


def advantages(batch, **changes):
    zero_N = np.zeros(len(batch), np.float32)
    return rloo(batch, zero_N, zero_N, settings_of("rloo", **changes))


def test_hand_worked_group_over_rows():
    batch = make_batch((0, 0, "a b c", 1), (0, 1, "a", 0))  # scores 1 1 1 0; the others' means: 2/3 2/3 2/3 1
    assert np.allclose(advantages(batch), [1 / 3, 1 / 3, 1 / 3, -1])


def test_hand_worked_group_over_trajectories():
    batch = make_batch((0, 0, "a b c", 1), (0, 1, "a", 0), (0, 2, "a", 0))  # mean 1/3, factor 3/2
    assert np.allclose(advantages(batch, statistics="trajectories"), [1, 1, 1, -0.5, -0.5])


def test_an_invalid_step_is_worth_less_than_its_siblings():
    batch = make_batch((0, 0, "a b", 1), valid_N=[True, False])  # scores 1 0.9
    assert np.allclose(advantages(batch), [0.1, -0.1])


def test_a_group_of_one_row_keeps_its_score():
    assert advantages(make_batch((0, 0, "a", 10), (1, 1, "a", 0))).tolist() == [10, 0]


@pytest.mark.parametrize("statistics", ["rows", "trajectories"])
@pytest.mark.parametrize("floor", [0.0, 1e-5])
def test_equal_outcomes_give_exactly_zero(statistics, floor):
    batch = make_batch(*[(0, k, "a b c", 0.1) for k in range(7)])
    assert np.array_equal(advantages(batch, statistics=statistics, std_floor=floor), np.zeros(21, np.float32))


@given(seed=st.integers(0, 10_000))
def test_every_row_is_compared_with_the_mean_of_the_others(seed):
    batch = random_batch(seed, copies=3)
    score_N = batch.episode_return_N - 0.1 * ~batch.valid_N
    answer_N = advantages(batch, std_floor=0.0)
    for row in range(len(batch)):
        others = (batch.group_N == batch.group_N[row]) & (np.arange(len(batch)) != row)
        assert answer_N[row] == pytest.approx(score_N[row] - score_N[others].mean() if others.any() else score_N[row])


@given(seed=st.integers(0, 10_000), shift=st.floats(-5, 5))
def test_shifting_all_outcomes_of_a_group_changes_nothing(seed, shift):
    batch = random_batch(seed, groups=2, copies=3)
    moved = take(batch, np.arange(len(batch)), episode_return_N=batch.episode_return_N + np.float32(shift))
    rows = np.bincount(batch.group_N)[batch.group_N] > 1
    assert np.allclose(advantages(batch)[rows], advantages(moved)[rows], atol=1e-4)
