import os
import signal

import pytest

from sweeps.launchers.slurm import job as slurm_job
from sweeps.launchers.slurm.job import Cause, RunJob, cause_of_warning
from sweeps.launchers.slurm.job_records import Job, read_job, write_job
from tests.support import fake_runs as fake

JOB = Job(name="a", index=None, job_id="1", limit_s=3600, warn_s=600, max_timeouts=3)


@pytest.mark.parametrize(
    ("elapsed_s", "preempted", "cause"),
    [
        (10, True, Cause.PREEMPTION),
        (3500, True, Cause.PREEMPTION),  # Slurm's word goes first
        (3000, False, Cause.TIMEOUT),
        (10, None, Cause.PREEMPTION),  # no time limit is that near
        (2939, None, Cause.PREEMPTION),
        (2940, None, Cause.TIMEOUT),  # the warning may come a minute early
        (3500, None, Cause.TIMEOUT),
    ],
)
def test_a_time_limit_is_told_from_a_preemption(elapsed_s, preempted, cause):
    assert cause_of_warning(JOB, elapsed_s, preempted) is cause


@pytest.fixture
def run(tmp_path, monkeypatch):
    """A run with a job, whose train.py ends at once."""
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    monkeypatch.setattr(slurm_job, "TRAIN_SCRIPT", tmp_path / "train.py")
    (tmp_path / "train.py").write_text("raise SystemExit('it was started')")
    folder = fake.make_run(tmp_path)
    write_job(folder, JOB)
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR2, signal.SIGTERM)}
    yield folder
    for number, handler in before.items():
        signal.signal(number, handler)


class Slurm:
    """A scheduler that has or has not preempted the job."""

    def __init__(self, preempted):
        self.answer, self.requeued = preempted, []

    def preempted(self, job_id):
        return self.answer

    def requeue(self, job_id):
        self.requeued.append(job_id)


@pytest.mark.parametrize("preempted", [False, None])
def test_a_job_that_nobody_warned_starts_its_run(run, monkeypatch, preempted):
    monkeypatch.setattr(slurm_job, "Slurm", lambda: Slurm(preempted))
    with pytest.raises(RuntimeError, match="it was started"):
        RunJob(str(run.path))()


def test_a_job_that_was_preempted_while_python_started_is_requeued_and_counted(run, monkeypatch):
    slurm = Slurm(preempted=True)
    monkeypatch.setattr(slurm_job, "Slurm", lambda: slurm)
    assert RunJob(str(run.path))() == "INTERRUPTED"
    assert (slurm.requeued, read_job(run).preemptions) == (["1"], 1)
    assert run.read_status().state == "PENDING"


@pytest.mark.parametrize("own", ["SIGTERM", "SIGINT", "SIGHUP"])
@pytest.mark.parametrize("first", ["run", "job"])
def test_a_signal_to_all_processes_while_the_run_starts_is_not_its_failure(run, monkeypatch, first, own):
    """It was FAILED with a failure that counts, a notice, and a job that ended with an exception."""
    told, waited = [], []
    monkeypatch.setattr("sweeps.notify.notify", told.append)
    monkeypatch.setattr(slurm_job, "Slurm", lambda: Slurm(None))
    monkeypatch.setattr(slurm_job.Supervisor, "_wait_for_slurm", lambda _: waited.append(True))
    kill = f"kill -TERM {os.getpid()}"
    text = (
        "import os, signal, subprocess\n"
        f"command = ['sh', '-c', '{'sleep 0.3; ' if first == 'run' else ''}{kill}']\n"
        "process = subprocess.Popen(command, start_new_session=True)\n"
        f"{'' if first == 'run' else 'process.wait()'}\n"
        f"signal.signal(signal.{own}, signal.SIG_DFL)\n"
        f"os.kill(os.getpid(), signal.{own})\n"
    )
    slurm_job.TRAIN_SCRIPT.write_text(text)
    assert RunJob(str(run.path))() == "INTERRUPTED"
    status = run.read_status()
    assert (status.state, status.failures) == ("INTERRUPTED", 0)
    assert status.reason in ("stopped while it was loading; the same command goes on", "terminated by Slurm")
    assert (told, len(waited)) == ([], 1)


def test_a_preempted_job_whose_run_dies_while_it_starts_is_requeued_and_counted(run, monkeypatch):
    slurm = Slurm(preempted=None)
    monkeypatch.setattr(slurm_job, "Slurm", lambda: slurm)
    both = f"import os, signal; os.kill({os.getpid()}, signal.SIGUSR2); os.kill(os.getpid(), signal.SIGTERM)"
    slurm_job.TRAIN_SCRIPT.write_text(both)
    assert RunJob(str(run.path))() == "INTERRUPTED"
    assert (slurm.requeued, read_job(run).preemptions, run.read_status().failures) == (["1"], 1, 0)


def test_a_signal_to_the_run_only_is_a_failure(run, monkeypatch):
    monkeypatch.setattr(slurm_job, "Slurm", lambda: Slurm(None))
    monkeypatch.setattr("sweeps.launchers.run_process.SAME_SIGNAL_S", 0.2)
    slurm_job.TRAIN_SCRIPT.write_text("import os; os.kill(os.getpid(), 15)")
    with pytest.raises(RuntimeError, match="killed by SIGTERM"):
        RunJob(str(run.path))()
    assert run.read_status().failures == 1


def test_the_first_lines_of_a_job_name_its_node_and_what_is_installed_there(monkeypatch):
    monkeypatch.setattr(slurm_job, "installed_gpus", lambda: [("A800", 79.15)] * 2)
    monkeypatch.setattr(slurm_job, "driver_version", lambda: "580.65.06")
    versions = {"torch": "2.11.0", "verl": "0.9.1"}
    monkeypatch.setattr(slurm_job, "installed_version", versions.get)
    line = slurm_job.node_report()
    assert "driver 580.65.06, GPUs: A800 79 GiB, A800 79 GiB, torch 2.11.0, verl 0.9.1" in line
    assert "\n" not in line
    monkeypatch.setattr(slurm_job, "installed_gpus", lambda: [("NVIDIA GB10", None)])
    assert "GPUs: NVIDIA GB10 of unknown size, torch" in slurm_job.node_report()
    monkeypatch.setattr(slurm_job, "installed_gpus", list)
    monkeypatch.setattr(slurm_job, "driver_version", lambda: None)
    assert "driver none, GPUs: none" in slurm_job.node_report()
