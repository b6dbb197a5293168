import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.advantages.anchors import anchor_groups
from scpo.advantages.gigpo import gigpo, step_advantage
from scpo.advantages.grpo import grpo
from scpo.advantages.outcomes import step_returns
from tests.support.step_batches import (
    make_batch,
    random_batch,
    settings_of,
    take,
)


def a_s(batch, q_N, **changes):
    return step_advantage(batch, np.asarray(q_N, np.float64), settings_of("gigpo", **changes))


def test_hand_worked_step_advantages():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "a c", 0), (0, 2, "d e", 0))
    q_N = [0.5, 1, 0, 0, 0.25, 0]  # anchor start: 0.5 0 0.25; anchor a: 1 0; anchor d alone
    assert np.allclose(a_s(batch, q_N), [1, np.sqrt(0.5), -1, -np.sqrt(0.5), 0, 0], atol=1e-5)
    assert np.allclose(a_s(batch, q_N, normalisation="mean_norm"), [0.25, 0.5, -0.25, -0.5, 0, 0])


def test_a_singleton_may_be_compared_with_its_groups_rows_of_the_same_step():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "a c", 0), (0, 2, "d e", 0), (0, 3, "a b c", 0))
    q_N = [0, 1, 0, 0, 0, 0.4, 0, 0, 0]  # row 5 has anchor d, alone; step 1 of the group holds 1 0 0.4 0
    answer = a_s(batch, q_N, singletons="group_step", normalisation="mean_norm")
    assert answer[5] == pytest.approx(0.4 - 0.35)
    assert answer[8] == 0  # step 2 exists once, so there is nothing to compare it with
    assert np.array_equal(np.delete(answer, [5, 8]), np.delete(a_s(batch, q_N, normalisation="mean_norm"), [5, 8]))


def test_a_singleton_stays_one_when_it_is_copied():
    batch = take(make_batch((0, 0, "a b", 1), (0, 1, "d e", 0)), [0, 1, 2, 3, 3])
    q_N = [0, 1, 0, 0.5, 0.5]
    assert a_s(batch, q_N)[3:].tolist() == [0, 0]
    both = a_s(batch, q_N, singletons="group_step", normalisation="mean_norm")
    assert both[3] == both[4] == pytest.approx(0.5 - 2 / 3)


@given(seed=st.integers(0, 10_000))
def test_the_episode_part_is_grpo_and_never_sees_the_bonus(seed):
    batch = random_batch(seed, copies=2)
    bonus_N = np.random.default_rng(seed).random(len(batch)).astype(np.float32)
    returns_N = step_returns(batch, 0.95)
    settings_ = settings_of("gigpo", omega=0.0)
    assert np.array_equal(
        gigpo(batch, returns_N, bonus_N, settings_), grpo(batch, returns_N, bonus_N, settings_of("grpo"))
    )


@given(seed=st.integers(0, 10_000), credit=st.floats(0.01, 1), mode=st.sampled_from(["mean_std_norm", "mean_norm"]))
def test_a_single_credited_row_never_falls(seed, credit, mode):
    batch = random_batch(seed)
    q_N = step_returns(batch, 0.95).astype(np.float64)
    row = seed % len(batch)
    raised_N = q_N.copy()
    raised_N[row] += credit
    before, after = a_s(batch, q_N, normalisation=mode)[row], a_s(batch, raised_N, normalisation=mode)[row]
    assert after >= before - 1e-12
    anchor_N = anchor_groups(batch)
    if mode == "mean_norm" and (anchor_N == anchor_N[row]).sum() > 1:
        assert after > before


@given(seed=st.integers(0, 10_000), shift=st.floats(-5, 5))
def test_shifting_all_scores_of_a_group_changes_nothing(seed, shift):
    batch = random_batch(seed, groups=2, copies=3)
    q_N = step_returns(batch, 0.95).astype(np.float64)
    moved_N = np.where(batch.group_N == 0, q_N + shift, q_N)
    assert np.allclose(a_s(batch, q_N), a_s(batch, moved_N), atol=1e-5)


@pytest.mark.parametrize("mode", ["mean_std_norm", "mean_norm"])
def test_float32_dust_does_not_become_an_advantage(mode):
    batch = make_batch(*[(0, k, "a", 0) for k in range(3)])
    dust = np.float32(0.7) + np.array([0, 1, -1]) * np.finfo(np.float32).eps
    assert np.array_equal(a_s(batch, dust, normalisation=mode), np.zeros(3))


def by_loops(batch, q_N, penalty, mode):
    """The stack's estimator as it reads: one loop over rows, group statistics over rows, torch.std's correction."""
    score_N = batch.episode_return_N.astype(np.float64) - penalty * ~batch.valid_N
    answer = np.zeros(len(batch))
    for row in range(len(batch)):
        group = batch.group_N == batch.group_N[row]
        anchor = group & (batch.anchor_N == batch.anchor_N[row])
        for value_N, members, alone in ((score_N, group, (0, 1)), (q_N, anchor, (q_N[row], 1))):
            values = value_N[members]
            mean, std = (values.mean(), values.std(ddof=1)) if len(values) > 1 else alone
            scale = std + 1e-6 if mode == "mean_std_norm" else 1
            answer[row] += (value_N[row] - mean) / scale if len(values) == 1 or std > 1e-9 else 0
    return answer


@given(seed=st.integers(0, 10_000), mode=st.sampled_from(["mean_std_norm", "mean_norm"]))
def test_the_group_by_agrees_with_plain_loops_over_rows(seed, mode):
    batch = random_batch(seed, copies=5)
    rng = np.random.default_rng(seed)
    bonus_N = (rng.integers(3, size=(100, 100)) / 4).astype(np.float32)[batch.trajectory_N, batch.step_N]
    returns_N = step_returns(batch, 0.95)
    answer = gigpo(batch, returns_N, bonus_N, settings_of("gigpo", normalisation=mode, std_floor=0.0))
    assert np.allclose(answer, by_loops(batch, returns_N.astype(np.float64) + bonus_N, 0.1, mode), atol=1e-5)
