import os

import pytest

from scpo.records import State
from scpo.records.files import locked
from scpo.records.status import JobState
from sweeps import __main__ as command_line
from sweeps.launchers.slurm.job_records import Job, task_path, write_job
from sweeps.launchers.slurm.observer import Observer
from sweeps.launchers.slurm.scheduler import ListedJob, SchedulerError
from sweeps.records import cancellation
from tests.support import fake_runs as fake


class Scheduler:
    """Answers of squeue, one after the other; the last one stays."""

    def __init__(self, *answers):
        self.answers, self.asked = list(answers), 0
        self.ended = {"7_0": "NODE_FAIL"}

    def jobs(self):
        self.asked += 1
        return self.answers[min(self.asked, len(self.answers)) - 1]

    def ends(self, job_ids, names=()):
        return self.ended


QUEUED = {"7_0": ListedJob("sweep-0a", JobState.QUEUED, "Resources")}
RUNNING = {"7_0": ListedJob("sweep-0a", JobState.RUNNING, "None")}
JOB = Job(name="sweep-0a", index=0, job_id="7_0", limit_s=60, warn_s=6, max_timeouts=1, timeouts=1, preemptions=2)


@pytest.fixture
def folder(tmp_path):
    made = fake.make_run(tmp_path)
    made.update_status(state=State.RUNNING, host="a-node")
    write_job(made, JOB)
    return made


def looked(folder, *answers):
    scheduler, slept = Scheduler(*answers), []
    observer = Observer(scheduler, slept.append)
    return observer, observer.observe(folder), scheduler.asked, len(slept)


def test_the_scheduler_is_asked_once_for_all_and_not_for_runs_without_jobs(tmp_path, folder):
    scheduler = Scheduler(RUNNING)
    observer = Observer(scheduler)
    observer.observe(fake.make_run(tmp_path, "seed=1"))
    assert scheduler.asked == 0
    for _ in range(3):
        assert observer.observe(folder).state == "RUNNING"
    assert scheduler.asked == 1


def test_a_run_is_lost_only_if_its_job_is_gone_twice(folder):
    _, seen, asked, slept = looked(folder, {}, {})
    assert (seen.state, asked, slept) == ("LOST", 2, 1)
    assert looked(folder, {}, RUNNING)[1].state == "RUNNING"
    assert looked(folder, {}, None)[1].state == "UNKNOWN"


@pytest.mark.parametrize("recorded", [State.RUNNING, State.PENDING, State.INTERRUPTED])
@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "REQUEUED", "SUSPENDED", "CONFIGURING", "COMPLETING"])
def test_a_job_that_squeue_does_not_list_may_live_by_sacct(folder, recorded, state):
    """Its run was LOST, "ended: RUNNING", or INTERRUPTED; the next call submitted it a second time."""
    folder.update_status(state=recorded)
    scheduler = Scheduler({})
    scheduler.ended = {"7_0": state}
    observer = Observer(scheduler, lambda _: None)
    seen = observer.observe(folder)
    assert (seen.state, scheduler.asked) == ("UNKNOWN", 2)
    assert observer.remark(folder, seen).endswith(f", squeue does not list it, and sacct says it is {state}")


def test_accounting_that_does_not_answer_leaves_a_run_unknown(folder):
    scheduler = Scheduler({})
    scheduler.ended = None
    observer = Observer(scheduler, lambda _: None)
    seen = observer.observe(folder)
    assert seen.state == "UNKNOWN"
    assert observer.remark(folder, seen).endswith(", squeue does not list it, and sacct does not answer")


@pytest.mark.parametrize("ended", [{}, {"7_0": "CANCELLED by 1000"}, {"7_1": "RUNNING"}])
def test_a_job_that_sacct_does_not_know_or_that_ended_is_over(folder, ended):
    scheduler = Scheduler({})
    scheduler.ended = ended
    assert Observer(scheduler, lambda _: None).observe(folder).state == "LOST"
    folder.update_status(state=State.INTERRUPTED)
    assert Observer(scheduler, lambda _: None).observe(folder).state == "INTERRUPTED"


def test_sacct_is_asked_once_for_all_runs_of_a_submission(tmp_path, folder):
    other = fake.make_run(tmp_path, "seed=1")
    write_job(other, JOB.model_copy(update={"index": 1, "job_id": "7_1"}))
    scheduler, asked = Scheduler({}), []

    def ends(job_ids, names):
        asked.append((*job_ids, *names))
        return {"7_0": "NODE_FAIL", "7_1": "PENDING"}

    scheduler.ends = ends
    observer = Observer(scheduler, lambda _: None)
    assert [observer.observe(one).state for one in (folder, other)] == ["LOST", "UNKNOWN"]
    assert observer.remark(folder, observer.observe(folder)).endswith("ended: NODE_FAIL")
    assert asked == [("7_0", "sweep-0a")]


def test_the_remark_says_what_a_person_would_ask(folder):
    observer, seen, *_ = looked(folder, QUEUED)
    assert observer.remark(folder, seen) == "job 7_0, 1x timed out, 2x preempted, waits: Resources"
    observer, seen, *_ = looked(folder, {}, {})
    assert observer.remark(folder, seen).endswith("ended: NODE_FAIL")
    beyond = {"7_0": ListedJob("sweep-0a", JobState.QUEUED, "PartitionTimeLimit")}
    observer, seen, *_ = looked(folder, beyond)
    remark = observer.remark(folder, seen)
    assert "waits: PartitionTimeLimit, never starts: a smaller max_time_h" in remark
    here = f"{folder.run_id} --runs-dir {folder.path.parent}"
    assert f"`python -m sweeps cancel {here}`, `python -m sweeps retry {here}`" in remark


def test_a_job_that_ended_before_its_run_wrote_anything_is_explained_by_its_own_log(tmp_path, folder, capsys):
    submission = tmp_path / ".submissions" / JOB.name
    submission.mkdir(parents=True)
    task_path(submission, 0).touch()
    (submission / "7_0_0_log.err").write_text("Traceback\nRuntimeError: no module\nsrun: error: node: task 0: Exited\n")
    observer, seen, *_ = looked(folder, {}, {})
    assert f"its log: RuntimeError: no module (python -m sweeps logs {folder.run_id} --runs-dir " in (
        observer.remark(folder, seen)
    )
    assert command_line.main(["logs", "*", "--runs-dir", str(tmp_path)]) == 0
    assert "    RuntimeError: no module" in capsys.readouterr().out.splitlines()

    # An attempt of an earlier job is not what ended; one of this job is.
    first = folder.new_attempt()
    folder.attempt_log(first).write_text("step 1\n")
    folder.point_latest(first)
    os.utime(folder.attempt_log(first), (1, 1))
    assert "no module" in observer.remark(folder, seen)
    folder.attempt_log(first).touch()
    assert observer.remark(folder, seen).endswith("ended: NODE_FAIL")
    assert command_line.main(["logs", "*", "--runs-dir", str(tmp_path)]) == 0
    assert "no module" not in capsys.readouterr().out


@pytest.fixture
def waiting(tmp_path, monkeypatch):
    """A run whose job waits, with its Slurm, which ``sweeps cancel`` asks."""
    folder = fake.make_run(tmp_path)
    write_job(folder, JOB)
    slurm = Scheduler(QUEUED)
    slurm.folder, slurm.cancelled, slurm.refuses = folder, [], False
    slurm.requests = []

    def cancel(job_id):
        slurm.requests.append(folder.read_stop().state)
        if slurm.refuses:
            raise SchedulerError("scancel: Socket timed out")
        slurm.cancelled.append(job_id)

    slurm.cancel = cancel
    monkeypatch.setattr(command_line, "Slurm", lambda: slurm)
    slurm.command = ["cancel", folder.run_id, "--runs-dir", str(tmp_path)]
    return slurm


@pytest.mark.parametrize("silent", ["squeue", "scancel"])
def test_cancel_says_that_slurm_did_not_answer_and_ends_the_job_when_it_is_called_again(waiting, silent, capsys):
    """It said "cancelled", and no later call took the job out of the queue."""
    if silent == "squeue":
        waiting.answers = [None]
    else:
        waiting.refuses = True
    for _ in range(2):
        assert command_line.main(waiting.command) == 1
        said = " ".join(capsys.readouterr().out.split())
        assert said.startswith(f"error: {waiting.folder.run_id}: Slurm did not answer, so its job may still be in")
        assert said.endswith(f": python -m sweeps {' '.join(waiting.command)}")
        assert waiting.folder.read_status().state is State.CANCELLED
        assert waiting.folder.read_stop().state is State.CANCELLED
    assert waiting.cancelled == []

    waiting.answers, waiting.refuses = [QUEUED], False
    assert command_line.main(waiting.command) == 0
    assert waiting.cancelled == ["7_0"]
    assert "was cancelled before; its job was still in the queue" in capsys.readouterr().out
    waiting.answers = [{}]
    assert command_line.main(waiting.command) == 0
    assert "left as it is, CANCELLED" in capsys.readouterr().out
    assert waiting.cancelled == ["7_0"]


@pytest.fixture
def unlisted(waiting):
    """As ``waiting``, but the answers of squeue are empty."""
    waiting.answers, waiting.ended = [{}], {"7_0": "PENDING"}
    return waiting


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
@pytest.mark.parametrize("recorded", [State.PENDING, State.INTERRUPTED, State.RUNNING])
def test_a_job_that_only_accounting_has_is_cancelled_with_scancel(unlisted, state, recorded, capsys):
    """It said "cancelled" without calling scancel, and the job could still start."""
    unlisted.ended = {"7_0": state}
    unlisted.folder.update_status(state=recorded, host="a-node")
    assert command_line.main(unlisted.command) == 0
    assert (unlisted.requests, unlisted.cancelled) == ([State.CANCELLED], ["7_0"])
    assert unlisted.folder.read_status().state is State.CANCELLED
    how = f"cancelled, and its job with scancel: squeue does not list it, and sacct says it is {state}"
    assert " ".join(capsys.readouterr().out.split()) == f"{unlisted.folder.run_id}: {how}"


def test_cancel_says_that_scancel_of_a_job_that_only_accounting_has_failed_and_tries_again(unlisted, capsys):
    unlisted.refuses = True
    for _ in range(2):
        assert command_line.main(unlisted.command) == 1
        said = " ".join(capsys.readouterr().out.split())
        assert said.startswith(f"error: {unlisted.folder.run_id}: Slurm did not answer, so its job may still be in")
        assert unlisted.folder.read_status().state is State.CANCELLED
    unlisted.refuses = False
    assert command_line.main(unlisted.command) == 0
    assert unlisted.cancelled == ["7_0"]
    assert "cancelled, and its job with scancel" in " ".join(capsys.readouterr().out.split())

    unlisted.ended = {"7_0": "CANCELLED by 1000"}
    assert command_line.main(unlisted.command) == 0
    assert "left as it is, CANCELLED" in capsys.readouterr().out
    assert unlisted.cancelled == ["7_0"]


def test_of_a_job_that_only_accounting_has_a_run_that_trains_is_left_to_stop(unlisted, monkeypatch):
    monkeypatch.setattr(cancellation, "_signal", pytest.fail)
    unlisted.ended = {"7_0": "RUNNING"}
    unlisted.folder.update_status(state=State.RUNNING, host="a-node")
    with locked(unlisted.folder.lock):
        assert command_line.main(unlisted.command) == 0
    assert unlisted.cancelled == []
    assert unlisted.folder.read_stop().state is State.CANCELLED


def test_scancel_is_called_after_the_stop_request_is_on_disk(waiting):
    assert command_line.main(waiting.command) == 0
    assert (waiting.requests, waiting.cancelled) == ([State.CANCELLED], ["7_0"])


def test_a_job_that_trains_is_left_to_stop_its_run(waiting, monkeypatch):
    signalled = []
    monkeypatch.setattr(cancellation, "_signal", signalled.append)
    waiting.folder.update_status(state=State.RUNNING)
    waiting.answers = [RUNNING]
    with locked(waiting.folder.lock):
        assert command_line.main(waiting.command) == 0
    assert (waiting.cancelled, signalled) == ([], [])
    assert waiting.folder.read_stop().state is State.CANCELLED


def test_a_run_that_trains_reads_its_cancellation_without_slurm(waiting, capsys):
    waiting.folder.update_status(state=State.RUNNING, host="a-node")
    waiting.answers = [None]
    with locked(waiting.folder.lock):
        assert command_line.main(waiting.command) == 0
    assert "ends at once, or after its first step" in capsys.readouterr().out
    assert waiting.folder.read_stop().state is State.CANCELLED


def test_an_orphan_is_adopted_under_the_id_that_the_scheduler_has(folder):
    write_job(folder, JOB.model_copy(update={"job_id": None}))
    observer, seen, *_ = looked(folder, QUEUED)
    assert seen.job is JobState.ORPHANED
    assert observer.adopt(folder).job_id == "7_0"
    assert observer.observe(folder).state == "QUEUED"
