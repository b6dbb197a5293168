import pytest

from scpo.records import State
from sweeps.search.trial_runs import TrialRun, end_of, mean_curve


def run(state="DONE", curve=None, fresh=True, reason=None, seed=0):
    return TrialRun(f"run-{seed}", seed, State(state), fresh, {0: 0.1, 4: 0.5} if curve is None else curve, reason)


@pytest.mark.parametrize("state", ["NEW", "PENDING", "RUNNING", "QUEUED", "UNKNOWN", "INTERRUPTED"])
def test_a_trial_goes_on_while_one_of_its_runs_does(state):
    assert end_of([run(), run(state)]) == (None, None)


def test_a_trial_is_complete_when_all_its_runs_are():
    assert end_of([run(), run(seed=1)]) == (State.DONE, None)


@pytest.mark.parametrize("state", ["FAILED", "LOST", "CANCELLED", "DAMAGED"])
def test_one_dead_run_fails_the_trial(state):
    assert end_of([run(), run(state, reason="no disk", seed=1)]) == (State.FAILED, f"run-1 {state}: no disk")


@pytest.mark.parametrize("state", ["FAILED", "LOST"])
def test_a_failure_from_before_the_trial_is_started_again(state):
    old = run(state, fresh=False)
    assert (end_of([old])[0], old.startable) == (None, True)


def test_a_pruned_run_prunes_the_trial():
    assert end_of([run(), run("PRUNED")]) == (State.PRUNED, None)


def test_a_run_without_the_metric_is_no_result():
    end, reason = end_of([run(curve={})])
    assert end is State.FAILED
    assert "without a value of the objective" in reason


def test_the_curve_is_the_mean_at_the_steps_that_all_seeds_have_reached():
    assert mean_curve([run(curve={0: 0.0, 2: 0.4, 4: 0.9}), run(curve={0: 0.2, 2: 0.6})]) == {0: 0.1, 2: 0.5}
