"""Slurm job of one run: train; when Slurm reclaims the node, checkpoint and requeue."""

import contextlib
import logging
import os
import platform
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from scpo.errors import RecordError, RecordWriteError
from scpo.installed import installed_version
from scpo.records import RunFolder, State, StopRequest, run_config
from scpo.records.files import locked
from scpo.records.memory import driver_version, installed_gpus
from scpo.records.run_folders import command_on
from scpo.schema.run import RunConfig
from sweeps.launchers.run_process import STOPPED, RunProcess, wait_for_same_signal
from sweeps.launchers.slurm.job_records import LAST_S, STARTED, Job, read_job, write_job
from sweeps.launchers.slurm.scheduler import SchedulerError, Slurm
from sweeps.notify import notify_of_failure
from sweeps.records.process import LOG_FORMAT

if TYPE_CHECKING:
    from submitit.helpers import DelayedSubmission

logger = logging.getLogger(__name__)

POLL_S = 0.5
REPORTED_PACKAGES = ("torch", "transformers", "verl", "vllm", "ray", "flash-attn", "accelerate")

# sbatch's manual: the signal may be sent up to 60 seconds earlier than specified.
SIGNAL_EARLY_S = 60

# Several tries, because slurmctld may be restarting.
REQUEUE_TRIES, REQUEUE_PAUSE_S = 20, 3.0
TRAIN_SCRIPT = Path(__file__).resolve().parents[3] / "train.py"


class Cause(StrEnum):
    """Reason why a job must leave the node."""

    TIMEOUT = "time limit"
    PREEMPTION = "preempted"
    TERMINATION = "terminated by Slurm"


@dataclass
class Supervisor:
    """Watch the process of one run from its job.

    Attributes:
        folder: The run.
        job: Record of its job, with the counts of time limits and preemptions.
        scheduler: Slurm.
        ran_s: Seconds since the job got its node. Slurm may delay the job's step while the node is
            busy with the end of an earlier job, and a warning that it sends meanwhile is lost.
        now: Clock, in seconds.
        sleep: Waits for a number of seconds.
        process: Process of the run, once it is started.
        cause: Why the job must leave its node; None while it need not.
    """

    folder: RunFolder
    job: Job
    scheduler: Slurm
    ran_s: float = 0.0
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    # Not in the repr, which `signal.signal` makes of its handlers before there is a process.
    process: RunProcess = field(init=False, repr=False)
    cause: Cause | None = None
    _warned: bool = False
    _terminated: bool = False
    _cancelled: float | None = None
    _started: float = field(init=False)

    def __post_init__(self) -> None:
        # The time limit counts from the allocation, not from the start of this process.
        self._started = self.now() - self.ran_s

    def warn(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Handle SIGUSR2: the time limit or the end of a preemption's grace is near."""
        self._warned = True

    def terminate(self, _number: int = 0, _frame: FrameType | None = None) -> None:
        """Handle SIGTERM: the job is cancelled, or preempted on a cluster that does not warn."""
        self._terminated = True

    def leave_at_start(self) -> bool:
        """Requeue a job that was preempted while Python started; False if the run may be started.

        Signals of that time are ignored (``submission.START_QUIETLY``), so Slurm is asked. A time
        limit that is near needs no such question: ``check`` reads the clock.
        """
        if not self.scheduler.preempted(str(self.job.job_id)):
            return False
        self._note_end(Cause.PREEMPTION)
        logger.warning("%s: %s before the run was started", self.folder.run_id, self.cause)
        self._requeue()
        return True

    def run(self, process: RunProcess) -> State:
        """Wait for the process; returns the run's state at the end of the job."""
        self.process = process
        while (code := process.poll()) is None:
            self.check()
            self.sleep(POLL_S)
        if self.cause is None and code in STOPPED:
            self._look_for_cause(code)
        # Without a cause, nobody asked the process to end: that is a failure, not an interruption.
        outcome = process.outcome(code, interrupted=self.cause is not None)
        if outcome.state is not State.INTERRUPTED:
            return outcome.state
        if self.cause is Cause.TIMEOUT and self._is_stuck():
            return self._give_up()
        if self.cause is Cause.TERMINATION:
            self._wait_for_slurm()
        elif self.cause is not None:
            self._requeue()
        return State.INTERRUPTED

    def check(self) -> None:
        """React to signals and to the time limit; called at every poll."""
        elapsed = self.now() - self._started
        if self.cause is None:
            cause = self._present_cause(elapsed)
            if cause is not None:
                self._leave(cause, elapsed)
        else:
            self._repeat_request(self.cause)
        self._pass_cancellation_on()
        if self.cause is Cause.TIMEOUT and elapsed > self.job.limit_s - LAST_S:
            self.process.kill()

    def _present_cause(self, elapsed_s: float) -> Cause | None:
        """Why the job must leave its node now; None if it need not."""
        # The elapsed time replaces a warning that was lost.
        if self._warned or elapsed_s > self.job.limit_s - self.job.warn_s:
            preempted = self.scheduler.preempted(str(self.job.job_id))
            return cause_of_warning(self.job, elapsed_s, preempted)
        return Cause.TERMINATION if self._terminated else None

    def _look_for_cause(self, code: int) -> None:
        """Note the cause if a signal to all processes has ended the run before ``check`` saw it.

        A run that is still starting dies of such a signal at once.
        """
        wait_for_same_signal(code, lambda: self._warned or self._terminated, self.sleep)
        cause = self._present_cause(self.now() - self._started)
        if cause is not None:
            self._note_end(cause)
            logger.warning("%s: %s, and its process has ended", self.folder.run_id, cause)

    def _pass_cancellation_on(self) -> None:
        """Signal a cancelled run, because its canceller may be on another host.

        The run ends with a checkpoint after its present step, or at once if it has not finished a
        step yet. If it hangs, it is killed after ``warn_s``, the time that a checkpoint may take.
        """
        if self._cancelled is not None:
            if self.now() - self._cancelled > self.job.warn_s:
                self.process.kill()
        elif self.cause is None and self._is_cancelled():
            self._cancelled = self.now()
            self.process.terminate()

    def _is_cancelled(self) -> bool:
        """True if a person or a search has asked the run to end for good."""
        # A damaged request also stops the run, but does not count as a cancellation here.
        with contextlib.suppress(RecordError):
            request = self.folder.read_stop()
            return request is not None and request.state.settled
        return False

    def _leave(self, cause: Cause, elapsed_s: float) -> None:
        """Record the cause, then request a checkpoint.

        In this order, because a short grace period may end before the checkpoint is written.
        """
        self._count(cause)
        try:
            write_job(self.folder, self.job)
            self._request_stop(cause)
        except RecordWriteError as error:
            # On a full disk no stop can be requested; a signal stops the run instead.
            logger.error("%s", error)
            self.process.terminate()
        # How long Slurm lets a preempted or cancelled job go on is not known here.
        within = ""
        if cause is Cause.TIMEOUT:
            left_s = self.job.limit_s - LAST_S - elapsed_s
            within = f", or is killed in {max(0.0, left_s):.0f} s"
        logger.warning(
            "%s: %s; it checkpoints after its present step%s", self.folder.run_id, cause, within
        )

    def _request_stop(self, cause: Cause) -> None:
        """Ask the run to end, unless it was asked before; RecordWriteError if that fails."""
        # A damaged request ends the run, too.
        with contextlib.suppress(RecordError):
            if self.folder.read_stop() is None:
                self.folder.request_stop(StopRequest(state=State.INTERRUPTED, reason=cause))

    def _repeat_request(self, cause: Cause) -> None:
        """Ask the run to end once more if it has withdrawn the request.

        A process that has just started withdraws a request to interrupt the run, as one to an
        earlier attempt.
        """
        # On a full disk, `_leave` has signalled the run.
        with contextlib.suppress(RecordWriteError):
            self._request_stop(cause)

    def _note_end(self, cause: Cause) -> None:
        """Count the cause in the record of the job; no process has to be asked to end."""
        self._count(cause)
        # On a full disk it is not counted.
        with contextlib.suppress(RecordWriteError):
            write_job(self.folder, self.job)

    def _count(self, cause: Cause) -> None:
        """Note the cause, and count it in the job."""
        self.cause = cause
        counts = {
            "timeouts": self.job.timeouts + (cause is Cause.TIMEOUT),
            "preemptions": self.job.preemptions + (cause is Cause.PREEMPTION),
        }
        self.job = self.job.model_copy(update=counts)

    def _is_stuck(self) -> bool:
        """Record the step reached; True if too many time limits passed without a further step."""
        done = self.folder.complete_checkpoints()
        step = done[-1] if done else -1
        fruitless = self.job.fruitless + (step <= self.job.last_step)
        self.job = self.job.model_copy(
            update={"fruitless": fruitless, "last_step": max(step, self.job.last_step)}
        )
        # On a full disk this time limit is not counted.
        with contextlib.suppress(RecordWriteError):
            write_job(self.folder, self.job)
        return fruitless > self.job.max_timeouts

    def _give_up(self) -> State:
        """Record the run as FAILED because of its time limits."""
        hours = self.job.limit_s / 3600
        warn_s = self.job.warn_s
        reason = (
            f"cut off by its time limit of {hours:g} h {self.job.fruitless} times without a "
            f"further step, launcher.max_timeouts is {self.job.max_timeouts}; give a longer "
            f"launcher.warn_s ({warn_s} leaves a step and its checkpoint "
            f"{max(0, warn_s - LAST_S)} s) or launcher.time_h (it is cut to max_time_h of "
            "launcher.site), then "
            f"`{command_on(self.folder.path.parent, 'sweeps retry', self.folder.run_id)}` and the "
            "sweep again"
        )
        with locked(self.folder.lock) as free:
            if free:
                failures = self.folder.read_status().failures + 1
                self.folder.update_status(state=State.FAILED, reason=reason, failures=failures)
        notify_of_failure(self.folder.run_id, reason)
        return State.FAILED

    def _requeue(self) -> None:
        """Requeue the job under its id. If that fails, the next sweep starts the run again."""
        for left in reversed(range(REQUEUE_TRIES)):
            try:
                self.scheduler.requeue(str(self.job.job_id))
            except SchedulerError as error:
                logger.warning("not requeued yet, %d tries left: %s", left, error)
                self.sleep(REQUEUE_PAUSE_S)
            else:
                logger.warning("%s: requeued (%s)", self.folder.run_id, self.cause)
                return

    def _wait_for_slurm(self) -> None:
        """Wait for Slurm after a bare SIGTERM: it requeues a preempted job that is still alive."""
        end = self._started + self.job.limit_s
        while self.now() < end:
            self.sleep(POLL_S)


@dataclass(frozen=True)
class RunJob:
    """Callable that submitit pickles: only the path of the run folder, which holds the rest."""

    run: str

    def __call__(self) -> str:
        """Execute the run in this job; RuntimeError if it fails."""
        # In the place of submitit's handler, which would requeue the job without counting it.
        signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        logging.basicConfig(level=logging.INFO, format=LOG_FORMAT)
        folder = RunFolder(self.run)
        config = run_config.check(folder)
        job = _own_job(folder)
        supervisor = Supervisor(folder, job, Slurm(), _ran_s())
        signal.signal(signal.SIGUSR2, supervisor.warn)
        signal.signal(signal.SIGTERM, supervisor.terminate)
        if supervisor.leave_at_start():
            return str(State.INTERRUPTED)
        state = supervisor.run(self._start(folder, config, job))
        if state is State.FAILED:
            raise RuntimeError(f"{folder.run_id} FAILED: {folder.read_status().reason}")
        return str(state)

    def _start(self, folder: RunFolder, config: RunConfig, job: Job) -> RunProcess:
        process = RunProcess.start(folder, config, TRAIN_SCRIPT, {})
        logger.info(
            "%s: job %s on %s, process %d",
            folder.run_id,
            job.job_id,
            socket.gethostname(),
            process.process.pid,
        )
        logger.info("%s", node_report())
        return process

    def checkpoint(self) -> "DelayedSubmission":
        """Called by submitit's own handler, which may get a signal before `__call__` begins."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def node_report() -> str:
    """Describe the job's node in one line: Python, driver, GPUs, versions of the large packages."""
    sizes = [
        f"{name} of unknown size" if gib is None else f"{name} {gib:.0f} GiB"
        for name, gib in installed_gpus()
    ]
    gpus = ", ".join(sizes) or "none"
    versions = ", ".join(
        f"{name} {version}"
        for name in REPORTED_PACKAGES
        if (version := installed_version(name)) is not None
    )
    return (
        f"host {socket.gethostname()}, Python {platform.python_version()} ({sys.executable}), "
        f"driver {driver_version() or 'none'}, GPUs: {gpus}, {versions}"
    )


def cause_of_warning(job: Job, elapsed_s: float, preempted: bool | None) -> Cause:
    """Distinguish time limit and preemption: by Slurm's answer, or else by the time used.

    Args:
        job: The job.
        elapsed_s: Seconds since the job got its node.
        preempted: Slurm's answer; None if it does not answer.
    """
    if preempted is not None:
        return Cause.PREEMPTION if preempted else Cause.TIMEOUT
    earliest = job.limit_s - job.warn_s - SIGNAL_EARLY_S
    if elapsed_s >= earliest:
        return Cause.TIMEOUT
    return Cause.PREEMPTION


def _ran_s() -> float:
    """Seconds since the job got its node; 0 if its start was not recorded."""
    started = os.environ.get(STARTED)
    if not started:
        return 0.0
    return max(0.0, time.time() - float(started))


def _own_job(folder: RunFolder) -> Job:
    """Record of this job, with Slurm's id in case the submitting process died before writing it."""
    job = read_job(folder)
    if job is None:
        raise RecordError(f"{folder.run_id} has no job.json: it was not submitted by sweep.py")
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    index = os.environ.get("SLURM_ARRAY_TASK_ID")
    own = f"{array}_{index}" if array else os.environ["SLURM_JOB_ID"]
    if job.job_id == own:
        return job
    return write_job(folder, job.model_copy(update={"job_id": own}))
