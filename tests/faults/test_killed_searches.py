"""A search whose driver, workers or journal come to harm: no trial is lost, none is doubled, the result is the same."""

import itertools
import os
import random
import signal
import time

import pytest
from optuna.storages.journal import JournalFileBackend

from scpo.records import run_folders
from sweeps.launchers.slurm.launcher import Cluster
from sweeps.search import driver
from sweeps.search.space import key_of_params
from sweeps.search.study import Study
from tests.faults.fake_objective import OBJECTIVE, success
from tests.support import fake_runs as fake
from tests.support.fake_slurm import FakeSlurm, Killed, quick_records
from tests.support.searches import InstantLauncher, drive, plan_in

SMALL = ("search.trials=2", "search.parallel=1", "trainer.steps=1", "seeds=[0]")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch):
    monkeypatch.setattr(driver, "LEAST_POLL_S", 0.0)


def outcome(trials):
    """What a search came to, without who drove it and when."""
    return sorted((key_of_params(trial.params), trial.value) for trial in trials if trial.state.name == "COMPLETE")


def die(study):
    """What the kernel does to a process: its locks are gone, its files stay."""
    study._held.close()


def drive_until_killed(plan, launcher):
    study = Study(plan)
    try:
        driver.Driver(plan, study, launcher, lambda _: None).run()
    except Killed:
        die(study)
        return False
    study.close()
    return True


@pytest.mark.parametrize(
    "written",
    [pytest.param(False, marks=pytest.mark.slow, id="before the write"), pytest.param(True, id="after the write")],
)
def test_a_driver_killed_at_any_write_of_its_journal_loses_and_doubles_nothing(tmp_path, monkeypatch, written):
    calm, _ = drive(plan_in(tmp_path / "calm", *SMALL))
    append = JournalFileBackend.append_logs
    countdown = 0

    def mortal(backend, logs):
        nonlocal countdown
        countdown -= 1
        if countdown == 0 and not written:
            raise Killed
        append(backend, logs)
        if countdown == 0:
            raise Killed

    monkeypatch.setattr(JournalFileBackend, "append_logs", mortal)
    for fatal in range(2, 30):  # the first write makes the study, before there is a driver
        plan, launcher = plan_in(tmp_path / str(fatal), *SMALL), InstantLauncher()
        countdown = fatal
        survived = drive_until_killed(plan, launcher)
        countdown = 0
        trials, _ = drive(plan, launcher)
        assert [trial.state.name for trial in trials] == ["COMPLETE"] * 2
        assert outcome(trials) == outcome(calm)
        assert len(launcher.started) == len(set(launcher.started)) == 2
        if survived:
            return
    raise AssertionError("the search writes more than this test reaches")


def cuts(size, lines):
    """A stride that no line length shares, and both sides of every line break."""
    return sorted({*range(0, size, 61), *(end + side for end in lines for side in (-1, 0, 1) if end + side <= size)})


def test_a_journal_cut_at_any_byte_goes_on_to_the_same_result_and_runs_nothing_again(tmp_path):
    plan = plan_in(tmp_path, *SMALL)
    before, _ = drive(plan)
    journal = plan.folder / "journal.log"
    whole = journal.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for size in cuts(len(whole), ends):
        journal.write_bytes(whole[:size])
        launcher = InstantLauncher()
        trials, _ = drive(plan, launcher)
        assert (outcome(trials), launcher.started) == (outcome(before), []), size
        assert {trial.state.name for trial in trials} == {"COMPLETE"}


@pytest.mark.slow
def test_a_journal_cut_at_every_single_byte_opens_with_a_beginning_of_its_trials(tmp_path):
    plan = plan_in(tmp_path, *SMALL)
    before, _ = drive(plan)
    journal = plan.folder / "journal.log"
    whole = journal.read_bytes()
    for size in range(len(whole) + 1):
        journal.write_bytes(whole[:size])
        study = Study(plan)
        params = [trial.params for trial in study.trials()]
        study.close()
        assert params == [trial.params for trial in before][: len(params)]


CLUSTER = ("launcher=slurm_a800x4", "launcher.parallelism=2", "launcher.time_h=1", "search.trials=3", "seeds=[0]")


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "slurm").symlink_to(run_folders.Path(__file__).parents[2] / "slurm")
    with quick_records():
        yield FakeSlurm(measure=lambda config, step: {OBJECTIVE: success(config, step)})


def search_on_cluster(slurm, *words, fatal_step=None):
    """One driver: a look, then a job ends, and so on. It dies before its ``fatal_step``, or lives to the end."""
    plan = plan_in("runs", *CLUSTER, *words)
    study = Study(plan)
    launcher = Cluster(
        plan.base.launcher, run_folders.Path("runs"), slurm, slurm, outside=lambda: False, sleep=slurm.sleep
    )
    one = driver.Driver(plan, study, launcher, lambda _: None, slurm)
    for step in itertools.count():
        try:
            if step == fatal_step:
                raise Killed
            if not one.step():
                break
        except Killed:
            die(study)
            return []
        if slurm.queue:
            slurm.run(next(iter(slurm.queue)))
    study.close()
    return study.trials()


def test_on_a_cluster_a_search_goes_on_with_the_jobs_of_its_dead_driver(slurm):
    assert search_on_cluster(slurm, fatal_step=2) == []
    trials = search_on_cluster(slurm)
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 3
    assert len(slurm.submitted) == len(set(slurm.submitted)) == 3


def test_the_jobs_of_a_dead_driver_count_among_those_that_may_wait_or_run(slurm):
    at_a_time = []
    slurm.after_submit = lambda: at_a_time.append(len(slurm.queue))
    assert search_on_cluster(slurm, "search.trials=5", fatal_step=1) == []
    trials = search_on_cluster(slurm, "search.trials=5")
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 5
    assert max(at_a_time) == 2


def test_a_job_that_was_submitted_but_not_recorded_is_adopted(slurm):
    def dies():
        slurm.after_submit = lambda: None
        raise Killed

    slurm.after_submit = dies
    assert search_on_cluster(slurm) == []
    trials = search_on_cluster(slurm)
    assert [trial.state.name for trial in trials] == ["COMPLETE"] * 3
    assert len(slurm.submitted) == len(set(slurm.submitted)) == 3


def start_search(runs_dir, *words, **knobs):
    fixed = ("+search=scpo_theta_lambda", f"machine.runs_dir={runs_dir}", "launcher.slots=2", "seeds=[0]", *fake.QUICK)
    return fake.start_warm("fake_search.py", *fixed, *words, **knobs)


def records(runs_dir, *words):
    """The trials on disk; the drivers are over."""
    study = Study(plan_in(runs_dir, "seeds=[0]", *words))
    try:
        return study.trials()
    finally:
        study.close()


def assert_whole(runs_dir, trials, settings):
    """Each setting is complete once, its run is done and has every step."""
    assert len(outcome(trials)) == len({key for key, _ in outcome(trials)}) == settings
    assert {trial.state.name for trial in trials} <= {"COMPLETE", "FAIL"}
    assert fake.states(runs_dir) == ["DONE"] * settings
    assert all(fake.steps(folder) == [0, 1, 2, 3, 4] for folder in fake.folders(runs_dir))


def killing_rounds(runs_dir, words, rounds, rng):
    """Start the search again and again; kill the driver, or one of its workers, after a random while."""
    for turn in range(rounds):
        search = start_search(runs_dir, *words, step_s=0.05)
        fake.wait_until(lambda count=turn: len(fake.folders(runs_dir)) > count, seconds=60)
        time.sleep(rng.uniform(0.0, 1.0))
        workers = [status.pid for status in [one.read_status() for one in fake.folders(runs_dir)] if status.pid]
        if workers and turn % 2:
            os.kill(rng.choice(workers), signal.SIGKILL)
            time.sleep(0.3)
        search.kill()
        search.communicate()


@pytest.mark.parametrize("storage", ["journal", pytest.param("sqlite", marks=pytest.mark.slow)])
def test_drivers_and_workers_killed_at_random_points_end_as_an_undisturbed_search(tmp_path, storage):
    words = ("search.trials=3", f"search.storage={storage}", "search.retries=5")
    killing_rounds(tmp_path, words, 2, random.Random(f"kill {storage}"))
    code, output = fake.finish(start_search(tmp_path, *words), 200)
    assert code == 0, output
    assert_whole(tmp_path, records(tmp_path, *words), settings=3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_many_random_kills(tmp_path, seed):
    words = ("search.trials=6", "search.retries=20")
    killing_rounds(tmp_path, words, 6, random.Random(seed))
    code, output = fake.finish(start_search(tmp_path, *words), 200)
    assert code == 0, output
    assert_whole(tmp_path, records(tmp_path, *words), settings=6)


def test_two_drivers_share_a_study_and_neither_doubles_the_others_trials(tmp_path):
    words = ("search.trials=4", "search.parallel=2")
    drivers = [start_search(tmp_path, *words, step_s=0.05) for _ in range(2)]
    results = [fake.finish(one, 200) for one in drivers]
    assert {code for code, _ in results} <= {0, 3}, results
    trials = records(tmp_path, *words)
    assert_whole(tmp_path, trials, settings=4)
    assert len(trials) == 4
    assert all(fake.starts(folder) == 1 for folder in fake.folders(tmp_path))


def test_a_pruned_trials_runs_are_stopped_with_that_reason(tmp_path):
    pruner = "search.pruner={name:median,startup_trials:1,warmup_steps:0}"
    search = ("search.trials=3", "search.parallel=1", "search.space.theta.low=0.3", pruner)
    code, output = fake.finish(start_search(tmp_path, *search, step_s=0.1), 200)
    assert code == 0, output
    trials = records(tmp_path, *search)
    pruned = [trial for trial in trials if trial.state.name == "PRUNED"]
    assert pruned, output
    assert fake.states(tmp_path).count("PRUNED") == len(pruned)
