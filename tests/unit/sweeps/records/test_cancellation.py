import signal

import pytest

from scpo.errors import RecordError
from scpo.records import State, StopRequest, run_folders
from scpo.records.files import locked
from scpo.records.status import JobState, Observed
from sweeps import __main__ as command_line
from sweeps.records import cancellation
from sweeps.records.attempt import run as run_here
from sweeps.records.process import EXIT_INTERRUPTED
from sweeps.records.reconcile import Action, decide
from tests.faults import fake_train
from tests.support import fake_runs as fake


@pytest.fixture
def folder(tmp_path):
    return fake.make_run(tmp_path)


def test_a_waiting_run_is_cancelled_at_once_and_stays_so_until_retried(folder):
    assert cancellation.cancel(folder)
    assert folder.read_status().state is State.CANCELLED
    assert not cancellation.cancel(folder)
    cancellation.retry(folder)
    # It never began: not INTERRUPTED.
    assert folder.read_status().state is State.PENDING
    cancellation.cancel(folder)
    folder.job.touch()
    cancellation.retry(folder)
    state = folder.read_status().state
    # With an ended job, PENDING would be LOST, which `clean` deletes.
    assert Observed(state, job=JobState.ENDED).state is Observed(state).state is State.INTERRUPTED
    run_here(folder, fake_train.train)
    assert folder.read_status().state is State.DONE


def test_a_running_run_ends_at_its_next_step_with_a_checkpoint(tmp_path):
    folder = fake.make_run(tmp_path, "trainer.steps=1000")
    process = fake.start("fake_train.py", folder.path, step_s=0.05)
    fake.wait_until(lambda: len(fake.steps(folder)) > 2)
    assert cancellation.cancel(folder, State.PRUNED, "worse than the median")
    assert fake.finish(process)[0] in (130, -signal.SIGTERM)  # the signal may come when all is written down already
    status = folder.read_status()
    assert (status.state, status.reason) == (State.PRUNED, "worse than the median")
    assert folder.complete_checkpoints()[-1] == fake.steps(folder)[-1]


def test_what_is_over_cannot_be_cancelled_or_retried(folder):
    folder.update_status(state=State.DONE)
    assert not cancellation.cancel(folder)
    with pytest.raises(RecordError, match="is DONE: only runs that failed"):
        cancellation.retry(folder)
    assert not folder.stop.exists()


def test_what_a_search_pruned_can_go_on_for_an_experiment(folder):
    cancellation.cancel(folder, State.PRUNED, "worse than the median")
    assert not cancellation.cancel(folder)
    cancellation.retry(folder)
    run_here(folder, fake_train.train)
    assert folder.read_status().state is State.DONE


def test_a_running_run_cannot_be_retried(folder):
    with locked(folder.lock), pytest.raises(RecordError, match="is running"):
        cancellation.retry(folder)


def test_retry_forgets_the_failures(folder):
    folder.update_status(state=State.FAILED, failures=3)
    cancellation.retry(folder)
    assert (folder.read_status().state, folder.read_status().failures) == (State.FAILED, 0)


def test_a_search_that_lets_a_pruned_run_go_on_keeps_its_failures(folder):
    folder.update_status(state=State.FAILED, failures=3)
    cancellation.cancel(folder, State.PRUNED, "worse than the median")
    cancellation.retry(folder, keep_failures=True)
    assert (folder.read_status().state, folder.read_status().failures) == (State.INTERRUPTED, 3)
    assert not folder.stop.exists()


def test_a_run_whose_job_stops_it_gets_no_second_signal(folder, monkeypatch):
    signalled = []
    monkeypatch.setattr(cancellation, "_signal", signalled.append)
    folder.update_status(state=State.RUNNING)
    with locked(folder.lock):
        assert cancellation.request_end(folder, State.CANCELLED, "cancelled")
        cancellation.end_process(folder, job_stops_it=True)
        assert signalled == []
        cancellation.end_process(folder, job_stops_it=False)
        assert signalled == [folder]


def test_settling_writes_down_what_a_killed_run_was_asked_to_end_as(folder):
    folder.update_status(state=State.RUNNING)
    folder.request_stop(StopRequest(state=State.CANCELLED, reason="cancelled"))
    with locked(folder.lock):
        assert not cancellation.settle(folder)
    assert cancellation.settle(folder)
    assert folder.read_status().state is State.CANCELLED


def test_settling_leaves_a_run_that_was_only_interrupted(folder):
    folder.request_stop(StopRequest(state=State.INTERRUPTED, reason="preempted"))
    folder.update_status(state=State.RUNNING)
    assert cancellation.settle(folder)
    assert folder.read_status().state is State.RUNNING


def test_a_run_that_says_running_of_a_machine_that_is_gone_goes_on_after_retry(folder):
    folder.update_status(state=State.RUNNING, host="gone", boot="another")
    assert run_folders.observe(folder).alive
    cancellation.retry(folder)
    assert folder.read_status().state is State.INTERRUPTED
    assert decide(run_folders.observe(folder), max_failures=2).action is Action.START


def test_a_run_that_failed_stays_so_when_it_is_cancelled(tmp_path, capsys):
    failed, done = fake.make_run(tmp_path), fake.make_run(tmp_path, "seed=1")
    failed.update_status(state=State.FAILED, reason="KeyError: 'lr'", failures=1)
    done.update_status(state=State.DONE)
    assert command_line.main(["cancel", "*", "--runs-dir", str(tmp_path)]) == 0
    said = sorted(capsys.readouterr().out.splitlines())
    assert said == sorted([f"{failed.run_id}: left as it is, FAILED", f"{done.run_id}: left as it is, DONE"])
    assert failed.read_status().reason == "KeyError: 'lr'"
    assert failed.read_status().state is State.FAILED
    assert not failed.stop.exists()


@pytest.mark.parametrize(
    ("step", "checkpoint", "end"),
    [
        (0, False, "ends at once, or after its first step if that has begun: it has no checkpoint yet"),
        (1, False, "ends with a checkpoint after its present step"),
        (2, True, "ends with a checkpoint after its present step"),
        (
            1,
            True,
            "ends with a checkpoint after its present step, or at once if it is still loading: its last checkpoint is "
            "of step 1",
        ),
    ],
)
def test_a_run_without_a_step_is_not_promised_a_checkpoint(tmp_path, capsys, step, checkpoint, end):
    folder = fake.make_run(tmp_path)
    if checkpoint:
        folder.checkpoint(1).mkdir(parents=True)
        folder.mark_complete(1, {}, {})
    folder.update_status(state=State.RUNNING, step=step)
    with locked(folder.lock) as held:
        assert held
        assert command_line.main(["cancel", "*", "--runs-dir", str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{folder.run_id}: {end}\n"


def test_an_interrupted_run_that_is_cancelled_does_not_go_on_and_keeps_why_it_had_stopped(folder):
    folder.update_status(state=State.INTERRUPTED, reason="stopped in the middle of a step")
    assert cancellation.cancel(folder)
    status = folder.read_status()
    assert status.state is State.CANCELLED
    assert status.reason == "cancelled; was INTERRUPTED (stopped in the middle of a step)"
    assert decide(run_folders.observe(folder), max_failures=2).action is Action.LEAVE


@pytest.mark.parametrize(("attempt", "reason"), [(0, "cancelled"), (1, "cancelled; was INTERRUPTED")])
def test_a_run_that_never_started_was_not_interrupted(folder, attempt, reason):
    """Cancelled in the queue of Slurm, retried, and cancelled while it waits again."""
    folder.update_status(attempt=attempt)
    folder.job.touch()
    cancellation.cancel(folder)
    cancellation.retry(folder)
    assert folder.read_status().state is State.INTERRUPTED
    assert cancellation.cancel(folder)
    assert folder.read_status().reason == reason


@pytest.mark.parametrize("recorded", [True, False])
def test_a_sweep_that_comes_to_a_cancelled_run_keeps_why_it_had_stopped(folder, recorded):
    folder.update_status(state=State.INTERRUPTED, reason="stopped before the first step")
    if recorded:
        assert cancellation.cancel(folder)
    else:
        folder.request_stop(StopRequest(state=State.CANCELLED, reason="cancelled"))
    assert run_here(folder, fake_train.train, folder.new_attempt()) == EXIT_INTERRUPTED
    status = folder.read_status()
    assert status.state is State.CANCELLED
    assert status.reason == "cancelled; was INTERRUPTED (stopped before the first step)"
