import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.advantages.empg import empg, normalised_entropy
from scpo.advantages.grpo import grpo
from scpo.errors import StepBatchError
from tests.support.step_batches import (
    make_batch,
    measured,
    random_batch,
    settings_of,
    take,
)


def advantages(batch, **changes):
    zero_N = np.zeros(len(batch), np.float32)
    return empg(batch, zero_N, zero_N, settings_of("empg", **changes))


def test_hand_worked_advantages():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "a", 0), (0, 2, "a", 0), entropy_N=[1, 3, 2, 1])
    entropy = np.array([0, 1, 0.5, 0])
    g = np.exp(-entropy) / np.exp(-entropy).mean()
    outcome = np.array([0.5, 0.5, -0.5, -0.5])  # scores 1 1 0 0 without division
    raw = outcome * g + 0.05 * np.array([np.exp(-1), 0, 0, 0])  # only row 0 has a step after it
    assert np.allclose(advantages(batch, normalisation="mean_norm"), raw - raw.mean())


def test_k_and_k_future_act_on_their_own_terms():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "a", 0), entropy_N=[0, 1, 0])
    g = np.exp([0, -2, 0]) / np.exp([0, -2, 0]).mean()
    raw = np.array([1, 1, -2]) / 3 * g + [np.exp(-3), 0, 0]
    assert np.allclose(advantages(batch, normalisation="mean_norm", k=2, k_future=3, zeta=1), raw - raw.mean())


def test_entropy_is_scaled_to_0_1_over_the_batch():
    batch = make_batch((0, 0, "a b", 1), (1, 1, "a", 0), entropy_N=[2, 4, 3])
    assert normalised_entropy(batch).tolist() == [0, 1, 0.5]
    assert normalised_entropy(take(batch, np.arange(3), entropy_N=[2, 2, 2])).tolist() == [0, 0, 0]


@given(seed=st.integers(0, 10_000))
def test_equal_entropies_without_the_bonus_are_centred_grpo(seed):
    batch = random_batch(seed)
    batch = take(batch, np.arange(len(batch)), entropy_N=np.full(len(batch), 0.3))
    zero_N = np.zeros(len(batch), np.float32)
    plain_N = grpo(batch, zero_N, zero_N, settings_of("grpo"))
    assert np.allclose(advantages(batch, zeta=0), plain_N - plain_N.mean(), atol=1e-6)


@given(seed=st.integers(0, 10_000))
def test_the_batch_mean_is_zero(seed):
    assert advantages(measured(random_batch(seed, copies=3), seed)).mean() == pytest.approx(0, abs=1e-6)


def test_a_row_without_entropy_is_named():
    batch = make_batch((0, 0, "a b", 1), entropy_N=[1, float("nan")])
    with pytest.raises(StepBatchError, match=r"row 1 .*entropy_N is nan, estimator 'empg' needs a finite number"):
        advantages(batch)
