import errno
import os
import shutil
import socket
from dataclasses import replace

import pytest

from scpo.errors import RecordWriteError
from scpo.records import RunFolder, State, run_config
from scpo.records.files import file_sum, locked
from sweeps.launchers.run_process import Outcome
from sweeps.records import cancellation
from sweeps.search import driver
from sweeps.search.study import PRUNING, RETRY_OF, Study, read_trials
from sweeps.search.trial_runs import TrialRun, end_of, mean_curve, was_stopped
from tests.support.log_changes import LOG_CHANGES, change_log
from tests.support.searches import InstantLauncher, drive, plan_in


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(driver, "LEAST_POLL_S", 0.0)


def best(trials):
    return max((trial for trial in trials if trial.value is not None), key=lambda trial: trial.value)


def states(trials):
    return [trial.state.name for trial in trials]


def test_a_grid_finds_the_known_optimum(tmp_path):
    small = ("search.space.theta={kind:step,key:method.shaper.theta,low:0.6,high:0.8,step:0.1}", "search.trials=12")
    plan = plan_in(tmp_path, *small)
    trials, _ = drive(plan)
    assert best(trials).params == {"theta": 0.7, "soft_base": 0.2}
    assert best(trials).value == pytest.approx(0.91)  # the mean of two seeds, 0.02 apart


def test_tpe_comes_near_the_known_optimum_within_its_budget(tmp_path):
    words = ("search.trials=20", "search.parallel=1", "search.pruner=null", "seeds=[0]")
    trials, _ = drive(plan_in(tmp_path, *words, name="scpo"))
    assert states(trials) == ["COMPLETE"] * 20
    assert best(trials).value > 0.8 > trials[0].value  # 0.9 at the optimum, 0.7 as configured


@pytest.mark.parametrize("storage", ["journal", "sqlite"])
def test_a_second_call_finds_everything_done(tmp_path, storage):
    plan = plan_in(tmp_path, "search.trials=3", f"search.storage={storage}")
    before, _ = drive(plan)
    again = InstantLauncher()
    assert drive(plan, again)[0] == before
    assert again.started == []


def test_a_larger_budget_goes_on_from_where_the_search_was(tmp_path):
    drive(plan_in(tmp_path, "search.trials=3"))
    more = InstantLauncher()
    trials, _ = drive(plan_in(tmp_path, "search.trials=5"), more)
    assert (len(trials), len(more.started)) == (5, 2 * 2)


def test_parallel_limits_the_trials_under_way(tmp_path):
    plan = plan_in(tmp_path, "search.parallel=1", "search.trials=2")
    study, seen = Study(plan), []

    class Watched(InstantLauncher):
        def _run(self, folder, config):
            seen.append(len(study.mine()))
            super()._run(folder, config)

    driver.Driver(plan, study, Watched(), lambda _: None).run()
    study.close()
    assert set(seen) == {1}


def test_a_run_that_dies_fails_its_trial_which_is_retried_and_keeps_what_was_done(tmp_path):
    plan = plan_in(tmp_path, "search.trials=1")
    doomed = list(plan.runs(plan.default()))[1]
    launcher = InstantLauncher(
        fate=lambda run_id, attempt: State.FAILED if (run_id, attempt) == (doomed, 1) else State.DONE
    )
    trials, said = drive(plan, launcher)
    assert states(trials) == ["FAIL", "COMPLETE"]
    assert trials[1].user_attrs[RETRY_OF] == 0
    assert launcher.started.count(doomed) == 2
    assert len(launcher.started) == 3  # the other seed ran once
    assert f"trial 0: FAILED, {doomed} FAILED: on purpose" in said


def test_a_setting_that_always_fails_is_given_up_and_the_search_goes_on(tmp_path):
    plan = plan_in(tmp_path, "search.trials=2")
    doomed = set(plan.runs(plan.default()))
    launcher = InstantLauncher(fate=lambda run_id, _: State.FAILED if run_id in doomed else State.DONE)
    trials, _ = drive(plan, launcher)
    assert sorted(states(trials)) == ["COMPLETE", "FAIL", "FAIL"]


class Doomed(InstantLauncher):
    """Runs of the first setting fail, and record it as a run does."""

    def __init__(self, plan, state=State.FAILED):
        self.doomed = set(plan.runs(plan.default()))
        super().__init__(fate=lambda run_id, _: state if run_id in self.doomed else State.DONE)

    def _run(self, folder, config):
        super()._run(folder, config)
        status = folder.read_status()
        if status.state is State.FAILED:
            folder.update_status(state=State.FAILED, failures=status.failures + 1)


def test_retry_lets_a_search_try_a_setting_again_that_was_given_up(tmp_path):
    plan = plan_in(tmp_path, "search.trials=2", "search.retries=0", "seeds=[0]")
    assert sorted(states(drive(plan, Doomed(plan))[0])) == ["COMPLETE", "FAIL"]
    idle = Doomed(plan)
    assert len(drive(plan, idle)[0]) == 2
    assert idle.started == []

    (run_id,) = idle.doomed
    for trials in (3, 4):  # each time once
        cancellation.retry(RunFolder(tmp_path / run_id))
        assert len(drive(plan, Doomed(plan))[0]) == trials
    cancellation.retry(RunFolder(tmp_path / run_id))
    after, _ = drive(plan)
    assert (after[-1].state.name, after[-1].user_attrs[RETRY_OF], after[-1].params) == ("COMPLETE", 3, plan.default())


def test_retry_of_a_cancelled_run_lets_a_search_try_its_setting(tmp_path):
    plan = plan_in(tmp_path, "search.trials=1", "search.retries=0", "seeds=[0]")
    folder = run_config.ensure(next(iter(plan.runs(plan.default()).values())))
    cancellation.cancel(folder)
    assert states(drive(plan)[0]) == states(drive(plan)[0]) == ["FAIL"]
    cancellation.retry(folder)
    assert states(drive(plan)[0]) == ["FAIL", "COMPLETE"]


def test_a_given_up_setting_whose_run_a_sweep_has_finished_gets_its_value(tmp_path):
    plan = plan_in(tmp_path, "search.trials=1", "search.retries=0", "seeds=[0]")
    drive(plan, Doomed(plan))
    ((run_id, config),) = plan.runs(plan.default()).items()
    InstantLauncher().start({run_id: (RunFolder(tmp_path / run_id), config)}, "another sweep")
    assert states(drive(plan)[0]) == ["FAIL", "COMPLETE"]


class Full(InstantLauncher):
    """Runs fail for lack of space from the one of this number on, in one of three ways."""

    def __init__(self, way, first):
        super().__init__(free=1)
        self.way, self.first = way, first

    def _run(self, folder, config):
        if len(self.started) < self.first:
            return super()._run(folder, config)
        self.started.append(folder.run_id)
        reason = f"RecordWriteError: cannot write step.json: {os.strerror(errno.ENOSPC)}. What it held is intact"
        attempt = folder.new_attempt()
        if self.way == "recorded":
            folder.update_status(state=State.FAILED, attempt=attempt, reason=reason, failures=1)
        elif self.way == "lost":
            folder.update_status(state=State.RUNNING, attempt=attempt)
            folder.attempt_log(attempt).write_text(f"the run ended as FAILED, not recorded: {reason}\n")
        self._ended[folder.run_id] = Outcome(State.FAILED, reason)


@pytest.mark.parametrize("way", ["recorded", "lost", "not started"])
def test_a_full_disk_stops_the_search_and_does_not_count_against_the_trial(tmp_path, way):
    plan = plan_in(tmp_path, "search.trials=3", "search.retries=0", "search.parallel=1")
    second = list(plan.runs(plan.default()))[1]
    for finished in (1, 0):  # on the still full disk the same command stops again
        full = Full(way, finished)
        with pytest.raises(RecordWriteError) as error:
            drive(plan, full)
        assert error.value.errno == errno.ENOSPC
        said = (
            f"the search stops: {second} of trial 0 met a full disk (RecordWriteError: cannot write step.json: No space"
        )
        assert said in str(error.value)
        assert "make room and start the same command again" in str(error.value)
        assert states(read_trials(plan)) == ["RUNNING"]

    room = InstantLauncher()
    trials, _ = drive(plan, room)
    assert states(trials) == ["COMPLETE"] * 3
    assert room.started[0] == second
    assert len(room.started) == 5  # what had finished is not run again


def test_a_search_that_meets_a_full_disk_stops_its_other_runs(tmp_path):
    stopped = []

    class OneGoesOn(Full):
        def _run(self, folder, config):
            if self.started:
                folder.update_status(state=State.RUNNING, attempt=folder.new_attempt())
                stopped.append(folder)
            else:
                super()._run(folder, config)

        def stop(self):
            assert self.signals  # so that a run that dies now is INTERRUPTED
            stopped[0].update_status(state=State.INTERRUPTED, reason="asked to stop")

    plan = plan_in(tmp_path, "search.trials=1", "search.retries=0")
    with pytest.raises(RecordWriteError, match="met a full disk"):
        drive(plan, OneGoesOn("recorded", 0))
    assert stopped[0].read_status().state is State.INTERRUPTED
    assert states(drive(plan)[0]) == ["COMPLETE"]


def test_a_hopeless_trial_is_pruned_and_its_runs_with_it(tmp_path):
    """The best settings come first; a later one far below their median stops at its first validation."""
    pruner = "search.pruner={name:median,startup_trials:2,warmup_steps:0}"
    plan = plan_in(tmp_path, pruner, "search.trials=10", "search.parallel=1", "search.space.theta.low=0.3")

    class Slow(InstantLauncher):
        """Runs of a bad theta stay at their second step."""

        def _run(self, folder, config):
            if config.method.shaper.theta >= 0.6 - 1e-9:
                return super()._run(folder, config)
            self.steps = [0, 1]
            super()._run(folder, config)
            self.steps = None
            folder.update_status(state=State.INTERRUPTED)

    trials, _ = drive(plan, Slow())
    pruned = [trial for trial in trials if trial.state.name == "PRUNED"]
    assert pruned
    for trial in pruned:
        assert max(trial.intermediate_values) == 1
        for config in plan.runs(trial.params).values():
            status = driver.run_config.ensure(config).read_status()
            assert (status.state, f"trial {trial.number} of {plan.study_id}" in status.reason) == (State.PRUNED, True)


class Bad(InstantLauncher):
    """The metric of every run after the first trial's falls to 0, so that the median pruner stops it at step 1."""

    def _run(self, folder, config):
        if config.method.shaper.theta == 0.6 and config.method.shaper.soft_base == 0.4:
            return super()._run(folder, config)
        self.steps = [0, 1]
        super()._run(folder, config)
        self.steps = None
        folder.update_status(state=State.INTERRUPTED)


PRUNING_WORDS = ("search.trials=2", "search.parallel=1", "search.sampler.name=tpe", "search.sampler.seed=1")
PRUNER = "search.pruner={name:median,startup_trials:1,warmup_steps:0}"


class GoingOn(InstantLauncher):
    """Runs log the steps that they have not logged yet."""

    def _run(self, folder, config):
        self.steps = range(2 if folder.metrics.exists() else 0, config.trainer.steps + 1)
        super()._run(folder, config)
        self.steps = None


@pytest.fixture
def _worse_settings_later(monkeypatch):
    """Every setting but the default is worse at step 1 and better at the end."""

    def success(config, step):
        default = config.method.shaper.theta == 0.6 and config.method.shaper.soft_base == 0.4
        return 0.5 if default else 0.1 if step < 2 else 0.9

    monkeypatch.setattr("tests.support.searches.success", success)


@pytest.mark.usefixtures("_worse_settings_later")
def test_a_search_without_a_pruner_lets_runs_go_on_that_another_search_has_pruned(tmp_path):
    first = plan_in(tmp_path, *PRUNING_WORDS, PRUNER)
    before, _ = drive(first, Bad())
    assert states(before) == ["COMPLETE", "PRUNED"]
    pruned = list(first.runs(before[1].params))

    plan = plan_in(tmp_path, *PRUNING_WORDS, "search.pruner=null")
    launcher = GoingOn()
    trials, said = drive(plan, launcher)
    assert (states(trials), best(trials).number, launcher.started) == (["COMPLETE", "COMPLETE"], 1, pruned)
    for run_id in pruned:
        why = f"another search had pruned (pruned with trial 1 of {first.study_id})"
        assert f"note: trial 1 lets {run_id} go on, which {why}" in said
    assert drive(first, InstantLauncher())[0] == before


@pytest.mark.usefixtures("_worse_settings_later")
def test_a_search_that_was_deleted_decides_anew_about_runs_that_it_had_pruned(tmp_path):
    plan = plan_in(tmp_path, *PRUNING_WORDS, PRUNER)
    drive(plan, Bad())
    shutil.rmtree(plan.folder)
    again = GoingOn()
    trials, _ = drive(plan, again)
    # The first trial's runs are found done, and the second one's first steps are still worse.
    assert (states(trials), again.started) == (["COMPLETE", "PRUNED"], [])

    shutil.rmtree(plan.folder)
    patient = plan_in(tmp_path, *PRUNING_WORDS, PRUNER.replace("warmup_steps:0", "warmup_steps:2"))
    assert states(drive(patient, again)[0]) == ["COMPLETE", "COMPLETE"]
    assert len(again.started) == 2


def deciding(tmp_path):
    """A search with one trial, whose runs have folders."""
    plan = plan_in(tmp_path, "search.trials=1", "search.pruner=null")
    study, said = Study(plan), []
    trial = study.next_trial()
    folders = [run_config.ensure(config) for config in plan.runs(trial.params).values()]
    searching = driver.Driver(plan, study, InstantLauncher(free=0), said.append)
    return plan, study, folders, searching, said


def finish(folder, plan):
    """Let a run log all its steps and be DONE."""
    config = run_config.check(folder)
    InstantLauncher()._run(folder, config)


def test_a_trial_whose_runs_are_all_done_before_they_could_be_stopped_is_complete(tmp_path, monkeypatch):
    plan, study, folders, searching, said = deciding(tmp_path)
    monkeypatch.setattr(study, "report", lambda trial, curve: True)
    finish(folders[0], plan)
    folders[1].update_status(state=State.RUNNING, attempt=1, host=socket.gethostname())
    with locked(folders[1].lock):
        searching.step()
        assert folders[1].read_stop().state is State.PRUNED
        searching.step()
        assert states(study.trials()) == ["RUNNING"]
        finish(folders[1], plan)
    searching.step()
    (trial,) = study.trials()
    study.close()
    assert (trial.state.name, said) == ("COMPLETE", [f"trial 0: {trial.value:.3f} (0.700, 0.720)"])


def test_a_trial_with_one_run_done_and_one_stopped_is_pruned(tmp_path, monkeypatch):
    plan, study, folders, searching, said = deciding(tmp_path)
    monkeypatch.setattr(study, "report", lambda trial, curve: True)
    finish(folders[0], plan)
    searching.step()
    assert folders[1].read_status().state is State.PRUNED
    searching.step()
    assert (states(study.trials()), said) == (["PRUNED"], ["trial 0: pruned"])
    study.close()


def test_a_driver_that_was_killed_after_the_decision_leaves_the_pruning_to_the_next(tmp_path):
    plan, study, folders, _, _ = deciding(tmp_path)
    study.begin_pruning(study.trials()[0], {folder.run_id: 0 for folder in folders})
    study.close()
    launcher = InstantLauncher()
    trials, _ = drive(plan, launcher)
    assert (states(trials), launcher.started) == (["PRUNED"], [])
    assert [folder.read_status().state for folder in folders] == [State.PRUNED] * 2


def test_a_stopped_run_that_another_search_lets_go_on_is_not_stopped_again(tmp_path, monkeypatch):
    _, study, folders, searching, said = deciding(tmp_path)
    monkeypatch.setattr(study, "report", lambda trial, curve: True)
    folders[0].update_status(state=State.RUNNING, attempt=1, host=socket.gethostname())
    folders[1].update_status(state=State.RUNNING, attempt=1, host=socket.gethostname())
    with locked(folders[0].lock), locked(folders[1].lock):
        searching.step()
    assert study.trials()[0].user_attrs[PRUNING] == {folder.run_id: 1 for folder in folders}
    for folder in folders:
        cancellation.settle(folder)
        cancellation.retry(folder)
    with locked(folders[0].lock):
        folders[0].update_status(state=State.RUNNING, attempt=2)
        searching.step()
    assert (states(study.trials()), said) == (["PRUNED"], ["trial 0: pruned"])
    assert [folder.read_stop() for folder in folders] == [None, None]
    study.close()


def test_a_stop_signal_leaves_the_trials_to_the_next_call(tmp_path):
    plan = plan_in(tmp_path, "search.trials=3")
    launcher = InstantLauncher(fate=lambda *_: State.INTERRUPTED)
    launcher.signals = 1
    study = Study(plan)
    study.next_trial()
    assert driver.Driver(plan, study, launcher, lambda _: None).run() is False
    study.close()
    trials, _ = drive(plan)
    assert states(trials) == ["COMPLETE"] * 3


@pytest.mark.parametrize(("host", "starts"), [(socket.gethostname(), 0), ("another-host", 1)])
def test_a_run_that_a_dead_driver_left_on_this_host_keeps_its_slot(tmp_path, host, starts):
    class OneSlot(InstantLauncher):
        def _run(self, folder, config):
            super()._run(folder, config)
            self.free = 0

    plan, launcher = plan_in(tmp_path, "seeds=[0]", "search.trials=2"), OneSlot(free=1)
    study = Study(plan)
    left = driver.run_config.ensure(next(iter(plan.runs(study.next_trial().params).values())))
    left.update_status(state=State.RUNNING, host=host)
    with locked(left.lock):
        driver.Driver(plan, study, launcher, lambda _: None).step()
    study.close()
    assert len(launcher.started) == starts


def test_a_run_with_damaged_records_fails_its_trial_with_the_reason_and_stops_no_other(tmp_path):
    plan = plan_in(tmp_path, "search.trials=2", "search.retries=0")
    first = next(iter(plan.runs(plan.default()).values()))
    driver.run_config.ensure(first).status.write_text("{")
    trials, said = drive(plan)
    assert sorted(states(trials)) == ["COMPLETE", "FAIL"]
    assert any("status.json is damaged" in line for line in said)


def test_a_finished_run_that_lost_or_changed_a_line_gives_its_trial_no_value(tmp_path):
    class Spoiling(InstantLauncher):
        """The metrics of the first run change after it has finished."""

        def _run(self, folder, config):
            super()._run(folder, config)
            folder.note_sums({folder.metrics.name: file_sum(folder.metrics)})
            if len(self.started) == 1:
                lines = folder.metrics.read_text().splitlines(keepends=True)
                folder.metrics.write_text("".join(lines[:-1]))

    trials, said = drive(plan_in(tmp_path, "seeds=[0]", "search.trials=2", "search.retries=0"), Spoiling())
    assert sorted(states(trials)) == ["COMPLETE", "FAIL"]
    assert any("metrics.jsonl ends at step" in line for line in said)


@pytest.mark.parametrize("how", LOG_CHANGES)
def test_a_finished_run_with_a_changed_log_and_a_right_checksum_gives_its_trial_no_value(tmp_path, how):
    class Changing(InstantLauncher):
        """The metrics of the first run change after it has finished."""

        def _run(self, folder, config):
            super()._run(folder, config)
            folder.note_sums({folder.metrics.name: file_sum(folder.metrics)})
            if len(self.started) == 1:
                change_log(folder, how, step=4)

    trials, said = drive(plan_in(tmp_path, "seeds=[0]", "search.trials=2", "search.retries=0"), Changing())
    assert sorted(states(trials)) == ["COMPLETE", "FAIL"]
    assert any("metrics.jsonl" in line for line in said)


def test_what_another_driver_has_told_already_is_told_once(tmp_path):
    study = Study(plan_in(tmp_path, "search.trials=1"))
    trial = study.next_trial()
    study.complete(trial, 0.5, {0: 0.5})
    study.report(trial, {3: 0.1})
    study.fail(trial, "its process died")
    study.prune(trial)
    (told,) = study.trials()
    study.close()
    assert (told.state.name, told.value, told.intermediate_values) == ("COMPLETE", 0.5, {})


# End of a trial, from the states of its runs


def trial_run(state="DONE", curve=None, fresh=True, reason=None, seed=0):
    return TrialRun(f"run-{seed}", seed, State(state), fresh, {0: 0.1, 4: 0.5} if curve is None else curve, reason)


@pytest.mark.parametrize("state", ["NEW", "PENDING", "RUNNING", "QUEUED", "UNKNOWN", "INTERRUPTED"])
def test_a_trial_goes_on_while_one_of_its_runs_does(state):
    assert end_of([trial_run(), trial_run(state)]) == (None, None)


def test_a_trial_is_complete_when_all_its_runs_are():
    assert end_of([trial_run(), trial_run(seed=1)]) == (State.DONE, None)


@pytest.mark.parametrize("state", ["FAILED", "LOST", "CANCELLED", "DAMAGED"])
def test_one_dead_run_fails_the_trial(state):
    runs = [trial_run(), trial_run(state, reason="no disk", seed=1)]
    assert end_of(runs) == (State.FAILED, f"run-1 {state}: no disk")


@pytest.mark.parametrize("state", ["FAILED", "LOST"])
def test_a_failure_from_before_the_trial_is_started_again(state):
    old = trial_run(state, fresh=False)
    assert (end_of([old])[0], old.startable) == (None, True)


def test_a_trial_with_a_run_that_was_cancelled_before_fails_and_the_search_ends(tmp_path):
    plan = plan_in(tmp_path, "search.trials=1")
    cancelled = next(iter(plan.runs(plan.default()).items()))
    cancellation.cancel(run_config.ensure(cancelled[1]))
    study, said = Study(plan), []
    searching = driver.Driver(plan, study, InstantLauncher(), said.append)
    for _ in range(20):
        if not searching.step():
            break
    trials = study.trials()
    study.close()
    assert set(states(trials)) == {"FAIL"}
    assert f"trial 0: FAILED, {cancelled[0]} CANCELLED: cancelled" in said


def test_a_run_that_was_cancelled_before_the_trial_fails_it():
    old = trial_run("CANCELLED", fresh=False, reason="cancelled")
    assert (end_of([trial_run(), old]), old.startable) == ((State.FAILED, "run-0 CANCELLED: cancelled"), False)


def test_a_run_that_was_stopped_for_its_trial_prunes_it():
    stopped = replace(trial_run("PRUNED"), stopped=True)
    assert end_of([trial_run(), stopped]) == (State.PRUNED, None)


def test_a_run_that_another_search_has_pruned_is_startable_and_ends_no_trial():
    pruned = trial_run("PRUNED", fresh=False)
    assert (end_of([trial_run(), pruned]), pruned.startable) == ((None, None), True)


@pytest.mark.parametrize(
    ("state", "attempt", "asked", "stopped"),
    [
        ("PRUNED", 2, False, True),
        ("RUNNING", 2, True, False),  # it ends with its present step
        ("RUNNING", 3, False, True),  # stopped, and started again by another search
        ("INTERRUPTED", 2, True, True),  # stopped, and another search is about to start it
        ("INTERRUPTED", 2, False, False),  # not asked yet by this driver, whose predecessor died
        ("DONE", 2, True, False),
        ("DONE", 3, True, False),
    ],
)
def test_what_counts_as_stopped_for_a_trial_that_is_to_be_pruned(state, attempt, asked, stopped):
    assert was_stopped(State(state), attempt, 2, asked=asked) is stopped
    assert not was_stopped(State(state), attempt, None, asked=False)


def test_a_run_without_the_metric_is_no_result():
    end, reason = end_of([trial_run(curve={})])
    assert end is State.FAILED
    assert "without a value of the objective" in reason


def test_the_curve_is_the_mean_at_the_steps_that_all_seeds_have_reached():
    runs = [trial_run(curve={0: 0.0, 2: 0.4, 4: 0.9}), trial_run(curve={0: 0.2, 2: 0.6})]
    assert mean_curve(runs) == {0: 0.1, 2: 0.5}
