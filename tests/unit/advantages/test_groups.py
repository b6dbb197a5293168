import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scpo.advantages.groups import group_ids, moments, normalise


def test_group_ids_are_dense_and_need_all_keys_to_agree():
    assert group_ids(np.array([7, 7, -1, 7]), np.array([2, 3, 2, 2])).tolist() == [1, 2, 0, 1]
    assert group_ids(np.zeros(0, np.int64)).tolist() == []


def test_moments_of_a_hand_worked_table():
    stats = moments(np.array([1.0, 2, 3, 5, 5, 9]), np.array([0, 0, 0, 1, 1, 2]))
    assert stats.count_G.tolist() == [3, 2, 1]
    assert stats.mean_G.tolist() == [2, 5, 9]
    assert stats.std_G.tolist() == [1, 0, 0]


@given(value=st.floats(-1e6, 1e6, width=32), count=st.integers(2, 40))
def test_equal_values_have_no_deviation_at_all(value, count):
    value_N, id_N = np.full(count, value, np.float32), np.zeros(count, np.int64)
    stats = moments(value_N, id_N)
    assert stats.std_G[0] == 0
    for normalisation in ("mean_std_norm", "mean_norm"):
        assert not normalise(value_N, id_N, stats, normalisation, std_floor=0).any()


@given(values=st.lists(st.floats(-100, 100, width=32), min_size=2, max_size=30), data=st.data())
def test_the_order_of_rows_changes_no_bit(values, data):
    value_N = np.array(values)
    id_N = np.array(data.draw(st.lists(st.integers(0, 2), min_size=len(values), max_size=len(values))))
    id_N = np.unique(id_N, return_inverse=True)[1]
    order = np.array(data.draw(st.permutations(range(len(values)))))
    stats, permuted = moments(value_N, id_N), moments(value_N[order], id_N[order])
    assert np.array_equal(stats.mean_G, permuted.mean_G)
    assert np.array_equal(stats.std_G, permuted.std_G)


def test_a_group_below_the_floor_counts_as_flat():
    value_N, id_N = np.array([0, 1e-6, 0, 1e-3]), np.array([0, 0, 1, 1])
    stats = moments(value_N, id_N)
    for normalisation in ("mean_std_norm", "mean_norm"):
        answer = normalise(value_N, id_N, stats, normalisation, std_floor=1e-5)
        assert answer[:2].tolist() == [0, 0]
        assert answer[2] < 0 < answer[3]
