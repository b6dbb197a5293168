import numpy as np
import pytest

from scpo.advantages.ecpo import step_term
from tests.support.step_batches import make_batch, settings_of


def steps(batch, q_N, **changes):
    settings = settings_of("ecpo", **({"normalisation": "mean_norm", "std_floor": 0.0} | changes))
    return step_term(batch, np.array(q_N, np.float32), np.zeros(len(batch), np.float32), settings)


def test_hand_worked_state():
    # one state, action x three times with 4, 0, 2, action y once with 8: mu = 14/4 = 3.5
    batch = make_batch((0, 0, "x", 1), (0, 1, "x", 0), (0, 2, "x", 0), (0, 3, "y", 0))
    # shrunk with kappa 2: x (3 * 2 + 2 * 3.5) / 5 = 2.6, y (8 + 2 * 3.5) / 3 = 5; their row mean is 3.2
    # B = (3 * 1.5**2 + 4.5**2) / 4 = 6.75, W = (4 + 4) / 4 = 2, trust tanh(4 / 4) * 6.75 / 8.75
    trust = np.tanh(1) * 6.75 / 8.75
    assert steps(batch, [4, 0, 2, 8]) == pytest.approx(trust * np.array([-0.6, -0.6, -0.6, 1.8]), rel=1e-5)


def test_a_lucky_action_gets_less_the_more_it_is_shrunk():
    batch = make_batch(*[(0, k, "x", 0) for k in range(3)], (0, 3, "y", 1))
    lucky = [steps(batch, [0, 1, 0, 9], kappa=kappa)[3] for kappa in (0.0, 2.0, 8.0)]
    assert lucky[0] > lucky[1] > lucky[2] > 0


def test_a_state_with_one_action_has_no_signal_and_gets_nothing():
    batch = make_batch((0, 0, "x", 1), (0, 1, "x", 0))
    assert steps(batch, [5, 1]).tolist() == [0, 0]


def test_white_space_makes_no_other_action():
    batch = make_batch(*[(0, k, "x", 0) for k in range(2)], action_N=["x", " x "])
    assert steps(batch, [5, 1]).tolist() == [0, 0]
