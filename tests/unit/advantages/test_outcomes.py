import numpy as np
import pytest

from bench.recorded import recorded
from scpo.advantages.outcomes import step_returns
from tests.support.step_batches import make_batch, random_batch, take


def test_returns_of_a_hand_worked_batch():
    batch = make_batch((0, 0, "a b c", 1), (0, 1, "a", 0), (1, 2, "a b", 10))
    expected = np.array([0.25, 0.5, 1, 0, 5, 10], np.float32)
    answer = step_returns(batch, 0.5)
    assert answer.dtype == np.float32
    assert np.array_equal(answer, expected)


def test_rewards_in_between_count_from_their_own_step():
    batch = make_batch((0, 0, "a b c", 0), reward_N=[1, 2, 4])
    assert np.array_equal(step_returns(batch, 0.5), np.array([3, 4, 4], np.float32))


@pytest.mark.parametrize(("gamma", "expected"), [(0.0, [1, 2, 4]), (1.0, [7, 6, 4])])
def test_the_extreme_discounts(gamma, expected):
    batch = make_batch((0, 0, "a b c", 0), reward_N=[1, 2, 4])
    assert np.array_equal(step_returns(batch, gamma), np.array(expected, np.float32))


def test_time_order_comes_from_the_step_index_not_from_the_rows():
    batch = random_batch(1)
    rows = np.random.default_rng(2).permutation(len(batch))
    assert np.array_equal(step_returns(take(batch, rows), 0.9), step_returns(batch, 0.9)[rows])


def test_a_copy_gets_its_originals_return_and_its_reward_is_not_counted_twice():
    batch = make_batch((0, 0, "a b", 1))
    assert np.array_equal(step_returns(take(batch, [1, 1, 0, 0]), 0.5), np.array([1, 1, 0.5, 0.5], np.float32))


def test_no_rows_no_returns():
    assert step_returns(make_batch(), 0.9).shape == (0,)


def test_recorded_returns_are_reproduced_bit_for_bit():
    for _, batch, expected in recorded():
        assert np.array_equal(step_returns(batch, 0.95), expected)
