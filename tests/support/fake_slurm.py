"""A scheduler with a clock of its own, in the place of Slurm: jobs run in this process, as fast as they can."""

import contextlib
import functools
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from unittest.mock import patch

from scpo.records import RunFolder, code_record, provenance
from scpo.records.code_files import code_files
from scpo.records.files import write_json
from scpo.records.status import JobState
from scpo.records.tracker import Tracker
from scpo.schema.run import RunConfig
from sweeps.launchers.run_process import RunProcess
from sweeps.launchers.slurm import launcher as cluster
from sweeps.launchers.slurm import observer
from sweeps.launchers.slurm.job import Supervisor
from sweeps.launchers.slurm.job_limits import JobLimits
from sweeps.launchers.slurm.job_records import read_job
from sweeps.launchers.slurm.scheduler import ListedJob, NoSuchJobError, SchedulerError
from sweeps.records import attempt as entry
from tests.faults.counting import pin_panels, validation


class Killed(BaseException):
    """SIGKILL: nothing is recorded any more, locks are let go."""


@dataclass
class FakeJob:
    name: str
    folder: RunFolder
    state: JobState = JobState.QUEUED
    preempted: bool = False


def calm(_job: FakeJob, _step: int, _supervisor: Supervisor) -> None:
    """Nothing happens to the job."""


def training(config, step):
    """The metrics of a step."""
    return {"train/success_rate": (step / 7 + config.seed) / 100}


Fate = Callable[[FakeJob, int, Supervisor], None]


@dataclass
class FakeSlurm:
    """``answers`` False: slurmctld is down. ``lists`` False: squeue's list is empty. ``lost``: ids of jobs that only
    its accounting has.
    ``step_s``: how long a training step takes on its clock.

    ``step_waited_s``: how long a job has had its node when its process starts. ``preempts_at_start``: Slurm warned it
    meanwhile. ``while_loading``: what happens after the process of a run was started and before it reads its records.
    """

    step_s: float = 60.0
    step_waited_s: float = 0.0
    preempts_at_start: bool = False
    now_s: float = 0.0
    answers: bool = True
    lists: bool = True
    lost: set[str] = field(default_factory=set)
    job_limits: JobLimits = field(default_factory=JobLimits)
    queue: dict[str, FakeJob] = field(default_factory=dict)
    submitted: list[str] = field(default_factory=list)  # run ids, one for each time a job was made for it
    cancelled: list[str] = field(default_factory=list)  # job ids, one for each scancel
    before_submit: Callable[[], None] = lambda: None
    after_submit: Callable[[], None] = lambda: None
    while_loading: Callable[[Supervisor], None] = lambda _supervisor: None
    measure: Callable[[RunConfig, int], dict[str, float]] = training

    def __call__(self, submission):
        """In the place of sbatch."""
        self.before_submit()
        array = str(100 + len(self.submitted))
        single = len(submission.runs) == 1
        ids = [array if single else f"{array}_{index}" for index in range(len(submission.runs))]
        for job_id, folder in zip(ids, submission.runs, strict=True):
            self.queue[job_id] = FakeJob(submission.name, folder)
            self.submitted.append(folder.run_id)
        self.after_submit()
        return ids

    def jobs(self):
        if not self.answers:
            return None
        queue = self.queue if self.lists else {}
        return {key: ListedJob(job.name, job.state, "None") for key, job in queue.items()}

    def limits(self, account=None, qos=None):
        return self.job_limits

    def ends(self, job_ids, names=()):
        known = {key: "PENDING" if job.state is JobState.QUEUED else "RUNNING" for key, job in self.queue.items()}
        return known | dict.fromkeys(self.lost, "RUNNING")

    def lose(self, job_id):
        """The controller forgets a job, which accounting keeps (sacctmgr show runawayjobs)."""
        del self.queue[job_id]
        self.lost.add(job_id)

    def cancel(self, job_id):
        self._answer()
        self.cancelled.append(job_id)
        if self.queue.pop(job_id, None) is None:
            raise NoSuchJobError(f"Kill job error on job id {job_id}: Invalid job id specified")

    def requeue(self, job_id):
        self._answer()
        self.queue[job_id].state = JobState.QUEUED

    def preempted(self, job_id):
        return self.queue[job_id].preempted if self.answers else None

    def _answer(self):
        if not self.answers:
            raise SchedulerError("Unable to contact slurm controller")

    def sleep(self, seconds):
        self.now_s += seconds

    def run(self, job_id, fate: Fate = calm):
        """Let one queued job have the node until it ends or is requeued; returns the run's state in the end."""
        job = self.queue[job_id]
        job.state, job.preempted = JobState.RUNNING, self.preempts_at_start
        record = read_job(job.folder)
        if record.job_id is None:  # as _own_job does
            record = record.model_copy(update={"job_id": job_id})
        supervisor = Supervisor(job.folder, record, self, self.step_waited_s, lambda: self.now_s, self.sleep)
        if not supervisor.leave_at_start():
            process = FakeProcess(self, job, fate)
            process.supervisor = supervisor
            supervisor.run(process)
        if job_id in self.queue and job.state is JobState.RUNNING:
            del self.queue[job_id]
        return job.folder.read_status().state

    def run_until_killed(self, job_id, fate: Fate, node_fails: bool = False):
        """As ``run``; if the whole job is killed nothing is recorded, and a failed node's job is requeued by Slurm."""
        job = self.queue[job_id]
        try:
            self.run(job_id, fate)
        except Killed:
            job.state = JobState.QUEUED
            if not node_fails:
                self.queue.pop(job_id, None)

    def run_all(self, fate: Fate = calm):
        while queued := [key for key, job in self.queue.items() if job.state is JobState.QUEUED]:
            self.run(queued[0], fate)


class FakeProcess:
    """The run's process: ``poll`` lets it run to its end, and the supervisor looks once a step."""

    def __init__(self, slurm: FakeSlurm, job: FakeJob, fate: Fate):
        self.slurm, self.job, self.fate = slurm, job, fate
        self.attempt = job.folder.new_attempt()
        self.supervisor: Supervisor
        self._killed = False

    def poll(self):
        self.slurm.while_loading(self.supervisor)
        try:
            return entry.run(self.job.folder, self._train, self.attempt)
        except Killed:
            if not self._killed:  # it was not its supervisor: the whole job is gone
                raise
            return -9

    def terminate(self):
        os.kill(os.getpid(), signal.SIGTERM)

    def kill(self):
        self._killed = True

    def outcome(self, code, interrupted):
        return RunProcess(self.job.folder, self.attempt, None).outcome(code, interrupted)

    def _train(self, config, folder, should_stop):
        pin_panels(folder, config)
        done = folder.complete_checkpoints()
        with Tracker(folder, config) as tracker:
            tracker.resume_at(done[-1] if done else -1)
            for step in range(done[-1] + 1 if done else 0, config.trainer.steps + 1):
                self._step(step)
                metrics = validation(config, step) | self.slurm.measure(config, step)
                tracker.log(step, metrics, {"step_s": self.slurm.step_s})
                if should_stop() or step % config.trainer.checkpoint_every == 0:
                    folder.checkpoint(step).mkdir(parents=True, exist_ok=True)
                    folder.mark_complete(step, {}, tracker.sums)
                if should_stop():
                    return

    def _step(self, step):
        self.slurm.now_s += self.slurm.step_s
        self.fate(self.job, step, self.supervisor)
        self.supervisor.check()
        if self._killed:
            raise Killed


_code = functools.cache(code_files)


def _record_attempt(folder, config, number, weights):
    write_json(folder.provenance, {"attempts": {str(number): {}}})


@contextlib.contextmanager
def quick_records() -> Iterator[None]:
    """Without slow parts that are not under test: git, sums and a copy of the code, waiting for the disk."""
    code = _code()
    with (
        patch.object(os, "fsync", lambda _: None),
        patch.object(observer, "ASK_AGAIN_S", 0),
        patch.object(provenance, "git_commit", lambda: "a" * 40),
        patch.object(provenance, "record", _record_attempt),
        patch.object(code_record, "code_files", lambda: code),
        patch.object(cluster, "freeze", lambda runs_dir, *_: runs_dir / ".snapshots" / "0"),
    ):
        yield
