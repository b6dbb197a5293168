import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scpo.advantages.anchors import anchor_groups
from scpo.advantages.g2po import g2po, graph_values
from scpo.advantages.grpo import grpo
from tests.support.step_batches import (
    make_batch,
    random_batch,
    settings_of,
    take,
)

BATCH = make_batch((0, 0, "a b", 10), (0, 1, "a x", 0))  # nodes: start {0,2}, a {1,3}


def advantages(batch, bonus_N=0.0, **changes):
    bonus_N = np.broadcast_to(np.float32(bonus_N), len(batch))
    return g2po(batch, np.full(len(batch), 7, np.float32), bonus_N, settings_of("g2po", **changes))


def values(batch, **changes):
    return graph_values(batch, anchor_groups(batch), settings_of("g2po", **changes))


def test_hand_worked_values_of_the_graph():
    value_N, next_N = values(BATCH)
    start, a = 10 * 0.95**2 / 2, 10 * 0.95 / 2
    assert np.allclose(value_N, [start, a, start, a])
    assert np.allclose(next_N, [a, 10, a, 0])


def test_hand_worked_advantages_without_division():
    start, a = 10 * 0.95**2 / 2, 10 * 0.95 / 2
    edge = np.array([a - start, 10 - a, a - start, -a])
    expected = np.array([5, 5, -5, -5]) + np.array([0, 5, 0, -5]) + edge - edge.mean()
    assert np.allclose(advantages(BATCH, normalisation="mean_norm"), expected, atol=1e-5)
    assert np.allclose(advantages(BATCH, normalisation="mean_norm", omega=0.0), [5, 5, -5, -5])


def test_the_bonus_enters_only_the_node_term():
    plain, shaped = (advantages(BATCH, bonus, normalisation="mean_norm") for bonus in (0.0, [0, 0, 0.5, 0]))
    assert np.allclose(shaped - plain, [-0.25, 0, 0.25, 0], atol=1e-6)


def test_a_node_that_one_row_leaves_ignores_the_bonus():
    batch = make_batch((0, 0, "a b", 10), (0, 1, "y x", 0))
    assert np.array_equal(advantages(batch, [0, 0.5, 0, 0]), advantages(batch))


def test_the_end_of_a_success_is_worth_what_is_configured():
    assert values(BATCH, success_value=1.0)[1].tolist()[1::2] == [1, 0]


@given(seed=st.integers(0, 10_000))
def test_the_outcome_term_is_grpo(seed):
    batch = random_batch(seed, copies=2)
    zero_N = np.zeros(len(batch), np.float32)
    assert np.array_equal(advantages(batch, omega=0.0), grpo(batch, zero_N, zero_N, settings_of("grpo")))


@given(seed=st.integers(0, 10_000), credit=st.floats(0.01, 1))
def test_a_single_credited_row_rises_where_others_leave_the_same_node(seed, credit):
    batch = random_batch(seed)
    row = seed % len(batch)
    bonus_N = np.where(np.arange(len(batch)) == row, np.float32(credit), np.float32(0))
    flat = {"normalisation": "mean_norm", "std_floor": 0.0}
    change = advantages(batch, bonus_N, **flat)[row] - advantages(batch, **flat)[row]
    shared = (anchor_groups(batch) == anchor_groups(batch)[row]).sum() > 1
    assert change > 0 if shared else change == 0


def test_a_failed_group_that_walks_one_path_gets_exactly_zero():
    batch = make_batch(*[(0, k, "a b c", 0) for k in range(4)])
    assert np.array_equal(advantages(batch), np.zeros(12, np.float32))


def test_copies_weigh_in_the_values():
    value_N, _ = values(take(BATCH, [0, 0, 1, 2, 3]))
    assert value_N[0] == pytest.approx(10 * 0.95**2 * 2 / 3)
