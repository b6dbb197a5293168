import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.advantages.grpo import grpo
from tests.support.step_batches import (
    make_batch,
    random_batch,
    settings_of,
    take,
)


def advantages(batch, **changes):
    zero_N = np.zeros(len(batch), np.float32)
    return grpo(batch, zero_N, zero_N, settings_of("grpo", **changes))


def test_hand_worked_group_over_rows():
    batch = make_batch((0, 0, "a b c", 1), (0, 1, "a", 0))  # scores 1 1 1 0: mean 3/4, std 1/2
    expected = np.array([0.5, 0.5, 0.5, -1.5])
    assert np.allclose(advantages(batch), expected, atol=1e-5)
    assert np.array_equal(advantages(batch, normalisation="mean_norm"), np.array([0.25, 0.25, 0.25, -0.75], np.float32))


def test_hand_worked_group_over_trajectories():
    batch = make_batch((0, 0, "a b c", 1), (0, 1, "a", 0))  # returns 1 0: mean 1/2, std 1/sqrt(2)
    answer = advantages(batch, statistics="trajectories")
    assert np.allclose(answer, np.array([1, 1, 1, -1]) / np.sqrt(2), atol=1e-5)


def test_an_invalid_step_is_worth_less_than_its_siblings():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "a b", 0), valid_N=[True, False, True, True])
    answer = advantages(batch, normalisation="mean_norm")  # scores 1 0.9 0 0: mean 0.475
    assert np.allclose(answer, [0.525, 0.425, -0.475, -0.475])
    by_trajectory = advantages(batch, normalisation="mean_norm", statistics="trajectories")  # mean of 0.95 and 0
    assert np.allclose(by_trajectory, [0.525, 0.425, -0.475, -0.475])


@pytest.mark.parametrize(("value", "expected"), [(0.0, 0.0), (10.0, 10 / (1 + 1e-6))])
def test_a_group_of_one_row_keeps_its_score(value, expected):
    batch = make_batch((0, 0, "a", value), (1, 1, "a b", 1), (1, 2, "a", 0))
    assert advantages(batch)[0] == np.float32(expected)
    assert advantages(batch, normalisation="mean_norm")[0] == np.float32(value)


@pytest.mark.parametrize("statistics", ["rows", "trajectories"])
@pytest.mark.parametrize("normalisation", ["mean_std_norm", "mean_norm"])
@pytest.mark.parametrize("floor", [0.0, 1e-5])
def test_equal_outcomes_give_exactly_zero(statistics, normalisation, floor):
    batch = make_batch(*[(0, k, "a b c", 0.1) for k in range(7)])
    answer = advantages(batch, statistics=statistics, normalisation=normalisation, std_floor=floor)
    assert np.array_equal(answer, np.zeros(21, np.float32))


def test_copies_weigh_in_over_rows_and_not_over_trajectories():
    batch = make_batch((0, 0, "a", 1), (0, 1, "a", 0))
    doubled = take(batch, [0, 0, 1])
    assert np.allclose(advantages(doubled, normalisation="mean_norm"), [1 / 3, 1 / 3, -2 / 3])
    by_trajectory = advantages(doubled, normalisation="mean_norm", statistics="trajectories")
    assert np.allclose(by_trajectory, [0.5, 0.5, -0.5])


def test_a_copied_invalid_step_is_no_further_penalty_over_trajectories():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "a b", 0), valid_N=[True, False, True, True])
    copied = advantages(take(batch, [0, 1, 1, 2, 3]), normalisation="mean_norm", statistics="trajectories")
    assert np.allclose(copied, [0.525, 0.425, 0.425, -0.475, -0.475])  # mean of 0.95 and 0


@given(seed=st.integers(0, 10_000), shift=st.floats(-5, 5))
def test_shifting_all_outcomes_of_a_group_changes_nothing(seed, shift):
    batch = random_batch(seed, groups=2, copies=3)
    moved = take(batch, np.arange(len(batch)), episode_return_N=batch.episode_return_N + np.float32(shift))
    for statistics in ("rows", "trajectories"):
        before, after = advantages(batch, statistics=statistics), advantages(moved, statistics=statistics)
        rows = np.bincount(batch.group_N)[batch.group_N] > 1
        assert np.allclose(before[rows], after[rows], atol=1e-4)
