import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo.advantages.state_graph import distances, state_graph
from tests.support.step_batches import make_batch, random_batch, stated, take


def far(batch, key="anchor"):
    """Distance before and after each step, row by row."""
    graph = state_graph(batch, key)
    distance_V = distances(graph)
    return distance_V[graph.source_N].tolist(), distance_V[graph.target_N].tolist()


def test_a_diamond_has_the_shortest_way_from_each_of_its_corners():
    # start -> a -> c -> success, start -> b -> c -> success, and b -> x, where nobody goes on
    before, after = far(make_batch((0, 0, "a c d", 1), (0, 1, "b c d", 1), (0, 2, "b x", 0)))
    assert before == [3, 2, 1, 3, 2, 1, 3, 2]
    assert after == [2, 1, 0, 2, 1, 0, 2, 4]  # without a way: one more than the farthest that has one


def test_a_loop_leads_nowhere_and_back():
    before, after = far(make_batch((0, 0, "a b a b", 0), (0, 1, "a c", 1)))
    assert before == [2, 1, 2, 1, 2, 1]
    assert after == [1, 2, 1, 3, 1, 0]


def test_a_success_that_comes_back_to_a_state_takes_the_shorter_way_from_it():
    before, after = far(make_batch((0, 0, "a b a c", 1)))
    assert (before, after) == ([2, 1, 2, 1], [1, 2, 1, 0])


def test_a_failure_ends_in_the_state_that_its_last_step_led_to():
    batch = make_batch((0, 0, "a c", 1), (0, 1, "b a", 0), next_observation_N=["a", "c", "b", "a"])
    assert far(batch) == ([2, 1, 2, 2], [1, 0, 2, 1])  # it stopped where the other went on to win


def test_a_dead_end_is_farther_than_any_way():
    assert far(make_batch((0, 0, "a", 1), (0, 1, "x y z", 0))) == ([1, 1, 2, 2], [0, 2, 2, 2])


def test_without_a_success_all_states_are_equally_far():
    assert far(make_batch((0, 0, "a b", 0), (0, 1, "x", 0))) == ([1, 1, 1], [1, 1, 1])


def test_groups_share_neither_states_nor_success():
    graph = state_graph(make_batch((0, 0, "a", 1), (1, 1, "a", 1), (2, 2, "a", 0)), "anchor")
    assert len(set(graph.source_N.tolist()) | set(graph.target_N.tolist())) == len(graph) == 6
    assert graph.success_V.sum() == 2


def test_states_differ_by_the_key():
    batch = make_batch((0, 0, "a b c a d", 1))
    assert far(batch)[0] == [2, 1, 3, 2, 1]
    assert far(stated(batch), "state")[0] == [5, 4, 3, 2, 1]  # the second "a" comes after an even number of steps


def test_an_empty_batch_is_an_empty_graph():
    assert far(make_batch()) == ([], [])


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_nodes_have_the_same_numbers_for_every_order_of_rows(seed):
    batch = random_batch(seed, copies=4)
    rows = np.random.default_rng(seed).permutation(len(batch))
    graph, permuted = (
        state_graph(one, "anchor") for one in (batch, take(batch, rows, is_copy_N=batch.is_copy_N[rows]))
    )
    for name in ("source_N", "target_N", "end_N"):
        assert np.array_equal(getattr(graph, name)[rows], getattr(permuted, name))
    assert np.array_equal(graph.group_V, permuted.group_V)


@settings(max_examples=30)
@given(st.integers(0, 10_000))
def test_distances_are_those_of_a_search_from_the_success(seed):
    graph = state_graph(random_batch(seed, groups=2), "anchor")
    found = distances(graph)
    for group in range(2):
        seen = {int(node): 0 for node in np.flatnonzero(graph.success_V & (graph.group_V == group))}
        frontier = list(seen)
        while frontier:
            node = frontier.pop(0)
            for source in set(graph.source_N[graph.target_N == node].tolist()) - set(seen):
                seen[source] = seen[node] + 1
                frontier.append(source)
        none = max(seen.values(), default=0) + 1
        assert all(found[node] == seen.get(int(node), none) for node in np.flatnonzero(graph.group_V == group))


@pytest.mark.parametrize("key", ["anchor", "state"])
def test_the_next_state_of_a_step_is_the_one_that_the_next_step_leaves(key):
    batch = stated(random_batch(5, copies=3))
    graph, next_N = state_graph(batch, key), batch.timeline.neighbours(1)
    inner = np.flatnonzero(next_N >= 0)
    assert np.array_equal(graph.target_N[inner], graph.source_N[next_N[inner]])
    assert np.array_equal(graph.end_N, next_N < 0)
