import numpy as np
import pytest

from scpo.advantages.anchors import anchor_groups, state_groups
from scpo.errors import StepBatchError
from tests.support.step_batches import make_batch, settings_of, take


def similar_groups(batch, ratio, key="anchor"):
    return state_groups(batch, settings_of("gigpo", anchors="similar", anchor_similarity=ratio, state_key=key))


def test_anchor_groups_never_cross_rollout_groups():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "b b", 0), (1, 2, "a b", 0))
    # anchors: start a | start b | start a
    groups = anchor_groups(batch)
    assert groups[0] == groups[2]
    assert len({groups[k] for k in (0, 1, 3, 4, 5)}) == 5


def test_states_tell_apart_what_the_observation_does_not():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "x a", 0), anchor_N=["start", "a", "start", "a"])
    assert len(set(anchor_groups(batch)[[1, 3]].tolist())) == 1
    told = take(batch, np.arange(4), state_N=["start", "a with b", "start", "a"], next_state_N=list("abcd"))
    same = anchor_groups(told, key="state")
    assert same[0] == same[2]
    assert len(set(same.tolist())) == 3
    similar = similar_groups(take(told, np.arange(4), state_N=["aaaa", "aaab", "bbbb", "bbba"]), 0.75, "state")
    assert similar[0] == similar[1] != similar[2] == similar[3]


def test_states_that_the_environment_does_not_give_are_missed_by_name():
    with pytest.raises(StepBatchError, match=r"state_key=state needs state_N, .*use state_key=anchor"):
        anchor_groups(make_batch((0, 0, "a", 1)), key="state")


def test_similar_anchors_join_the_first_group_that_they_resemble():
    # ratio("aaaa", "aaab") = 3/4, ratio("aaab", "aabb") = 3/4, ratio("aaaa", "aabb") = 1/2
    texts = ["aaaa", "aaab", "aabb", "aaaa"]
    batch = make_batch(*[(0, k, "x", 0) for k in range(4)], anchor_N=texts)
    same = similar_groups(batch, 0.75)
    assert same[0] == same[1] == same[3] != same[2]
    # with the middle text first in position order it represents all of them
    middle_first = take(batch, np.arange(4), position_N=[1, 0, 2, 3])
    assert len(set(similar_groups(middle_first, 0.75).tolist())) == 1
    assert np.array_equal(np.unique(similar_groups(batch, 1.0)), np.unique(anchor_groups(batch)))


def test_the_first_row_in_processing_order_leads_a_group_of_similar_anchors():
    batch = make_batch(*[(0, k, "x", 0) for k in range(4)], anchor_N=["aaaa", "aabb", "aaab", "aaaa"])
    same = similar_groups(take(batch, np.arange(4), position_N=[3, 2, 1, 0]), 0.75)  # its last row leads
    assert same[0] == same[2] == same[3] != same[1]


def test_similar_anchors_never_cross_rollout_groups():
    batch = make_batch((0, 0, "x", 0), (1, 1, "x", 0), anchor_N=["aaaa", "aaaa"])
    assert len(set(similar_groups(batch, 0.5).tolist())) == 2
