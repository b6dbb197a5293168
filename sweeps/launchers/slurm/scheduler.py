"""Slurm's commands: list our jobs, their ends and limits; cancel or requeue a job.

Sites print notices, and an answer may be cut off: a job that an answer lacks may exist.
"""

import os
import pwd
import re
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from scpo.errors import ScpoError
from scpo.records.status import JobState
from sweeps.launchers.slurm.job_limits import (
    JobLimits,
    array_size_of,
    number,
    parse_fields,
    smallest,
)
from sweeps.launchers.slurm.job_lines import ABOUT_A_JOB, CutOffError, parse_job_lines, state_word

# slurmctld may be slow to answer on a busy cluster.
COMMAND_TIMEOUT_S = 60

# States of waiting jobs. squeue lists live jobs only, so all other states count as running.
QUEUED = (
    "PENDING",
    "CONFIGURING",
    "REQUEUED",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
    "RESV_DEL_HOLD",
    "SPECIAL_EXIT",
)


# Errors of sacct at a site that keeps no accounting. After any other, accounting may know the job.
NO_ACCOUNTING = re.compile(r"accounting storage is disabled|sacct is not installed", re.IGNORECASE)

# Errors of scancel about a job that is not in Slurm's queue.
NO_SUCH_JOB = re.compile(r"invalid job id|already completing or completed", re.IGNORECASE)

# Variables of the user's shell that limit, format or shorten what Slurm's commands print: with
# SQUEUE_STATES=RUNNING, waiting jobs would be missing, which looks as if they had ended.
PREFERENCES = ("SQUEUE_", "SACCT_", "SINFO_", "SLURM_TIME_FORMAT")


class SchedulerError(ScpoError, RuntimeError):
    """The scheduler refused a command or does not answer."""


class NoSuchJobError(SchedulerError):
    """Slurm answers that it does not have a job: the job has ended, or Slurm has lost it."""


@dataclass(frozen=True)
class ListedJob:
    """A waiting or running job as squeue lists it; ``why`` is the reason for waiting."""

    name: str
    state: JobState
    why: str


class Slurm:
    """Client of squeue (live jobs), sacct (ended jobs), scancel and scontrol.

    Tests replace it by a scheduler with a simulated clock.
    """

    def jobs(self) -> Mapping[str, ListedJob] | None:
        """Our waiting and running jobs by id, from one squeue call.

        None without an answer, or if the answer is cut off. Lines that are not about a job, such as
        a notice of the site, are skipped.
        """
        # Id, state, reason and name. The name is last because it may contain the separator |.
        format_ = "%i|%T|%r|%j"
        try:
            output = _output(
                "squeue",
                "--noheader",
                "--array",
                "--all",
                f"--user={os.getuid()}",
                f"--format={format_}",
            )
        except SchedulerError:
            return None
        jobs = {}
        try:
            for ids, (state, why, name) in parse_job_lines(_whole_lines(output), columns=4):
                for job_id in ids:
                    jobs[job_id] = ListedJob(name, _state(state), why)
        except CutOffError:
            return None
        return jobs

    def ends(self, job_ids: Iterable[str], names: Iterable[str] = ()) -> Mapping[str, str] | None:
        """State of each job by id in Slurm's accounting, from one sacct call.

        Other elements of an array are included; jobs that it does not know are left out, which are
        all without accounting. None if the answer is cut off, or accounting gives none.

        A state includes an exit status other than 0: ``FAILED, exit status 3``. That of a job that
        is not over is not final: see ``job_lines.is_end``.

        Args:
            job_ids: Ids of jobs, also of elements of arrays.
            names: Names that the jobs may have, since Slurm reuses ids; empty: any name.
        """
        # Waiting elements are recorded as a group, which is found under the array's id.
        arrays = sorted({job_id.partition("_")[0] for job_id in job_ids})
        # Without ids, sacct would list all jobs of today.
        if not arrays:
            return {}
        named = ",".join(names)
        try:
            output = _output(
                "sacct",
                "--allocations",
                "--noheader",
                "--parsable2",
                "--format=JobID,State,ExitCode",
                f"--jobs={','.join(arrays)}",
                *([f"--name={named}"] if named else []),
            )
        except SchedulerError as error:
            return {} if NO_ACCOUNTING.search(str(error)) else None
        ends = {}
        try:
            for ids, (state, code) in parse_job_lines(_whole_lines(output), columns=3):
                for job_id in ids:
                    ends[job_id] = ", ".join(filter(None, (state, _exit_status(state, code))))
        except CutOffError:
            return None
        return ends

    def cancel(self, job_id: str) -> None:
        """End a running or waiting job.

        Raises:
            NoSuchJobError: Slurm does not have it.
            SchedulerError: Any other failure.
        """
        try:
            _ask("scancel", job_id)
        except SchedulerError as error:
            if NO_SUCH_JOB.search(str(error)):
                raise NoSuchJobError(str(error)) from error
            raise

    def requeue(self, job_id: str) -> None:
        """End a running job and queue it again under the same id; SchedulerError on failure."""
        _ask("scontrol", "requeue", job_id)

    def limits(self, account: str | None = None, qos: str | None = None) -> JobLimits:
        """Limits on arrays and on the user's jobs, from scontrol and, with accounting, sacctmgr.

        Args:
            account: The account that jobs are charged to; None: all of the user's accounts.
            qos: The quality of service that jobs ask for; None: those of the user's associations.
        """
        # Answers may be empty: clusters without accounting have no sacctmgr.
        array_size = array_size_of(_answer("scontrol", "show", "config"))
        query = ("sacctmgr", "--noheader", "--parsable2", "show")
        user = pwd.getpwuid(os.getuid()).pw_name
        columns = ("Account", "MaxJobs", "MaxSubmit", "DefaultQOS")
        lines = _answer(*query, "associations", f"user={user}", f"format={','.join(columns)}")
        rows = []
        for row in parse_fields(lines, columns):
            if account in (None, row.get("Account")):
                rows.append(row)

        # A quality of service may be stricter than the account.
        of_qos = ("Name", "MaxJobsPU", "MaxSubmitPU", "GrpJobs", "GrpSubmit")
        wanted = {qos} if qos else {row.get("DefaultQOS") for row in rows} - {"", None}
        lines = _answer(*query, "qos", f"format={','.join(of_qos)}") if wanted else []
        services = [row for row in parse_fields(lines, of_qos) if row.get("Name") in wanted]
        submitted = [row.get("MaxSubmit") for row in rows]
        running = [row.get("MaxJobs") for row in rows]
        for row in services:
            submitted += [row.get("MaxSubmitPU"), row.get("GrpSubmit")]
            running += [row.get("MaxJobsPU"), row.get("GrpJobs")]
        return JobLimits(
            array_size,
            smallest([number(text) for text in submitted]),
            smallest([number(text) for text in running]),
        )

    def preempted(self, job_id: str) -> bool | None:
        """True if a running job is being preempted; None if Slurm does not answer.

        Read from the job's PreemptTime, which Slurm sets when the grace period begins. A requeued
        job may keep that of its last preemption, so a time before its StartTime does not count.
        """
        try:
            fields = " ".join(_ask("scontrol", "--oneliner", "show", "job", job_id)).split()
        except SchedulerError:
            return None
        values: dict[str, str] = {}
        for field in fields:
            key, _, value = field.partition("=")
            values[key] = value
        preempted_at = values.get("PreemptTime")
        if preempted_at is None:
            return None
        # Both are local times in ISO 8601, which sort as text.
        return preempted_at != "None" and preempted_at >= values.get("StartTime", "")


def node_names() -> set[str]:
    """Short host names of the cluster's nodes; empty if Slurm does not answer."""
    return {line.strip() for line in _answer("sinfo", "--noheader", "--Node", "--format=%n")}


def cancel_named(name: str) -> None:
    """End our jobs of this name, if any; SchedulerError on failure."""
    _ask("scancel", f"--user={os.getuid()}", f"--name={name}")


def _exit_status(state: str, code: str) -> str:
    """``status:signal`` of sacct in words; empty for 0:0."""
    status, _, signal = code.partition(":")
    # A job that was out of memory has 0:125, which is not the number of a signal.
    if signal not in ("", "0") and state_word(state) != "OUT_OF_MEMORY":
        return f"ended by signal {signal}"
    return "" if status in ("", "0") else f"exit status {status}"


def _answer(*command: str) -> list[str]:
    """Lines of a command's output; empty if it fails, as sacctmgr does without accounting."""
    try:
        return _ask(*command)
    except SchedulerError:
        return []


def _state(word: str) -> JobState:
    if word in QUEUED:
        return JobState.QUEUED
    return JobState.RUNNING


def _ask(*command: str) -> list[str]:
    """Lines of a command's output that are not empty; SchedulerError on failure."""
    return _lines(_output(*command))


def _lines(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.strip()]


def _whole_lines(output: str) -> list[str]:
    """Lines of squeue or sacct; CutOffError if the last one is about a job and has no end.

    A name that is cut off looks like another job's, and an exit status like another status.
    """
    lines = _lines(output)
    if lines and not output.endswith("\n") and ABOUT_A_JOB.match(lines[-1]):
        raise CutOffError(f"not a complete line about a job: {lines[-1]!r}")
    return lines


def _output(*command: str) -> str:
    """A command's output without its warnings; SchedulerError on failure."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            # The names of jobs may be in any encoding.
            errors="replace",
            timeout=COMMAND_TIMEOUT_S,
            check=False,
            env=_environment(),
        )
    except FileNotFoundError as error:
        raise SchedulerError(
            f"{command[0]} is not installed: launcher=slurm_... needs a machine with Slurm"
        ) from error
    except OSError as error:
        raise SchedulerError(f"{command[0]} cannot be started: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise SchedulerError(f"{command[0]} did not answer within {COMMAND_TIMEOUT_S} s") from error
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip()
        raise SchedulerError(f"{' '.join(command)}: {reason}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Environment of Slurm's commands: that of this process without ``PREFERENCES``."""
    kept = {}
    for name, value in os.environ.items():
        if not name.startswith(PREFERENCES):
            kept[name] = value
    # Groups of an array's elements are not shortened.
    kept["SLURM_BITSTR_LEN"] = "0"
    return kept
