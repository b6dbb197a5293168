import numpy as np
import pytest

from scpo.advantages.proxmo import proxmo, step_term
from tests.support.step_batches import make_batch, settings_of


def steps(batch, q_N, **changes):
    zero_N = np.zeros(len(batch), np.float32)
    return step_term(batch, np.array(q_N, np.float32), zero_N, settings_of("proxmo", **changes))


def test_hand_worked_baselines():
    # two rows see the same words, the third none of them: cosines 1, 1, 0 with T = 1
    batch = make_batch(*[(0, k, "x", 0) for k in range(3)], anchor_N=["red mug", "mug red", "blue pen"])
    e = np.e
    baseline = (e * 0 + e * 2 + 6) / (2 * e + 1), (0 + 2 + e * 6) / (e + 2)
    expected = [0 - baseline[0], 2 - baseline[0], 6 - baseline[1]]
    assert steps(batch, [0, 2, 6], temperature=1.0) == pytest.approx(expected)


def test_rows_of_other_groups_are_no_baseline():
    batch = make_batch((0, 0, "x", 0), (1, 1, "x", 0), anchor_N=["red mug", "red mug"])
    assert steps(batch, [5, 1]).tolist() == [0, 0]


def outcome(batch, **changes):
    zero_N = np.zeros(len(batch), np.float32)
    return proxmo(batch, zero_N, zero_N, settings_of("proxmo", omega=0.0, invalid_penalty=0.0, **changes))


def test_the_modulation_as_the_paper_means_it_and_as_the_code_clamps_it():
    # one success of four: p = 1/4; the code's mean score of 2.5 is clamped to 1
    batch = make_batch((0, 0, "x", 10), *[(0, k, "x", 0) for k in (1, 2, 3)])

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    paper = [7.5 * (1 + sigmoid(0.75) - 0.5), -2.5 * (1 + sigmoid(-0.25) - 0.5)]
    code = [7.5, -2.5 * (1 + sigmoid(-1) - 0.5)]
    found = outcome(batch, alpha=1.0, beta=1.0, success_rate="as_paper")
    assert found[:2] == pytest.approx(paper)
    assert outcome(batch, alpha=1.0, beta=1.0, success_rate="as_code")[:2] == pytest.approx(code)


def test_texts_without_words_share_the_groups_mean():
    batch = make_batch(*[(0, k, "x", 0) for k in range(2)], anchor_N=["!", "?"])
    assert steps(batch, [4, 0]).tolist() == [2, -2]
