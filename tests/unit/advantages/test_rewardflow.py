import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo.advantages.grpo import episode_advantage
from scpo.advantages.rewardflow import flow_rewards, propagated, rewardflow
from scpo.advantages.state_graph import distances, state_graph
from tests.support.step_batches import make_batch, random_batch, settings_of, take

# start -> a, a -> success | start -> a, a -> x
BATCH = make_batch((0, 0, "a c", 10.0), (0, 1, "a x", 0.0))


def config(**changes):
    return settings_of("rewardflow", **({"state_key": "anchor"} | changes))


def values(batch, **changes):
    graph = state_graph(batch, "anchor")
    return propagated(batch, graph, config(**changes))[graph.source_N]


def rewards(batch, **changes):
    return flow_rewards(batch, state_graph(batch, "anchor"), config(**changes))


def advantages(batch, bonus_N=None, **changes):
    bonus_N = np.zeros(len(batch), np.float32) if bonus_N is None else np.asarray(bonus_N, np.float32)
    return rewardflow(batch, np.zeros(len(batch), np.float32), bonus_N, config(**changes))


def test_success_flows_back_and_a_step_earns_the_rise():
    assert values(BATCH) == pytest.approx([8.1, 9, 8.1, 9])
    assert rewards(BATCH) == pytest.approx([0.9, 1, 0.9, 0])
    assert rewards(BATCH, failed_end="value") == pytest.approx([0.9, 1, 0.9, -9])


def test_hand_worked_advantages():
    # outcome 5 above and below the mean; steps: from start both alike, from a 1 and 0
    assert advantages(BATCH) == pytest.approx([5, 5.5, -5, -5.5])
    assert advantages(BATCH, omega=2.0) == pytest.approx([5, 6, -5, -6])
    assert advantages(BATCH, [0, 0, 0, 1]) == pytest.approx([5, 5, -5, -5])  # the bonus makes up for the end


def test_the_nearest_of_several_ways_counts():
    batch = make_batch((0, 0, "a c d", 10.0), (0, 1, "a d", 10.0), (0, 2, "x", 0.0))
    assert values(batch) == pytest.approx([8.1, 9, 9, 8.1, 9, 8.1])  # a wins at once in the second
    assert rewards(batch) == pytest.approx([0.9, 0, 1, 0.9, 1, 0])


def test_a_loop_raises_nothing():
    batch = make_batch((0, 0, "a c", 10.0), (0, 1, "a b a b", 0.0))
    assert rewards(batch)[2:] == pytest.approx([0.9, -0.9, 0.9, 0])


def test_a_success_that_revisits_a_state():
    assert rewards(make_batch((0, 0, "a b a c", 10.0))) == pytest.approx([0.9, -0.9, 0.9, 1])


def test_a_look_about_is_bridged_and_its_own_state_is_worth_nothing():
    batch = make_batch((0, 0, "look a c", 10.0), (0, 1, "a x", 0.0))
    assert values(batch) == pytest.approx([8.1, 0, 9, 8.1, 9])
    assert rewards(batch) == pytest.approx([-8.1, 9, 1, 0.9, 0])
    assert values(batch, bridge=False) == pytest.approx([8.1, 8.1, 9, 8.1, 9])


def test_only_what_changes_nothing_is_bridged():
    def start_after(first):
        letters = ["start", first, "a"]
        return values(make_batch((0, 0, "u v w", 10.0), anchor_N=letters, action_N=["u", "v", "w"]))[0]

    assert start_after("b") == pytest.approx(7.29)
    assert start_after("Nothing happens.") == pytest.approx(8.1)
    assert start_after("start") == pytest.approx(8.1)  # it came back at once
    examined = make_batch((0, 0, "u v w", 10.0), action_N=["examine mug 1", "v", "w"])
    assert values(examined)[0] == pytest.approx(8.1)


def test_a_reported_no_op_is_bridged_and_a_step_into_its_state_is_not_in_any_order_of_rows():
    batch = make_batch((0, 0, "b c", 10.0), (0, 1, "b b c", 10.0), no_op_N=[False, False, False, True, False])
    for rows in (range(5), range(5)[::-1]):
        assert values(take(batch, rows)) == pytest.approx(np.array([8.1, 9, 8.1, 9, 9])[rows])


def test_a_run_of_looks_is_bridged_as_one_and_one_at_the_end_to_nothing():
    batch = make_batch((0, 0, "look inventory a c", 10.0), (0, 1, "a look", 0.0))
    assert values(batch)[0] == pytest.approx(8.1)
    assert rewards(batch)[-1] == 0


def test_without_a_success_rows_differ_by_the_penalty_only():
    batch = make_batch((0, 0, "a b", 0.0), (0, 1, "a c", 0.0))
    assert not advantages(batch).any()
    assert advantages(batch, [0, 0, -0.1, 0]) == pytest.approx([0.05, 0, -0.05, 0])


def test_a_step_alone_in_its_state_has_no_step_term():
    batch = make_batch((0, 0, "a b", 10.0), (1, 1, "a", 0.0))
    assert np.array_equal(advantages(batch), episode_advantage(batch, config(), "mean_norm").astype(np.float32))


def test_a_reward_before_the_end_counts_where_it_was_earned():
    early = take(BATCH, np.arange(4), reward_N=[10.0, 0, 0, 0])
    assert values(early) == pytest.approx([9, 10, 9, 10])
    assert rewards(early) == pytest.approx([1, -10, 1, 0])


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_with_one_reward_values_fall_by_gamma_with_each_step_from_success(seed):
    batch = random_batch(seed, copies=2)
    graph = state_graph(batch, "anchor")
    value_V = propagated(batch, graph, config(bridge=False))
    reached = value_V > 0
    left = np.isin(np.arange(len(graph)), graph.source_N)
    assert value_V[reached & left] == pytest.approx(0.9 ** distances(graph)[reached & left])
    best = 0.9 * np.where(graph.end_N, batch.reward_N, value_V[graph.target_N])
    assert (best <= value_V[graph.source_N] + 1e-12)[~graph.end_N | batch.success_N].all()
