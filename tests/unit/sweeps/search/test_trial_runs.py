import pytest

from sweeps.search.trial_runs import TrialRun, Verdict, judge, mean_curve


def run(shown="DONE", curve=None, fresh=True, reason=None, seed=0):
    return TrialRun(f"run-{seed}", seed, shown, fresh, {0: 0.1, 4: 0.5} if curve is None else curve, reason)


@pytest.mark.parametrize("shown", ["NEW", "PENDING", "RUNNING", "QUEUED", "UNKNOWN", "INTERRUPTED"])
def test_a_trial_goes_on_while_one_of_its_runs_does(shown):
    assert judge([run(), run(shown)]) == (Verdict.GOES_ON, None)


def test_a_trial_is_complete_when_all_its_runs_are():
    assert judge([run(), run(seed=1)]) == (Verdict.COMPLETE, None)


@pytest.mark.parametrize("shown", ["FAILED", "LOST", "CANCELLED", "DAMAGED"])
def test_one_dead_run_fails_the_trial(shown):
    assert judge([run(), run(shown, reason="no disk", seed=1)]) == (Verdict.FAILED, f"run-1 {shown}: no disk")


@pytest.mark.parametrize("shown", ["FAILED", "LOST"])
def test_a_failure_from_before_the_trial_is_started_again(shown):
    old = run(shown, fresh=False)
    assert (judge([old])[0], old.startable) == (Verdict.GOES_ON, True)


def test_a_pruned_run_prunes_the_trial():
    assert judge([run(), run("PRUNED")]) == (Verdict.PRUNED, None)


def test_a_run_without_the_metric_is_no_result():
    verdict, reason = judge([run(curve={})])
    assert verdict is Verdict.FAILED
    assert "without a value of the objective" in reason


def test_the_curve_is_the_mean_at_the_steps_that_all_seeds_have_reached():
    assert mean_curve([run(curve={0: 0.0, 2: 0.4, 4: 0.9}), run(curve={0: 0.2, 2: 0.6})]) == {0: 0.1, 2: 0.5}
