import numpy as np

from scpo.advantages.anchors import anchor_groups
from tests.support.step_batches import make_batch, take


def test_anchor_groups_never_cross_rollout_groups():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "b b", 0), (1, 2, "a b", 0))
    # anchors: start a | start b | start a
    groups = anchor_groups(batch)
    assert groups[0] == groups[2]
    assert len({groups[k] for k in (0, 1, 3, 4, 5)}) == 5


def test_similar_anchors_join_the_first_group_that_they_resemble():
    # ratio("aaaa", "aaab") = 3/4, ratio("aaab", "aabb") = 3/4, ratio("aaaa", "aabb") = 1/2
    texts = ["aaaa", "aaab", "aabb", "aaaa"]
    batch = make_batch(*[(0, k, "x", 0) for k in range(4)], anchor_N=texts)
    same = anchor_groups(batch, 0.75)
    assert same[0] == same[1] == same[3] != same[2]
    # with the middle text first in position order it represents all of them
    middle_first = take(batch, np.arange(4), position_N=[1, 0, 2, 3])
    assert len(set(anchor_groups(middle_first, 0.75).tolist())) == 1
    assert np.array_equal(np.unique(anchor_groups(batch, 1.0)), np.unique(anchor_groups(batch)))


def test_a_text_stands_where_the_first_row_that_has_it_stands():
    batch = make_batch(*[(0, k, "x", 0) for k in range(4)], anchor_N=["aaaa", "aabb", "aaab", "aaaa"])
    same = anchor_groups(take(batch, np.arange(4), position_N=[3, 2, 1, 0]), 0.75)  # its last row leads
    assert same[0] == same[2] == same[3] != same[1]


def test_similar_anchors_never_cross_rollout_groups():
    batch = make_batch((0, 0, "x", 0), (1, 1, "x", 0), anchor_N=["aaaa", "aaaa"])
    assert len(set(anchor_groups(batch, 0.5).tolist())) == 2
