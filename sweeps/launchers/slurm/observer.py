"""States of runs and their jobs, with one query of Slurm for all; cancelling a run with its job.

Before a run is reported as lost, or as interrupted, Slurm is asked a second time, and then its
accounting: an answer without any jobs may also be one that was cut off.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import Enum, IntEnum, auto

from scpo.records import RunFolder, State, run_folders
from scpo.records.files import check_readable, is_locked, locked
from scpo.records.run_folders import command_on
from scpo.records.status import JobState, Observed
from sweeps.launchers.run_process import tail
from sweeps.launchers.slurm.job_lines import is_end
from sweeps.launchers.slurm.job_records import Job, log_without_run, read_job, write_job
from sweeps.launchers.slurm.scheduler import (
    ListedJob,
    NoSuchJobError,
    SchedulerError,
    Slurm,
)
from sweeps.records import cancellation

# A job that ends leaves squeue a moment before its last output appears on a shared disk.
ASK_AGAIN_S = 1.0

# Beginnings of the lines that Slurm writes to a job's log.
SLURMS_LINES = ("srun:", "slurmstepd")

# Reasons of squeue for which a job never starts -> what to change.
NEVER_STARTS = {
    "PartitionTimeLimit": "a smaller max_time_h in launcher.site",
    "PartitionConfig": "fewer launcher.cpus or gpus",
}


class Observer:
    """Observer of runs at one moment.

    If a run has a job, Slurm is queried once for all runs, before their records are read: a run
    that ends in between is then seen as DONE and not as LOST. Its accounting is queried once for
    each submission of which squeue does not list a job.
    """

    def __init__(self, scheduler: Slurm, sleep: Callable[[float], None] = time.sleep) -> None:
        self.scheduler = scheduler
        self._sleep = sleep
        self._listed: Mapping[str, ListedJob] | None = None
        self._asked = 0
        # Answers of sacct by the name of the submission.
        self._accounts: dict[str, Mapping[str, str] | None] = {}

    def observe(self, folder: RunFolder) -> Observed:
        """State of a run; RecordError if its records are damaged or may not be read."""
        check_readable(folder.path)
        observed = self._once(folder)
        # Asked again once for all runs: by then, the last output of their ended jobs has appeared.
        if _lacks_job(observed) and self._asked == 1:
            self._ask_again()
            observed = self._once(folder)
        # Started again, the run would have two jobs.
        if _lacks_job(observed) and self.doubt(read_job(folder)):
            return replace(observed, job=JobState.UNKNOWN)
        return observed

    def remark(self, folder: RunFolder, observed: Observed, *, log: bool = True) -> str:
        """Remark on the run's job for the status table; ``log`` adds a lost job's last line."""
        job = read_job(folder)
        if job is None or observed.job is None:
            return ""
        parts = [f"job {job.job_id or job.name}"]
        for what, count in (("timed out", job.timeouts), ("preempted", job.preemptions)):
            if count:
                parts.append(f"{count}x {what}")
        listed = self._listed or {}
        job_id = job.found_in(listed)
        if job_id and observed.job is JobState.QUEUED:
            # squeue prints None for a job that has no reason yet.
            reason = listed[job_id].why
            if reason != "None":
                parts.append(f"waits: {reason}{_never_starts(folder, reason)}")
        if observed.job is JobState.UNKNOWN and self._listed is not None:
            parts.append(self.doubt(job))
        if observed.state is State.LOST:
            ended = (self._account_of(job) or {}).get(job.job_id or "")
            parts.append(f"ended: {ended or 'the scheduler does not know it'}")
            parts += _last_words(folder) if log else []
        return ", ".join(filter(None, parts))

    def adopt(self, folder: RunFolder) -> Job | None:
        """Record the id of a job whose driver died before it could; None if Slurm does not list it.

        Call it after ``observe``, which reads Slurm's list.
        """
        job = read_job(folder)
        job_id = job.found_in(self._listed or {}) if job else None
        if job and job_id:
            return write_job(folder, job.model_copy(update={"job_id": job_id}))
        return None

    def forget_lost_job(self, folder: RunFolder) -> None:
        """Forget the number of a cancelled run's job that squeue, asked twice, does not list.

        Call it for a run that a person starts again: where accounting keeps a job that Slurm has
        lost, the run would be UNKNOWN for good.
        """
        # Only the number: a sweep still looks for the job by its name, and adopts it if squeue
        # lists it after all. It does not ask sacct then, so squeue has to answer here first: a job
        # that waits since Slurm did not answer `cancel` keeps its number, and runs the run.
        job = read_job(folder)
        if job is None:
            return
        if not self._asked:
            self._ask()
        if self._asked == 1 and job.state(self._listed) is JobState.ENDED:
            self._ask_again()
        if job.state(self._listed) is not JobState.ENDED or not self.doubt(job):
            return
        with locked(folder.lock) as free:
            # Another `retry` and a sweep may have given it a new job meanwhile.
            cancelled = folder.read_status().state is State.CANCELLED
            if free and cancelled and read_job(folder) == job:
                write_job(folder, job.model_copy(update={"job_id": None}))

    def _once(self, folder: RunFolder) -> Observed:
        return run_folders.observe(folder, self.job_state(folder))

    def job_state(self, folder: RunFolder) -> JobState | None:
        """Slurm's answer about a run's job; None if the run never had one.

        Raises:
            RecordError: The record of the job is damaged.
        """
        job = read_job(folder)
        if job is None:
            return None
        if not self._asked:
            self._ask()
        return job.state(self._listed)

    def doubt(self, job: Job | None) -> str:
        """Why a job that squeue does not list may not be over; empty if it is.

        It is also empty if accounting does not know the job, or is disabled.
        """
        if job is None or job.job_id is None:
            return ""
        states = self._account_of(job)
        if states is None:
            return "squeue does not list it, and sacct does not answer"
        state = states.get(job.job_id)
        if state is None or is_end(state):
            return ""
        return f"squeue does not list it, and sacct says it is {state}"

    def _account_of(self, job: Job) -> Mapping[str, str] | None:
        """States of the jobs of this job's submission by id; None if accounting does not answer."""
        if job.job_id is None:
            return {}
        if job.name not in self._accounts:
            self._accounts[job.name] = self.scheduler.ends([job.job_id], [job.name])
        return self._accounts[job.name]

    def _ask_again(self) -> None:
        self._sleep(ASK_AGAIN_S)
        self._ask()

    def _ask(self) -> None:
        self._listed = self.scheduler.jobs()
        self._asked += 1


def _lacks_job(observed: Observed) -> bool:
    """True if the run would be started again because Slurm does not list its job.

    An interrupted run is included, since a requeued job waits to go on with it.
    """
    return observed.job is JobState.ENDED and observed.state in (State.LOST, State.INTERRUPTED)


def _never_starts(folder: RunFolder, reason: str) -> str:
    """What to do about a job that never starts; empty for other reasons of waiting."""
    if reason not in NEVER_STARTS:
        return ""
    runs_dir = folder.path.parent
    cancel = command_on(runs_dir, "sweeps cancel", folder.run_id)
    retry = command_on(runs_dir, "sweeps retry", folder.run_id)
    return f", never starts: {NEVER_STARTS[reason]}, then `{cancel}`, `{retry}` and the sweep again"


def _last_words(folder: RunFolder) -> list[str]:
    """Last line of a job's log if its run wrote none itself, apart from Slurm's own lines."""
    path = log_without_run(folder)
    lines = [] if path is None else tail(path)
    own = [line.strip() for line in lines if line.strip() and not line.startswith(SLURMS_LINES)]
    command = command_on(folder.path.parent, "sweeps logs", folder.run_id)
    return [f"its log: {own[-1]} ({command})"] if own else []


class Cancelled(IntEnum):
    """What ``cancel`` did; LEFT is false.

    Attributes:
        LEFT: Nothing, because the run was over before.
        ASKED: It asked the run to stop, or ended it; a job that waited was taken out of the queue.
        JOB_ENDED: The run was over before, but its job still waited; it took the job out.
        UNANSWERED: The run will not train, but Slurm did not answer: its job may be in the queue.
        UNLISTED: As ASKED or JOB_ENDED, by scancel of a job that squeue does not list and of which
            accounting has no end.
    """

    LEFT = 0
    ASKED = 1
    JOB_ENDED = 2
    UNANSWERED = 3
    UNLISTED = 4


class _JobEnd(Enum):
    """How the job of a cancelled run ends.

    Attributes:
        NOT_LISTED: It is over: Slurm does not list it, and accounting does not have it as live.
        BY_ITSELF: It stops the run that trains, and ends with it.
        CANCELLED: Slurm cancels it.
        UNANSWERED: Slurm did not answer.
        UNLISTED: Slurm cancels it, although squeue does not list it.
    """

    NOT_LISTED = auto()
    BY_ITSELF = auto()
    CANCELLED = auto()
    UNANSWERED = auto()
    UNLISTED = auto()


# What `cancel` returns for a run that was cancelled before.
_OF_LEFT_JOB = {
    _JobEnd.NOT_LISTED: Cancelled.LEFT,
    _JobEnd.BY_ITSELF: Cancelled.LEFT,
    _JobEnd.CANCELLED: Cancelled.JOB_ENDED,
    _JobEnd.UNANSWERED: Cancelled.UNANSWERED,
    _JobEnd.UNLISTED: Cancelled.UNLISTED,
}


def cancel(
    folder: RunFolder,
    scheduler: Slurm,
    state: State = State.CANCELLED,
    reason: str = "cancelled",
    look: Observer | None = None,
) -> Cancelled:
    """End a run and its job.

    ``look``: an observer of this moment, whose answers of accounting are used.
    """
    look = look or Observer(scheduler)
    job = read_job(folder)
    if job is None:
        asked = cancellation.cancel(folder, state, reason)
        return Cancelled.ASKED if asked else Cancelled.LEFT

    if not cancellation.request_end(folder, state, reason):
        if folder.read_status().state is not state:
            return Cancelled.LEFT
        # It was cancelled before, and Slurm may not have answered then.
        return _OF_LEFT_JOB[_cancel_job(folder, job, scheduler, look)]

    # After the request: a job that ends without one would be requeued or count as failed.
    end = _cancel_job(folder, job, scheduler, look)
    cancellation.end_process(folder, job_stops_it=end is _JobEnd.BY_ITSELF)
    # A run that still trains reads the request itself, without Slurm.
    if end is _JobEnd.UNANSWERED and folder.read_status().state is state:
        return Cancelled.UNANSWERED
    return Cancelled.UNLISTED if end is _JobEnd.UNLISTED else Cancelled.ASKED


def _cancel_job(folder: RunFolder, job: Job, scheduler: Slurm, look: Observer) -> _JobEnd:
    """Cancel the job of a run, unless it trains.

    A job that trains is left to end itself (``job.Supervisor``): ``scancel`` would kill it after
    Slurm's KillWait, which is shorter than a step of the paper's, without a checkpoint.
    """
    listed = scheduler.jobs()
    if listed is None:
        return _JobEnd.UNANSWERED
    job_id = job.found_in(listed)
    if job_id is None:
        return _cancel_unlisted(folder, job, scheduler, look)
    if listed[job_id].state is JobState.RUNNING and folder.read_status().state is State.RUNNING:
        return _JobEnd.BY_ITSELF
    try:
        scheduler.cancel(job_id)
    except SchedulerError:
        return _JobEnd.UNANSWERED
    return _JobEnd.CANCELLED


def _cancel_unlisted(folder: RunFolder, job: Job, scheduler: Slurm, look: Observer) -> _JobEnd:
    """Cancel a job that squeue does not list, unless it is over or trains.

    squeue's answer may have been lost, so a job of which accounting has no end may still start.
    """
    if job.job_id is None or not look.doubt(job):
        return _JobEnd.NOT_LISTED
    # The lock shows that it trains; without it, a run that was killed is recorded as RUNNING, too.
    if folder.read_status().state is State.RUNNING and is_locked(folder.lock):
        return _JobEnd.BY_ITSELF
    try:
        scheduler.cancel(job.job_id)
    except NoSuchJobError:
        # Accounting keeps a job that Slurm has lost.
        return _JobEnd.NOT_LISTED
    except SchedulerError:
        return _JobEnd.UNANSWERED
    return _JobEnd.UNLISTED
