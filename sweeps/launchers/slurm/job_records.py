"""Record ``runs/<id>/job.json`` of a run's scheduler job, written before the job is submitted."""

from collections.abc import Mapping
from pathlib import Path

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt

from scpo.records import RunFolder
from scpo.records.files import read_record, write_json
from scpo.records.run_folders import JOB_REMEDY
from scpo.records.status import JobState
from sweeps.launchers.slurm.scheduler import ListedJob

SUBMISSIONS = ".submissions"
"""Folder of the submissions, among the run folders."""

STARTED = "SCPO_JOB_STARTED"
"""Environment variable with the start time of sbatch's script, in seconds since 1970."""

# Seconds before the time limit at which a run is killed: a job that Slurm ends at its limit could
# not be requeued.
LAST_S = 20


class Job(BaseModel):
    """A run's job.

    Attributes:
        name: Name of its submission in Slurm.
        index: Its index in the submission's array; None for a job without an array.
        job_id: Its id in Slurm; None until known.
        limit_s: Time limit of the job, in seconds.
        warn_s: Seconds before the limit at which Slurm warns.
        max_timeouts: Number of ``fruitless`` time limits after which the run fails.
        timeouts: Number of times that the time limit cut the run off.
        preemptions: Number of times that a preemption cut the run off.
        fruitless: Number of time limits that were reached without a further step.
        last_step: Step of the last checkpoint; -1 before the first.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    index: NonNegativeInt | None
    job_id: str | None
    limit_s: PositiveInt
    warn_s: PositiveInt
    max_timeouts: NonNegativeInt
    timeouts: NonNegativeInt = 0
    preemptions: NonNegativeInt = 0
    fruitless: NonNegativeInt = 0
    last_step: int = -1

    def found_in(self, listed: Mapping[str, ListedJob]) -> str | None:
        """Id of this job in Slurm's list, or None. Names are compared too: Slurm reuses ids."""
        # An element of an array has the id `<array>_<index>`.
        ending = "" if self.index is None else f"_{self.index}"
        for id_, job in listed.items():
            if job.name == self.name and id_.endswith(ending) and self.job_id in (None, id_):
                return id_
        return None

    def state(self, listed: Mapping[str, ListedJob] | None) -> JobState:
        """State of the job in Slurm's list; ``listed`` is None if the scheduler does not answer."""
        if listed is None:
            return JobState.UNKNOWN
        job_id = self.found_in(listed)
        if job_id is None:
            return JobState.ENDED
        # Slurm has the job, but the sweep died before it could record the id.
        if self.job_id is None:
            return JobState.ORPHANED
        return listed[job_id].state


def read_job(folder: RunFolder) -> Job | None:
    """Read the run's job; None if it was never submitted. RecordError if the record is damaged."""
    path = folder.job
    if not path.exists():
        return None
    return read_record(path, Job, "job", JOB_REMEDY)


def write_job(folder: RunFolder, job: Job) -> Job:
    """Store the job."""
    write_json(folder.job, job.model_dump(mode="json"))
    return job


def restore_job(folder: RunFolder, job: Job | None) -> None:
    """Restore the record from before a submission that was refused; None: there was no record."""
    if job is None:
        folder.job.unlink(missing_ok=True)
    else:
        write_job(folder, job)


def task_path(submission: Path, index: int | None) -> Path:
    """Pickle of the task that a submission's job executes; written before sbatch is called."""
    return submission / f"task_{index or 0}.pkl"


def log_without_run(folder: RunFolder) -> Path | None:
    """Log of a run's job in which the run has written nothing yet; None if it has."""
    job = read_job(folder)
    if job is None or job.job_id is None:
        return None
    submission = folder.path.parent / SUBMISSIONS / job.name
    task = task_path(submission, job.index)
    own = folder.latest.resolve() / "stdout.log"
    # A log that is older than the submission is that of an earlier job.
    if own.exists() and not (task.exists() and own.stat().st_mtime < task.stat().st_mtime):
        return None
    # submitit's names. What the script does before Python starts is logged in the second.
    for name in (f"{job.job_id}_0_log.err", f"{job.job_id}_0_log.out"):
        path = submission / name
        if path.exists() and path.stat().st_size:
            return path
    return None
