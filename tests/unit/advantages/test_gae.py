import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.advantages.gae import gae, outcome_rewards
from scpo.errors import StepBatchError
from tests.support.step_batches import (
    settings_of,
)

MASK = np.array([[1, 1, 1], [1, 0, 0]], bool)
REWARD = np.array([[0, 0, 1], [0, 0, 0]], np.float32)
VALUE = np.array([[0.5, 0.25, 0.5], [0.5, 9, 9]], np.float32)


def white(values):
    return (values - np.mean(values)) / np.sqrt(np.var(values, ddof=1) + 1e-8)


def test_hand_worked_without_discount():
    advantage, returns = gae(REWARD, VALUE, MASK, settings_of("gae"))
    # with γ = λ = 1 the advantage is the outcome less the value
    assert np.allclose(advantage[MASK], white(np.array([0.5, 0.75, 0.5, -0.5])))
    assert np.allclose(returns, [[1, 1, 1], [0, 0, 0]])
    assert not advantage[~MASK].any()
    assert (advantage.dtype, returns.dtype) == (np.float32, np.float32)


def test_hand_worked_with_both_discounts():
    advantage, returns = gae(REWARD[:1], VALUE[:1], MASK[:1], settings_of("gae", gamma=0.5, gae_lambda=0.5))
    last = 1 - 0.5
    middle = 0.5 * 0.5 - 0.25 + 0.25 * last
    first = 0.5 * 0.25 - 0.5 + 0.25 * middle
    assert np.allclose(advantage[0], white(np.array([first, middle, last])))
    assert np.allclose(returns[0], np.array([first, middle, last]) + VALUE[0])


def test_tokens_outside_the_mask_are_passed_over():
    gap = np.array([[1, 0, 1]], bool)
    dense = gae(REWARD[:1, [0, 2]], VALUE[:1, [0, 2]], gap[:, [0, 2]], settings_of("gae", gamma=0.9, gae_lambda=0.8))
    holed = gae(REWARD[:1], VALUE[:1], gap, settings_of("gae", gamma=0.9, gae_lambda=0.8))
    assert all(np.array_equal(a[:, [0, 2]], b) for a, b in zip(holed, dense, strict=True))


def test_a_perfect_critic_leaves_exactly_nothing():
    advantage, _ = gae(REWARD, np.array([[1, 1, 1], [0, 0, 0]]), MASK, settings_of("gae"))
    assert np.array_equal(advantage, np.zeros((2, 3), np.float32))


def test_nothing_to_learn_from_gives_nothing():
    for mask in (np.zeros((2, 3), bool), np.zeros((0, 3), bool), np.zeros((2, 0), bool)):
        advantage, returns = gae(np.ones(mask.shape), np.ones(mask.shape), mask, settings_of("gae"))
        assert advantage.shape == returns.shape == mask.shape
        assert not advantage.any()


def test_one_valid_token_has_no_advantage():
    assert not gae(REWARD[1:], VALUE[1:], MASK[1:], settings_of("gae"))[0].any()


@given(seed=st.integers(0, 10_000))
def test_whitening_reads_valid_tokens_only(seed):
    rng = np.random.default_rng(seed)
    reward, value, mask = rng.random((4, 6)), rng.random((4, 6)), rng.random((4, 6)) > 0.3
    mask[:2, 0] = True
    config = settings_of("gae", gamma=0.9, gae_lambda=0.7)
    advantage, returns = gae(reward, value, mask, config)
    assert advantage[mask].mean() == pytest.approx(0, abs=1e-5)
    assert advantage[mask].std(ddof=1) == pytest.approx(1, abs=1e-3)
    outside = np.where(mask, 0, np.nan)
    again = gae(reward + outside, value + outside, mask, config)
    assert all(np.array_equal(a, b) for a, b in zip((advantage, returns), again, strict=True))


def test_the_rows_score_is_on_its_last_valid_token():
    mask = np.array([[1, 1, 0], [1, 1, 1], [0, 0, 0]], bool)
    assert outcome_rewards([10, -0.1, 5], mask).tolist() == [[0, 10, 0], [0, 0, np.float32(-0.1)], [0, 0, 0]]
    assert outcome_rewards([1.0], np.zeros((1, 0), bool)).shape == (1, 0)


def test_wrong_input_is_named():
    with pytest.raises(StepBatchError, match=r"value_NL has shape \(2, 2\) and mask_NL \(2, 3\)"):
        gae(REWARD, VALUE[:, :2], MASK, settings_of("gae"))
    with pytest.raises(StepBatchError, match="row 1: token_reward_NL is not finite"):
        gae(np.where([[0], [1]], np.nan, REWARD), VALUE, MASK, settings_of("gae"))
