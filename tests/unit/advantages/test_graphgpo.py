import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo.advantages.graphgpo import graph_rewards, graphgpo
from scpo.advantages.grpo import episode_advantage
from scpo.advantages.state_graph import state_graph
from tests.support.step_batches import make_batch, random_batch, settings_of, take

# start -> a (0), a -> success (1); start -> x (2), where nobody goes on
BATCH = make_batch((0, 0, "a c", 10.0), (0, 1, "x", 0.0))


def config(**changes):
    return settings_of("graphgpo", **({"state_key": "anchor", "decay": 0.5} | changes))


def rewards(batch, settings):
    return graph_rewards(state_graph(batch, "anchor"), settings)


def advantages(batch, bonus_N=None, **changes):
    bonus_N = np.zeros(len(batch), np.float32) if bonus_N is None else np.asarray(bonus_N, np.float32)
    return graphgpo(batch, np.zeros(len(batch), np.float32), bonus_N, config(**changes))


def test_a_step_is_worth_less_the_farther_it_leads_from_success():
    assert rewards(BATCH, config()).tolist() == [5, 10, 1.25]  # 1, 0 and 3 steps away
    assert rewards(BATCH, config(decay=0.1)) == pytest.approx([1, 10, 0.01])
    assert rewards(BATCH, config(normalize_distance=True)).tolist() == [10, 10, 2.5]  # d(s') - d(s) + 1: 0, 0, 2


def test_hand_worked_without_division():
    # outcome: 10 - 20/3, the same, 0 - 20/3; steps: from start 5 and 1.25, mean 3.125; from a one row alone
    expected = [10 / 3 + 1.875, 10 / 3, -20 / 3 - 1.875]
    assert advantages(BATCH, normalisation="mean_norm") == pytest.approx(expected)
    assert advantages(BATCH, normalisation="mean_norm", omega=2.0)[0] == pytest.approx(10 / 3 + 3.75)


def test_hand_worked_z_scores():
    # outcome: mean 20/3, std sqrt(100/3); steps from start: two rows are +-1/sqrt(2) apart
    outcome = np.array([10, 10, 0]) / np.sqrt(100 / 3) - 20 / 3 / np.sqrt(100 / 3)
    assert advantages(BATCH) == pytest.approx(outcome + np.array([0.5**0.5, 0, -(0.5**0.5)]), abs=1e-5)


def test_the_bonus_is_added_to_the_graphs_advantage():
    moved = advantages(BATCH, [0, 0, 3.75], normalisation="mean_norm") - advantages(BATCH, normalisation="mean_norm")
    assert moved == pytest.approx([-1.875, 0, 1.875])


def test_a_failed_step_towards_success_earns_more_than_one_away_from_it():
    batch = make_batch((0, 0, "a c", 10.0), (0, 1, "a y", 0.0), (0, 2, "x", 0.0))
    step_N = advantages(batch) - episode_advantage(batch, config(), "mean_std_norm")
    assert step_N[0] == pytest.approx(step_N[2], abs=1e-6)
    assert step_N[2] > 0 > step_N[4]
    assert step_N[1] > 0 > step_N[3]


def test_without_a_success_rows_differ_by_the_penalty_only():
    batch = make_batch((0, 0, "a b", 0.0), (0, 1, "a c", 0.0))
    assert not advantages(batch).any()
    assert advantages(batch, [0, 0, -0.1, 0], normalisation="mean_norm") == pytest.approx([0.05, 0, -0.05, 0])


def test_a_group_of_one_step_and_one_of_one_rollout_have_no_step_term():
    lone = make_batch((0, 0, "a", 10.0), (1, 1, "a b c", 10.0), (2, 2, "a", 0.0))
    step_N = advantages(lone, normalisation="mean_norm") - episode_advantage(lone, config(), "mean_norm")
    assert step_N.tolist() == [0] * 5


def test_a_success_that_revisits_a_state_loses_by_the_detour():
    batch = make_batch((0, 0, "a b a c", 10.0))
    step_N = advantages(batch) - episode_advantage(batch, config(), "mean_std_norm")
    assert step_N[3] > 0 > step_N[1]  # from a: on to success, or back to b
    assert step_N[0] == step_N[2] == 0


def test_a_reward_before_the_end_is_no_success_of_that_step():
    batch = make_batch((0, 0, "a b", 10.0), (0, 1, "a c", 0.0))
    early = take(batch, np.arange(4), reward_N=[10.0, 0, 0, 0])
    assert np.array_equal(advantages(early), advantages(batch))


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_rows_from_one_state_to_one_state_share_their_reward(seed):
    batch = random_batch(seed, copies=3)
    reward_N = rewards(batch, config(decay=0.3))
    assert (reward_N > 0).all()
    assert (reward_N <= 10).all()
    last_N = (batch.timeline.neighbours(1) < 0) & batch.success_N
    assert (reward_N[last_N] == 10).all()
    assert (reward_N[~last_N] < 10).all()
