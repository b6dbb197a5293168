"""Slurm's commands: list our jobs, their ends and limits; cancel or requeue a job."""

import os
import pwd
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


class SchedulerError(ScpoError, RuntimeError):
    """The scheduler refused a command or does not answer."""


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
        """Our waiting and running jobs by id, from one squeue call; None without an answer."""
        # Id, state, reason and name. The name is last because it may contain the separator |.
        format_ = "%i|%T|%r|%j"
        try:
            lines = _ask(
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
        for line in lines:
            job_id, state, why, name = line.split("|", 3)
            jobs[job_id] = ListedJob(name, _state(state), why)
        return jobs

    def ends(self, job_ids: Iterable[str]) -> Mapping[str, str]:
        """Final state of each job by id, from one sacct call; unknown jobs are left out.

        A state includes an exit status other than 0: ``FAILED, exit status 3``.
        """
        # Without ids, sacct would list all jobs of today.
        ids = ",".join(job_ids)
        if not ids:
            return {}
        try:
            lines = _ask(
                "sacct",
                "--allocations",
                "--noheader",
                "--parsable2",
                "--format=JobID,State,ExitCode",
                f"--jobs={ids}",
            )
        except SchedulerError:
            return {}
        ends = {}
        for line in lines:
            job_id, state, code = line.split("|", 2)
            ends[job_id] = ", ".join(filter(None, (state, _exit_status(code))))
        return ends

    def cancel(self, job_id: str) -> None:
        """End a running or waiting job; SchedulerError on failure."""
        _ask("scancel", job_id)

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


def _exit_status(code: str) -> str:
    """``status:signal`` of sacct in words; empty for 0:0."""
    status, _, signal = code.partition(":")
    if signal not in ("", "0"):
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
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S, check=False
        )
    except FileNotFoundError as error:
        raise SchedulerError(
            f"{command[0]} is not installed: launcher=slurm_... needs a machine with Slurm"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise SchedulerError(f"{command[0]} did not answer within {COMMAND_TIMEOUT_S} s") from error
    if done.returncode != 0:
        raise SchedulerError(f"{' '.join(command)}: {(done.stderr or done.stdout).strip()}")
    return [line for line in done.stdout.splitlines() if line.strip()]
