import numpy as np
import pytest

from scpo.advantages.hcapo import hcapo, hindsight_ratios, hindsight_values
from scpo.errors import StepBatchError
from tests.support.step_batches import (
    make_batch,
    settings_of,
    take,
)

NAN = float("nan")
# p of the success: e^0, e^-0.1, e^-0.2 with temperature 5
BATCH = make_batch((0, 0, "a b c", 10), (0, 1, "a", 0), hindsight_logprob_N=[0, -0.5, -1, NAN])
P = np.exp([0, -0.1, -0.2])


def test_ratios_compare_a_step_with_its_trajectory():
    assert np.allclose(hindsight_ratios(BATCH, settings_of("hcapo", ratio_low=0.1, ratio_high=9)), [*(P / P.mean()), 1])


def test_ratios_are_clipped():
    sharp = settings_of("hcapo", temperature=0.5)  # p: 1, e^-1, e^-2
    assert np.allclose(hindsight_ratios(BATCH, sharp), [1.2, 0.8, 0.8, 1])


def test_hindsight_values_are_discounted_from_the_end_and_0_in_failures():
    rho = P / P.mean()  # 1.10, 1.00, 0.90: within the clip
    assert np.allclose(hindsight_values(BATCH, settings_of("hcapo")), [*(rho * [9.025, 9.5, 10]), 0])


def test_smoothing_mixes_in_the_next_step_and_does_not_change_the_last():
    q = P / P.mean() * [9.025, 9.5, 10]
    expected = [(q[0] + q[1]) / 2, (q[1] + q[2]) / 2, q[2], 0]
    assert np.allclose(hindsight_values(BATCH, settings_of("hcapo", smoothing=0.5)), expected)


def advantages(batch, **changes):
    zero_N = np.zeros(len(batch), np.float32)
    return hcapo(batch, zero_N, zero_N, settings_of("hcapo", **changes))


def test_hand_worked_advantages():
    batch = make_batch((0, 0, "a b", 10), (0, 1, "a", 0), hindsight_logprob_N=[0, 0, NAN])
    # outcome over trajectories 10 0: ±1/√2; Q = 9.5 10 0, mean 6.5, std √31.75
    z = (np.array([9.5, 10, 0]) - 6.5) / np.sqrt(31.75)
    assert np.allclose(advantages(batch), np.array([1, 1, -1]) / np.sqrt(2) + z, atol=1e-5)
    assert np.allclose(advantages(batch, omega=0.5), np.array([1, 1, -1]) / np.sqrt(2) + z / 2, atol=1e-5)


def test_a_success_is_never_blamed_by_the_second_term():
    batch = make_batch((0, 0, " ".join("abcdefgh"), 10), hindsight_logprob_N=np.zeros(8))
    answer = advantages(batch)  # one trajectory: the outcome term is its return, up to the 1e-6
    assert (answer >= np.float32(10 / (1 + 1e-6))).all()
    assert answer[-1] > 11


def test_groups_without_a_success_and_equal_outcomes_give_exactly_zero():
    batch = make_batch(*[(0, k, "a b", 0) for k in range(3)], hindsight_logprob_N=[NAN] * 6)
    assert np.array_equal(advantages(batch), np.zeros(6, np.float32))


def test_copies_change_no_ratio_of_their_trajectory():
    batch = take(BATCH, [0, 0, 0, 1, 2, 3])
    assert np.allclose(hindsight_ratios(batch, settings_of("hcapo")), [*(P / P.mean())[[0, 0, 0, 1, 2]], 1])


def test_a_success_that_was_not_scored_is_named():
    batch = take(BATCH, np.arange(4), hindsight_logprob_N=[0, NAN, 0, NAN])
    with pytest.raises(StepBatchError, match=r"row 1 \(group 0, trajectory 0, step 1\): hindsight_logprob_N is nan"):
        advantages(batch)
    with pytest.raises(StepBatchError, match="needs hindsight_logprob_N, which this batch lacks"):
        advantages(make_batch((0, 0, "a", 1)))
