import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scpo.advantages.anchors import anchor_groups
from scpo.advantages.hgpo import hgpo, history_groups
from scpo.advantages.outcomes import step_returns
from tests.support.step_batches import (
    make_batch,
    noise,
    random_batch,
    settings_of,
    take,
)

# rows 0-2: a b c, 3-5: a b x, 6-7: y b; anchors: start a b | start a b | start y
BATCH = make_batch((0, 0, "a b c", 1), (0, 1, "a b x", 0), (0, 2, "y b", 0))
Q = np.array([0.5, 1, 2, 0, 0, 1, 0.25, 0], np.float32)


def advantages(batch, q_N, **changes):
    q_N = np.asarray(q_N, np.float32)
    return hgpo(batch, q_N, np.zeros_like(q_N), settings_of("hgpo", **changes))


def partition(id_N):
    return sorted(np.flatnonzero(id_N == i).tolist() for i in set(id_N.tolist()) - {-1})


def test_groups_of_deeper_levels_share_more_history():
    batch = make_batch((0, 0, "a b a", 1), (0, 1, "b a b", 0), (1, 2, "a b", 0))
    # anchors: start a b | start b a | start a (another group)
    levels = list(history_groups(batch, anchor_groups(batch), 2))
    assert partition(levels[0]) == [[0, 3], [1, 5], [2, 4], [6], [7]]
    assert partition(levels[1]) == [[1], [2], [4], [5], [7]]  # a after start is not a after b; steps 0 have no level 1
    assert partition(levels[2]) == [[2], [5]]
    assert np.flatnonzero(levels[1] < 0).tolist() == [0, 3, 6]


def test_hand_worked_levels_without_division():
    # level 0: start {0,3,6} mean 0.25; a {1,4} mean 0.5; b {2,5} mean 1.5; y alone
    # level 1: {1,4} and {2,5} again; level 2: {2,5} again
    level_0 = np.array([0.25, 0.5, 0.5, -0.25, -0.5, -0.5, 0, 0])
    assert np.allclose(advantages(BATCH, Q, normalisation="mean_norm"), level_0)
    assert np.allclose(advantages(BATCH, Q, normalisation="mean_norm", context=0), level_0)


def test_deeper_levels_weigh_more():
    batch = make_batch((0, 0, "a b", 1), (0, 1, "a b", 0), (0, 2, "y a b", 0))
    # anchors start a | start a | start y a: level 0 of row 1: {1,3,6}; level 1: {1,3}
    q_N = [0, 1, 0, 0, 0, 0, 2]
    paper = (1 * (1 - 1) + 2 * (1 - 0.5)) / 3
    code = (2 * (1 - 1) + 3 * (1 - 0.5)) / 5
    assert advantages(batch, q_N, normalisation="mean_norm")[1] == pytest.approx(paper)
    assert advantages(batch, q_N, normalisation="mean_norm", weights="code")[1] == pytest.approx(code, abs=1e-6)
    assert advantages(batch, q_N, normalisation="mean_norm", exponent=0.0)[1] == pytest.approx(0.25)
    assert advantages(batch, q_N, normalisation="mean_norm")[6] == 1  # only level 0 has two rows


def test_the_deviation_is_that_of_the_population():
    assert np.allclose(advantages(BATCH, Q)[[1, 4]], [1, -1], atol=1e-5)


def test_the_outcome_term_of_the_recipe():
    batch = make_batch((0, 0, "a", 1), (0, 1, "a", 0))  # A_E = ±0.5 without division, level 0: ±1.5
    answer = advantages(batch, [3, 0], normalisation="mean_norm", base_group=True)
    assert np.allclose(answer, [(0.5 + 1.5) / 2, -(0.5 + 1.5) / 2])
    assert np.allclose(advantages(batch, [3, 3], normalisation="mean_norm", base_group=True), [0.5, -0.5])


@pytest.mark.parametrize("weights", ["paper", "code"])
@pytest.mark.parametrize("normalisation", ["mean_std_norm", "mean_norm"])
def test_equal_values_give_exactly_zero(weights, normalisation):
    batch = make_batch(*[(0, k, "a b c", 0.1) for k in range(7)])
    q_N = np.tile(np.float32([0.7, 0.1, 0.3]), 7)
    answer = advantages(batch, q_N, weights=weights, normalisation=normalisation, std_floor=0.0)
    assert np.array_equal(answer, np.zeros(21, np.float32))


@given(seed=st.integers(0, 10_000), shift=st.floats(-5, 5))
def test_shifting_all_step_returns_of_a_group_changes_nothing(seed, shift):
    batch = random_batch(seed, groups=2, copies=3)
    q_N = step_returns(batch, 0.95)
    moved_N = np.where(batch.group_N == 0, q_N + np.float32(shift), q_N)
    assert np.allclose(advantages(batch, q_N), advantages(batch, moved_N), atol=1e-4)


@settings(max_examples=30)
@given(
    seed=st.integers(0, 10_000),
    weights=st.sampled_from(["paper", "code"]),
    mode=st.sampled_from(["mean_std_norm", "mean_norm"]),
)
def test_the_group_by_agrees_with_plain_loops_over_rows(seed, weights, mode):
    batch = random_batch(seed, states="abc")
    q_N = noise(batch, seed).astype(np.float32)
    anchor = {(k, t): a for k, t, a in zip(batch.trajectory_N, batch.step_N, batch.anchor_N, strict=True)}
    expected = np.zeros(len(batch))
    for row in range(len(batch)):
        total = weight = 0.0
        for level in range(min(2, batch.step_N[row]) + 1):

            def key(i, level=level):
                return batch.group_N[i], [
                    anchor.get((batch.trajectory_N[i], batch.step_N[i] - j)) for j in range(level + 1)
                ]

            values = q_N[[i for i in range(len(batch)) if batch.step_N[i] >= level and key(i) == key(row)]].astype(
                float
            )
            if len(values) >= 2 and values.std() >= 1e-5:
                w = level + (1 if weights == "paper" else 2)
                total += w * (q_N[row] - values.mean()) / (values.std() + 1e-6 if mode == "mean_std_norm" else 1)
                weight += w
        expected[row] = total / weight if weight else 0
    assert np.allclose(advantages(batch, q_N, weights=weights, normalisation=mode), expected, atol=1e-5)


def test_a_copy_has_its_originals_history():
    doubled = take(BATCH, [0, 1, 1, 2, 3, 4, 5, 6, 7])
    for level, copied in zip(
        history_groups(BATCH, anchor_groups(BATCH), 2), history_groups(doubled, anchor_groups(doubled), 2), strict=True
    ):
        assert np.array_equal(copied[[0, 1, 3, 4, 5, 6, 7, 8]], level)
        assert copied[1] == copied[2]
