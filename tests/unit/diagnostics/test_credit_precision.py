import numpy as np
import pytest

from scpo.diagnostics.step_credit import credit_precision
from scpo.envs.base import StepResult, Task
from scpo.errors import EnvironmentFailure
from scpo.rollout import Slot, Trajectory, step_batch


class Countdown:
    """Five steps from won; "on" is a step nearer, "back" one further; "lost" has no way out, "broken" breaks."""

    def __init__(self):
        self.asked = []

    def remaining_plan(self, task, actions):
        self.asked.append(tuple(actions))
        if "broken" in actions:
            raise EnvironmentFailure("broken")
        return None if "lost" in actions else 5 - actions.count("on") + actions.count("back")


def play(*episodes):
    """Episodes are ("on back", won); their batch of one group."""
    trajectories = []
    for sibling, (actions, won) in enumerate(episodes):
        words = actions.split()
        results = [StepResult(w, True, w, 10.0 * (won and w is words[-1]), False, won) for w in words]
        trajectories.append(Trajectory(Slot(0, sibling, Task("a", "Pick", "0")), anchors=words, results=results))
    return trajectories, step_batch(trajectories, success_threshold=0.0)


def precision(trajectories, batch, credit, steps=100, environment=None):
    rng = np.random.default_rng(0)
    credited_N = np.array(credit) > 0
    return credit_precision(environment or Countdown(), trajectories, batch, credited_N, steps=steps, rng=rng)


def test_shares_by_hand():
    trajectories, batch = play(("on on", True), ("on back wait on", False), ("wait on", False))
    found = precision(trajectories, batch, [0, 0, 0.5, 0.5, 0, 0, 0, 0])
    assert found == {
        "credit/share": 2 / 6,
        "credit/precision": 1 / 2,  # on, back
        "credit/precision_uncredited": 1 / 2,  # wait, on: of the trajectory that got credit
        "credit/precision_random": 3 / 6,  # of both failures
    }


def test_without_credit_only_chance_is_measured():
    trajectories, batch = play(("on on", True), ("on wait", False))
    assert precision(trajectories, batch, [0, 0, 0, 0]) == {"credit/share": 0, "credit/precision_random": 1 / 2}


def test_without_failures_there_is_nothing_to_measure():
    trajectories, batch = play(("on on", True))
    assert precision(trajectories, batch, [0, 0]) == {}


@pytest.mark.parametrize("word", ["lost", "broken"])
def test_steps_without_a_known_plan_are_left_out(word):
    trajectories, batch = play((f"on wait {word} on", False))
    assert precision(trajectories, batch, [0, 0, 0, 0]) == {"credit/share": 0, "credit/precision_random": 1 / 2}


def test_no_more_steps_than_asked_for_are_looked_at():
    trajectories, batch = play((" ".join(["wait"] * 50), False))
    environment = Countdown()
    precision(trajectories, batch, [0.5] * 25 + [0] * 25, steps=3, environment=environment)
    assert len(environment.asked) <= 3 * 3 * 2


def test_the_same_seed_looks_at_the_same_steps():
    trajectories, batch = play((" ".join(["on", "wait"] * 25), False))
    first, second = Countdown(), Countdown()
    precision(trajectories, batch, [0] * 50, steps=5, environment=first)
    precision(trajectories, batch, [0] * 50, steps=5, environment=second)
    assert first.asked == second.asked
