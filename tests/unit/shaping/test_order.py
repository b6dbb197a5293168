import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.recorded import recorded
from scpo.errors import ConfigError
from scpo.shaping.order import balanced_partition, descents, generator, positions, processing_key
from tests.support.step_batches import make_batch, random_batch, take

LENGTHS = st.lists(st.integers(1, 60), min_size=0, max_size=60)


def test_hand_worked_partition():
    # sorted pairs (1 2) (3 9): spreads 1 and 6; merged large to small: 9 + 1 and 3 + 2
    assert balanced_partition([9, 1, 3, 2], 2) == [[0, 1], [2, 3]]
    assert positions([9, 1, 3, 2], "balanced", 2).tolist() == [0, 1, 2, 3]
    # (2 5) (6 9): equal spreads, 9 + 2 and 6 + 5 are equal too: the part that starts with the later row comes first
    assert balanced_partition([9, 5, 2, 6], 2) == [[3, 1], [0, 2]]
    assert positions([9, 5, 2, 6], "balanced", 2).tolist() == [2, 0, 3, 1]


def test_longest_first_keeps_ties_in_row_order():
    assert positions([3, 9, 3, 5], "length", 4).tolist() == [2, 0, 3, 1]


@pytest.mark.parametrize("order", ["chronological", "random"])
def test_orders_that_are_made_from_the_steps_do_not_change_the_batch(order):
    assert positions([3, 9, 3, 5], order, 4).tolist() == [0, 1, 2, 3]


def test_at_least_one_rank_is_needed():
    with pytest.raises(ConfigError, match="ranks = 0"):
        positions([1, 2], "balanced", 0)


@given(lengths=LENGTHS, ranks=st.integers(1, 6))
def test_parts_hold_every_row_once_and_are_equal_in_size(lengths, ranks):
    parts = balanced_partition(lengths, ranks)
    assert sorted(itertools.chain(*parts)) == list(range(len(lengths)))
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= (len(lengths) % ranks > 0)
    totals = [sum(lengths[row] for row in part) for part in parts]
    assert totals == sorted(totals, reverse=True)
    assert totals[0] - totals[-1] <= max(lengths, default=0)


@given(lengths=LENGTHS)
def test_one_rank_changes_nothing(lengths):
    assert positions(lengths, "balanced", 1).tolist() == list(range(len(lengths)))


@given(lengths=LENGTHS, ranks=st.integers(1, 6))
def test_each_rank_is_one_chronological_stretch(lengths, ranks):
    rows = np.argsort(positions(lengths, "balanced", ranks))
    assert (np.diff(rows) < 0).sum() <= ranks - 1


@given(seed=st.integers(0, 10_000), ranks=st.integers(1, 5))
def test_a_trajectory_has_at_most_ranks_minus_one_descents(seed, ranks):
    batch = random_batch(seed)
    lengths = np.random.default_rng(seed).integers(20, 80, len(batch))
    in_time = take(batch, np.lexsort((batch.step_N, batch.trajectory_N)))
    placed = take(in_time, np.arange(len(batch)), position_N=positions(lengths, "balanced", ranks))
    key_N = processing_key(placed, "balanced", (0, 0))
    for trajectory in np.unique(placed.trajectory_N):
        rows = np.flatnonzero(placed.trajectory_N == trajectory)
        steps = placed.step_N[rows[np.argsort(key_N[rows])]]
        assert (np.diff(steps) < 0).sum() <= ranks - 1


def test_recorded_batches_on_four_ranks_descend_at_most_three_times_and_on_one_never():
    for _, batch, _ in recorded():
        assert 1 < descents(batch, processing_key(batch, "balanced", (0, 0))) <= 3
        alone = take(batch, np.arange(len(batch)), position_N=np.arange(len(batch)))
        assert descents(alone, processing_key(alone, "balanced", (0, 0))) == 0
        assert descents(batch, processing_key(batch, "chronological", (0, 0))) == 0


def test_descents_of_a_hand_worked_batch():
    batch = make_batch((0, 0, "a b c", 0), (0, 1, "a b", 0), position_N=[2, 0, 1, 3, 4])  # steps 1 2 0 and 0 1
    assert descents(batch, processing_key(batch, "balanced", (0, 0))) == 0.5
    assert descents(make_batch(), processing_key(make_batch(), "balanced", (0, 0))) == 0


def test_a_step_is_processed_where_it_or_its_first_copy_stands():
    batch = take(make_batch((0, 0, "a b", 0)), [0, 1, 1], position_N=[1, 2, 0])
    assert processing_key(batch, "balanced", (0, 0)).tolist() == [1, 0, 0]
    assert processing_key(batch, "length", (0, 0)).tolist() == [1, 0, 0]


def test_random_order_depends_on_seed_step_and_trajectory_only():
    batch = make_batch((0, 0, "a b c d e f", 0), (0, 1, "a b c d e f", 0))
    key_N = processing_key(batch, "random", (1, 2))
    assert np.array_equal(key_N, processing_key(batch, "random", (1, 2)))
    assert not np.array_equal(key_N[:6], key_N[6:])
    for other in ((2, 2), (1, 3)):
        assert not np.array_equal(key_N, processing_key(batch, "random", other))
    longer = make_batch((0, 0, "a b c d e f", 0), (0, 5, "a b c d e f g h i", 0))
    assert np.array_equal(processing_key(longer, "random", (1, 2))[:6], key_N[:6])


def test_purposes_do_not_share_random_numbers():
    assert generator((0, 0), "order", 3).random() != generator((0, 0), "reference", 3).random()
