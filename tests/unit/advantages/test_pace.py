import numpy as np
import pytest

from scpo.advantages.pace import step_term
from tests.support.step_batches import make_batch, settings_of


def steps(batch, q_N, **changes):
    settings = settings_of("pace", **({"scale": "none", "std_floor": 0.0} | changes))
    return step_term(batch, np.array(q_N, np.float32), np.zeros(len(batch), np.float32), settings)


# one state, action x with 4, 0, 2, action y with 8: V = 3.5, Q(x) = 2, Q(y) = 8
BATCH = make_batch((0, 0, "x", 1), (0, 1, "x", 0), (0, 2, "x", 0), (0, 3, "y", 0))


def test_hand_worked_state():
    assert steps(BATCH, [4, 0, 2, 8]).tolist() == [-1.5, -1.5, -1.5, 4.5]


def test_the_deviation_of_the_states_returns_scales_it():
    deviation = np.std([4, 0, 2, 8], ddof=1)
    expected = np.array([-1.5, -1.5, -1.5, 4.5]) / (deviation + 1e-6)
    assert steps(BATCH, [4, 0, 2, 8], scale="deviation") == pytest.approx(expected)


def test_a_visit_alone_in_its_state_gets_nothing():
    assert steps(make_batch((0, 0, "x", 1)), [4]).tolist() == [0]


def test_another_identity_joins_states():
    batch = make_batch((0, 0, "x", 1), (0, 1, "y", 0), anchor_N=["at desk 1", "desk 1 is here"])
    assert steps(batch, [4, 0]).tolist() == [0, 0]
    assert steps(batch, [4, 0], states="entities").tolist() == [2, -2]
