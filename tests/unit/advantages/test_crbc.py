import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo.advantages.crbc import action_values, crbc, state_values
from scpo.advantages.groups import group_ids
from scpo.advantages.grpo import episode_advantage
from scpo.advantages.state_graph import state_graph
from scpo.states.identity import key_ids
from tests.support.step_batches import make_batch, random_batch, settings_of, take

# start: a twice, b once; a: c wins, x does not. Rows: start-a, a-c | start-a, a-x | start-b
BATCH = make_batch((0, 0, "a c", 10.0), (0, 1, "a x", 0.0), (0, 2, "b", 0.0))


def config(**changes):
    return settings_of("crbc", **({"state_key": "anchor", "beta": 0.5} | changes))


def values(batch, **changes):
    """V of the state that each row leaves, and Q of its action there."""
    graph = state_graph(batch, "anchor")
    action_N = group_ids(graph.source_N, key_ids(batch.action_N))
    return (
        state_values(batch, graph, config(**changes))[graph.source_N],
        action_values(batch, graph, action_N, config(**changes)),
    )


def step_term(batch, **changes):
    settings = config(omega=1.0, **changes)
    zeros_N = np.zeros(len(batch), np.float32)
    return crbc(batch, zeros_N, zeros_N, settings) - episode_advantage(batch, settings, settings.normalisation)


def test_hand_worked_values():
    v_a, v_start = 0.5 * (1 + 0) / 2, 0.5 * (0.25 + 0.25 + 0) / 3
    value_N, action_value_N = values(BATCH)
    assert value_N == pytest.approx([v_start, v_a, v_start, v_a, v_start])
    assert action_value_N == pytest.approx([0.5 * v_a, 0.5, 0.5 * v_a, 0, 0])


def test_hand_worked_advantages():
    # at start: Q - V = 1/24, 1/24, -1/12, deviation 0.059 < 0.1; at a: +-1/4, deviation 1/4
    expected = [10 / 24, 1, 10 / 24, -1, -10 / 12]
    assert step_term(BATCH) == pytest.approx(expected, abs=1e-5)
    assert step_term(BATCH, deviation_floor=0.5)[[1, 3]] == pytest.approx([0.5, -0.5], abs=1e-5)


def test_the_two_terms_have_their_weights():
    settings, zeros_N = config(omega_episode=2.0, omega=5.0), np.zeros(5, np.float32)
    episode_N = episode_advantage(BATCH, settings, settings.normalisation)
    assert crbc(BATCH, zeros_N, zeros_N, settings) == pytest.approx(2 * episode_N + 5 * step_term(BATCH), abs=1e-4)


def test_a_loop_is_worth_what_leaves_it():
    batch = make_batch((0, 0, "a c", 1.0), (0, 1, "a start a z", 0.0))  # anchors: start a | start a start a
    v_a = 0.3 / (1 - 0.27)  # V(a) = 0.9 (1 + V(start) + 0) / 3, V(start) = 0.9 V(a)
    assert values(batch, beta=0.9)[0] == pytest.approx([0.9 * v_a, v_a, 0.9 * v_a, v_a, 0.9 * v_a, v_a])


def test_a_state_where_one_action_was_tried_has_no_step_term():
    batch = make_batch((0, 0, "a c", 1.0), (0, 1, "a x", 0.0))
    assert step_term(batch).tolist() == pytest.approx([0, 1, 0, -1], abs=1e-5)


def test_an_action_with_two_outcomes_is_worth_their_mean():
    batch = make_batch((0, 0, "a c", 1.0), (0, 1, "a c", 0.0))  # c at a wins once and times out once
    assert values(batch)[1] == pytest.approx([0.125, 0.25, 0.125, 0.25])
    assert step_term(batch) == pytest.approx(np.zeros(4), abs=1e-6)


def test_without_a_success_and_alone_there_is_no_step_term():
    assert not step_term(make_batch((0, 0, "a b a b", 0.0), (0, 1, "b a", 0.0), (0, 2, "a", 0.0))).any()
    assert not step_term(make_batch((0, 0, "a b c", 1.0), (1, 1, "a", 0.0))).any()


def test_a_success_that_revisits_a_state_pays_for_the_detour():
    step_N = step_term(make_batch((0, 0, "a b a c", 1.0)), beta=0.9)
    assert step_N[3] > 0 > step_N[1]


def test_a_failure_is_worth_nothing_at_its_end_even_where_others_went_on_to_win():
    batch = make_batch((0, 0, "a c", 1.0), (0, 1, "b", 0.0), next_observation_N=["a", "c", "a"])
    assert values(batch)[1][2] == 0


def test_a_reward_before_the_end_is_no_success_of_that_step():
    early = take(BATCH, np.arange(5), reward_N=[10.0, 0, 0, 0, 0])
    assert np.array_equal(step_term(early), step_term(BATCH))


def test_the_depth_family():
    # visits end in success after 2 steps and 1 (from a): V_0(start) = 0.25 / 3, V_0(a) = 0.5 / 2
    value_N, action_value_N = values(BATCH, depth=0)
    assert value_N[[0, 1]] == pytest.approx([0.25 / 3, 0.25])
    assert action_value_N == pytest.approx([0.125, 0.5, 0.125, 0, 0])
    value_N, action_value_N = values(BATCH, depth=1)  # Q_1 = 0.5 V_0
    assert action_value_N == pytest.approx([0.5 * 0.25, 0.5, 0.5 * 0.25, 0, 0])
    assert value_N[[0, 1]] == pytest.approx([0.25 / 3, 0.25])


def test_depth_carries_success_over_to_siblings_that_only_met_it():
    # the second rollout was at a as well, but left; its way to a is worth something from depth 1 on
    batch = make_batch((0, 0, "a c", 1.0), (0, 1, "b a x", 0.0))
    reached = [values(batch, depth=depth)[1][2] > 0 for depth in (0, 1, 2, 3, "closure")]
    assert reached == [False, False, True, True, True]
    assert values(batch, depth=1)[1][3] > 0  # b to a


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_values_solve_their_equation(seed):
    batch, settings_ = random_batch(seed, copies=3), config(beta=0.98)
    graph = state_graph(batch, "anchor")
    value_V = state_values(batch, graph, settings_)
    for node in set(graph.source_N.tolist()):
        rows = np.flatnonzero(graph.source_N == node)
        next_N = np.where(graph.end_N[rows], batch.success_N[rows], value_V[graph.target_N[rows]])
        assert abs(value_V[node] - 0.98 * next_N.mean()) < 1e-10
    assert (value_V >= 0).all()
    assert (value_V <= 0.98).all()


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_on_a_tree_they_are_monte_carlos(seed):
    batch = random_batch(seed, states="ab")
    paths = {}
    for row in np.lexsort((batch.step_N, batch.trajectory_N)):
        before = paths.get((batch.trajectory_N[row], batch.step_N[row] - 1), "start")
        paths[batch.trajectory_N[row], batch.step_N[row]] = f"{before} {batch.action_N[row]}"
    history = [paths.get((k, t - 1), "start") for k, t in zip(batch.trajectory_N, batch.step_N, strict=True)]
    tree = take(batch, np.arange(len(batch)), anchor_N=history)
    assert values(tree, beta=0.9)[0] == pytest.approx(values(tree, beta=0.9, depth=0)[0], abs=1e-12)


@settings(max_examples=15)
@given(st.integers(0, 10_000))
def test_ever_deeper_tends_to_the_closure_and_v_is_the_mean_of_q(seed):
    batch = random_batch(seed)
    closed, deep = values(batch, beta=0.8), values(batch, beta=0.8, depth=120)
    assert np.allclose(closed, deep, atol=1e-10)
    source_N = state_graph(batch, "anchor").source_N
    for depth in (0, 1, 3, "closure"):
        value_N, action_value_N = values(batch, beta=0.8, depth=depth)
        for node in set(source_N.tolist()):
            assert action_value_N[source_N == node].mean() == pytest.approx(value_N[source_N == node][0], abs=1e-12)
