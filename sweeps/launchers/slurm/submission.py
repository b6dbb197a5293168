"""Submit runs as Slurm jobs through submitit: one array for all runs with equal requests."""

import contextlib
import io
import math
import os
import re
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scpo.errors import ConfigError
from scpo.installed import install_command
from scpo.progress import counted
from scpo.records import RunFolder
from scpo.records.files import naming_write_errors
from scpo.schema.run import RunConfig, SlurmLauncher
from sweeps.estimates import hours
from sweeps.launchers.slurm.cluster_settings import MAX_HOURS, Site
from sweeps.launchers.slurm.job_limits import JobLimits, shares, split
from sweeps.launchers.slurm.job_records import (
    LAST_S,
    STARTED,
    SUBMISSIONS,
    Job,
    read_job,
    restore_job,
    task_path,
    write_job,
)
from sweeps.launchers.slurm.node_probe import ProbedPartition
from sweeps.launchers.slurm.reachable import NOT_REACHABLE
from sweeps.launchers.slurm.refusal import UNSURE, RefusedError, explain_refusal, words_of
from sweeps.launchers.slurm.scheduler import SchedulerError
from sweeps.launchers.slurm.snapshot import check_private
from sweeps.resources import Resources, check_fits, resources

if TYPE_CHECKING:
    from submitit import Job as SubmittedJob

    from sweeps.launchers.slurm.job import RunJob

FIRST_NODE = ("--nodes=1", "--ntasks=1", "--overlap")
"""Options of srun for the run itself: one process, which shares its node with Ray's."""

# Python is started with Slurm's signals ignored until the job handles them: by default they would
# end it, and a job that ends by itself is not requeued. The job then asks Slurm what it missed.
START_QUIETLY = """sh -c 'trap "" USR2 TERM; exec "$@"' sh"""

# Method of submitit's executor that reads the job's id from sbatch's output.
READS_JOB_ID = "_get_job_id_from_submission_command"

# sbatch's line with the id of the job, or of the array. A site's submission script may print lines
# about other jobs ("job 42 of 100 left this month").
SUBMITTED = re.compile(r"^Submitted batch job (\d+)\b", re.MULTILINE)

# Factor from estimated hours to the time limit. The paper: "wall-clock times vary with cluster
# load".
MARGIN = 1.5

# A time limit of less than this many times launcher.warn_s is named: most of a job would be the
# wait for its end.
LEAST_WARNINGS = 2
FOUND_LATER = "what it queued is found by the next call"
NEEDS_SUBMITIT = f"launcher=slurm_a800x4 needs submitit; to get it: {install_command('slurm')}"


@dataclass(frozen=True, order=True)
class Request:
    """Request of each job of an array: time limit in minutes, resources per node, partition."""

    limit_min: int
    resources: Resources
    partition: str | None

    @property
    def limit_h(self) -> str:
        """The time limit in hours, as messages show it."""
        return f"{round(self.limit_min / 60, 2):g}"


@dataclass(frozen=True)
class Submission:
    """An array of runs with equal requests.

    ``folder`` is new and private, and its name is the name of the jobs in Slurm. ``running`` is
    the number of jobs that may run at a time. ``secret_names`` are variables that are secret
    although their names do not show it.
    """

    folder: Path
    runs: tuple[RunFolder, ...]
    request: Request
    launcher: SlurmLauncher
    site: Site
    snapshot: Path
    running: int
    secret_names: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The name of its jobs."""
        return self.folder.name


@dataclass(frozen=True)
class Array:
    """Runs of one job array to be submitted; ``running``: jobs of it that may run at a time."""

    request: Request
    run_ids: Sequence[str]
    running: int


Sbatch = Callable[[Submission], Sequence[str]]
"""Hands a submission to the scheduler; returns a job id for each run."""


def by_request(
    configs: Mapping[str, RunConfig], launcher: SlurmLauncher, site: Site
) -> dict[Request, list[str]]:
    """Group the runs by the request of their jobs; requests with the most GPUs first.

    Raises:
        ConfigError: A run fits no job: too large for its GPUs, or a limit too short for the
            warning.
    """
    groups = defaultdict(list)
    for run_id, config in configs.items():
        needed = resources(config)
        check_fits(config, launcher.gpu_gb)
        request = Request(
            _limit_min(config, launcher, site), needed, site.partition_for(needed.gpus)
        )
        groups[request].append(run_id)
    # Large requests first, because they wait longest for free nodes.
    ordered = sorted(groups, key=lambda request: (-request.resources.gpus, request.limit_min))
    return {request: groups[request] for request in ordered}


def arrays_of(
    requests: Mapping[Request, Sequence[str]], parallelism: int, limits: JobLimits
) -> list[Array]:
    """Arrays of runs with equal requests, within the limits of cluster and launcher.

    Raises:
        ConfigError: There are more arrays than jobs that may run at a time.
    """
    parts = []
    for request, run_ids in requests.items():
        for part in split(run_ids, limits.array_size):
            parts.append((request, part))
    most = parallelism
    if limits.running is not None:
        # Each array needs at least one; Slurm itself queues jobs beyond the account's limit.
        most = min(most, max(limits.running, len(parts)))
    # Slurm limits each array separately, so the common limit is divided among them.
    given = shares([len(part) for _, part in parts], most, limits.array_size)
    arrays = []
    for (request, part), share in zip(parts, given, strict=True):
        arrays.append(Array(request, part, share))
    return arrays


def limit_notes(
    groups: Mapping[Request, Sequence[str]],
    configs: Mapping[str, RunConfig],
    launcher: SlurmLauncher,
    site: Site,
) -> Iterator[str]:
    """Name time limits that runs reach by estimate, or that are hardly longer than the warning.

    Args:
        groups: Ids of the runs of each request, from ``by_request``.
        configs: The runs by their ids.
        launcher: Settings of the jobs.
        site: The cluster's settings.
    """
    longer = []
    for request, run_ids in groups.items():
        estimates = [hours(configs[run_id]) or 0.0 for run_id in run_ids]
        longer += [took for took in estimates if 60 * took > request.limit_min]
    if longer:
        # A limit below the estimate was cut to one of these.
        given = launcher.time_h if launcher.time_h is not None else math.inf
        limit_h, name = min(
            (given, "launcher.time_h"), (site.max_time_h, f"max_time_h of {launcher.site}")
        )
        yield (
            f"{counted(len(longer), 'run')} of up to {max(longer):.1f} h, by estimate, and a time "
            f"limit of {limit_h:.4g} h ({name}): a job that reaches it is requeued from its run's "
            "checkpoint"
        )

    shortest = min(groups, key=lambda request: request.limit_min, default=None)
    if shortest and 60 * shortest.limit_min < LEAST_WARNINGS * launcher.warn_s:
        left_min = shortest.limit_min - launcher.warn_s / 60
        yield (
            f"a time limit of {shortest.limit_h} h with launcher.warn_s={launcher.warn_s}: a job "
            f"has {left_min:.0f} min until it is warned, checkpoints and is requeued. For more: a "
            f"longer limit (launcher.time_h, max_time_h of {launcher.site}) or a shorter "
            "launcher.warn_s"
        )


def probed_partitions(requests: Sequence[Request], site: Site) -> list[ProbedPartition]:
    """Partitions in which jobs of these requests run, each once."""
    most_gpus: dict[str | None, int] = {}
    for request in requests:
        gpus = most_gpus.get(request.partition, 0)
        most_gpus[request.partition] = max(gpus, request.resources.gpus)
    return [ProbedPartition(name, site, gpus > 0) for name, gpus in most_gpus.items()]


def submit(submission: Submission, sbatch: Sbatch) -> list[str]:
    """Submit an array; returns a job id for each run.

    Each run's job is recorded without an id before the call of sbatch, and with its id after it: if
    this process dies in between, the next call finds the jobs by name and adopts them.

    Raises:
        RefusedError: The scheduler refused the array; the records are as they were before.
    """
    several = len(submission.runs) > 1
    jobs = [
        Job(
            name=submission.name,
            index=index if several else None,
            job_id=None,
            limit_s=60 * submission.request.limit_min,
            warn_s=submission.launcher.warn_s,
            max_timeouts=submission.launcher.max_timeouts,
        )
        for index in range(len(submission.runs))
    ]
    # Restored if the scheduler refuses: the record of an earlier job is still of use.
    before = [read_job(folder) for folder in submission.runs]
    for folder, job in zip(submission.runs, jobs, strict=True):
        write_job(folder, job)
    try:
        ids = list(sbatch(submission))
    except RefusedError:
        for folder, previous in zip(submission.runs, before, strict=True):
            restore_job(folder, previous)
        raise

    for folder, job, job_id in zip(submission.runs, jobs, ids, strict=True):
        write_job(folder, job.model_copy(update={"job_id": job_id}))
    return ids


def folder_of_submissions(runs_dir: Path) -> Path:
    """Absolute path of the folder that holds all submissions, which may not exist yet.

    Raises:
        ConfigError: sbatch would misread the path.
    """
    parent = (runs_dir / SUBMISSIONS).absolute()
    odd = sorted(
        {repr(letter) for letter in str(parent) if letter == "%" or not letter.isprintable()}
    )
    if odd:
        raise ConfigError(
            f"machine.runs_dir={str(runs_dir)!r} has {', '.join(odd)} in it: sbatch reads % as a "
            "pattern and a line break as the end of an option. Name a folder without them"
        )
    return parent


def new_folder(runs_dir: Path, title: str) -> Path:
    """Create a private submission folder: submitit executes the pickle that it finds in it."""
    parent = folder_of_submissions(runs_dir)
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private(parent)
    folder = parent / f"{re.sub(r'[^a-z0-9_]+', '_', title.lower())}-{secrets.token_hex(4)}"
    # Fails if it exists, so that nobody can have put a pickle there before.
    folder.mkdir(mode=0o700)
    return folder


def call_sbatch(submission: Submission) -> list[str]:
    """Submit with submitit and sbatch.

    Raises:
        ConfigError: submitit is not installed.
        RefusedError: sbatch did not take it; nothing is queued.
        SchedulerError: sbatch got no answer, so jobs may be queued.
    """
    try:
        from submitit.core.utils import FailedJobError, FailedSubmissionError
    except ImportError as error:
        raise ConfigError(NEEDS_SUBMITIT) from error

    try:
        # submitit also prints the error that it raises.
        with contextlib.redirect_stderr(io.StringIO()):
            with naming_write_errors(submission.folder / "*.pkl", 0):
                _write_tasks(submission)
            return [job.job_id for job in _submit(submission, submission.folder)]
    except FailedSubmissionError:
        # It ended without an error, and named no job.
        raise SchedulerError(f"sbatch named no job; {FOUND_LATER}") from None
    except FailedJobError as error:
        if unsure := _why_unsure(error):
            words = submission.site.without_secrets(unsure, submission.secret_names)
            raise SchedulerError(f"sbatch: {words}; {FOUND_LATER}") from None
        message = submission.site.without_secrets(str(error), submission.secret_names)
        raise RefusedError(
            explain_refusal(message, _asked(submission), submission.launcher.site)
        ) from None


def _why_unsure(error: Exception) -> str | None:
    """Reason why jobs may be queued although sbatch failed; None if it was refused.

    sbatch gives a reason when it refuses a job. One that was killed, or ended without a word, may
    have been so after Slurm had accepted the job.
    """
    message = str(error).strip()
    if UNSURE.search(message):
        return words_of(message)
    ended = error.__cause__
    if not isinstance(ended, subprocess.CalledProcessError):
        return message or "it ended for an unknown reason"
    if ended.returncode < 0:
        return f"killed by {signal.Signals(-ended.returncode).name}"
    if not message or (ended.output and "Submitted batch job" in ended.output):
        return f"exit status {ended.returncode} without a reason"
    return None


def _write_tasks(submission: Submission) -> None:
    """Write what each job executes, under its place in the array.

    submitit gives its own copy the job's name only after sbatch has answered. If this process dies
    in between, the jobs take these files (see ``_guard``).
    """
    from submitit.helpers import DelayedSubmission

    for index, run in enumerate(submission.runs):
        task = DelayedSubmission(_run_job(run))
        # submitit compares the limit with the time used. Its count of time limits is not used here.
        task.set_timeout(submission.request.limit_min, 0)
        task.dump(task_path(submission.folder, index))


def _run_job(run: RunFolder) -> "RunJob":
    from sweeps.launchers.slurm.job import RunJob

    return RunJob(str(run.path.absolute()))


def _asked(submission: Submission) -> str:
    """The request in words, for the message of a refusal."""
    request = submission.request
    needed = request.resources
    parts = {
        "partition": request.partition,
        "account": submission.site.account,
        "qos": submission.site.qos,
        "constraint": submission.site.constraint,
        # A job without a GPU does not ask for any.
        "gres": submission.site.gres if needed.gpus else None,
    }
    gpus = counted(needed.gpus, "GPU") if needed.gpus else "no GPU"
    given = [f"{name} {value}" for name, value in parts.items() if value is not None]
    return ", ".join([*given, f"{gpus}, {needed.cpus} CPUs, {request.limit_h} h"])


def sbatch_text(submission: Submission) -> str:
    """The sbatch script that submitit would write, for a preview; nothing is submitted."""
    with tempfile.TemporaryDirectory() as top:
        commands = Path(top) / "bin"
        commands.mkdir()
        for name in ("sbatch", "srun"):
            (commands / name).write_text("#!/bin/sh\necho Submitted batch job 1\n")
            (commands / name).chmod(0o700)
        path = os.environ["PATH"]
        # submitit writes the script only when it submits; this sbatch does nothing.
        os.environ["PATH"] = f"{commands}:{path}"
        try:
            # Written below ``top``, whose path is then taken out of the text.
            job = _submit(submission, Path(f"{top}{submission.folder}"))[0]
        finally:
            os.environ["PATH"] = path
        return str(job.paths.submission_file.read_text()).replace(top, "")


def _submit(submission: Submission, folder: Path) -> "list[SubmittedJob[str]]":
    try:
        from submitit import SlurmExecutor
    except ImportError as error:
        raise ConfigError(NEEDS_SUBMITIT) from error

    # -P: import the code from the snapshot on PYTHONPATH, not from the working directory of sbatch.
    python = f"{START_QUIETLY} {shlex.quote(sys.executable)} -P"
    # submitit takes the first "job <number>" of sbatch's output. Replaced in the class, since it
    # makes another executor for an array.
    setattr(SlurmExecutor, READS_JOB_ID, staticmethod(_job_id_of))
    executor = SlurmExecutor(folder, python=python)
    executor.update_parameters(**_parameters(submission))
    with executor.batch():
        return [executor.submit(_run_job(run)) for run in submission.runs]


def _job_id_of(output: bytes | str) -> str:
    """The job's id in the output of sbatch.

    Raises:
        FailedSubmissionError: It names no job, or several.
    """
    from submitit.core.utils import FailedSubmissionError

    text = output if isinstance(output, str) else output.decode(errors="replace")
    ids = set(SUBMITTED.findall(text))
    if len(ids) != 1:
        raise FailedSubmissionError(text)
    return str(ids.pop())


def _parameters(submission: Submission) -> dict[str, Any]:
    launcher = submission.launcher
    site = submission.site
    request = submission.request
    needed = request.resources
    parameters = {
        "job_name": submission.name,
        "time": request.limit_min,
        "nodes": needed.nodes,
        # One task per node: verl and Ray start their own processes.
        "ntasks_per_node": 1,
        "cpus_per_task": needed.cpus,
        # Since Slurm 22.05, srun does not inherit --cpus-per-task from sbatch.
        "srun_args": [f"--cpus-per-task={needed.cpus}", *(FIRST_NODE if needed.nodes > 1 else ())],
        "array_parallelism": submission.running,
        "signal_delay_s": launcher.warn_s,
        "partition": request.partition,
        "account": site.account,
        "qos": site.qos,
        "constraint": site.constraint,
        "mem": site.memory_flag(needed.memory_gb),
        "setup": [*_guard(submission), *site.setup, *ray_lines(needed)],
        # Flags of GPUs come last: they include a `gres` of `more`.
        "additional_parameters": {"requeue": True, **site.more, **site.gpu_flags(needed.gpus)},
    }
    return {key: value for key, value in parameters.items() if value is not None}


def _guard(submission: Submission) -> list[str]:
    """Shell lines that run before Python loads the pickle.

    They record the start time, exit if other users can access the folder or the node cannot read
    the code and Python, and name the pickle if submitit has not.
    """
    folder = shlex.quote(str(submission.folder))
    needed = {
        submission.snapshot / "train.py": "the snapshot of the code",
        Path(sys.executable): "the Python of the environment",
    }
    reachable = [
        f"if [ ! -r {shlex.quote(str(path))} ]; then echo $(hostname) cannot read {what}: "
        f"{shlex.quote(str(path))}. It must lie on a file system that the nodes share; exit "
        f"{NOT_REACHABLE}; fi"
        for path, what in needed.items()
    ]
    return [
        f"export {STARTED}=$(date +%s)",
        # submitit's files hold the run's output: keep them private.
        "umask 077",
        f'if [ ! -O {folder} ] || [ "$(stat -c %a {folder})" != 700 ]; '
        f"then echo {folder} is not private; exit 77; fi",
        *reachable,
        # submitit names the job's task after sbatch: sweep.py may have died before that.
        "own=${SLURM_ARRAY_JOB_ID:+${SLURM_ARRAY_JOB_ID}_$SLURM_ARRAY_TASK_ID}",
        f"task={folder}/${{own:-$SLURM_JOB_ID}}_submitted.pkl",
        f'if [ ! -e "$task" ]; then cp {folder}/task_${{SLURM_ARRAY_TASK_ID:-0}}.pkl "$task.new" '
        '&& mv "$task.new" "$task"; fi',
        f"export PYTHONPATH={shlex.quote(str(submission.snapshot))}${{PYTHONPATH:+:$PYTHONPATH}}",
    ]


def _limit_min(config: RunConfig, launcher: SlurmLauncher, site: Site) -> int:
    if launcher.time_h is not None and launcher.time_h > MAX_HOURS:
        raise ConfigError(
            f"launcher.time_h={launcher.time_h:g}: it is a number of hours, at most {MAX_HOURS}"
        )
    estimate = hours(config)
    if launcher.time_h is None and estimate is None:
        raise ConfigError(
            f"launcher.time_h is null, and the hours of {config.env.name} with {config.model.name} "
            f"at scale={config.scale} cannot be estimated; give the longest time of a job, e.g. "
            "launcher.time_h=4 (one that needs longer is requeued from its checkpoint)"
        )

    if launcher.warn_s <= LAST_S:
        raise ConfigError(
            f"launcher.warn_s={launcher.warn_s}: a run is killed {LAST_S} s before its time limit, "
            f"to be requeued, and could not write a checkpoint; allowed: more than {LAST_S}. Give "
            f"{LAST_S} s and the time of a step with its checkpoint, e.g. launcher.warn_s=120"
        )

    # The limit may be tight: a run that needs longer is requeued from its checkpoint.
    wanted = launcher.time_h if launcher.time_h is not None else math.ceil(MARGIN * (estimate or 0))
    limit_min = math.ceil(60 * min(wanted, site.max_time_h))
    if 60 * limit_min <= launcher.warn_s:
        raise ConfigError(
            f"launcher.warn_s={launcher.warn_s} is not less than the time limit of "
            f"{60 * limit_min} s: the job would get the signal to stop as it starts. Give a longer "
            f"launcher.time_h (at most {site.max_time_h:g}, max_time_h of {launcher.site}) or a "
            "shorter launcher.warn_s"
        )
    return limit_min


def ray_lines(needed: Resources) -> list[str]:
    """Shell lines that start Ray on each node of a job; empty for one node, where the run does it.

    - The port is derived from the job's number, because several jobs may share a node.
    - Ray's files are on each node's own disk, its token in the home folder that the nodes share.
    - Ray ignores Slurm's warning signal before the time limit, which reaches every process of the
      job, so that the run can still write its checkpoint.
    """
    if needed.nodes == 1:
        return []
    ray = shlex.quote(str(Path(sys.executable).with_name("ray")))
    return [
        # Without a token, any user who reaches the node could run code as this user.
        "export RAY_AUTH_MODE=token",
        f"{ray} get-auth-token --generate >/dev/null",
        'first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)',
        "export RAY_ADDRESS=$first:$((20000 + SLURM_JOB_ID % 20000))",
        f'srun {_on_nodes(1, needed)} --nodelist="$first" '
        f"{_ray_start('--head --port=${RAY_ADDRESS#*:}', needed)} &",
        "ray_steps=$!",
        f'srun {_on_nodes(needed.nodes - 1, needed)} --exclude="$first" '
        f"{_ray_start('--address=$RAY_ADDRESS', needed)} &",
        'ray_steps="$ray_steps $!"',
        "trap 'kill $ray_steps' EXIT",
    ]


def _on_nodes(nodes: int, needed: Resources) -> str:
    return (
        f"--nodes={nodes} --ntasks={nodes} --overlap --cpus-per-task={needed.cpus} "
        "--kill-on-bad-exit=0"
    )


def _ray_start(how: str, needed: Resources) -> str:
    """``ray start`` with retries, as other nodes may be ready before the head opens its port."""
    ray = shlex.quote(str(Path(sys.executable).with_name("ray")))
    head = " --temp-dir=/tmp/ray-$SLURM_JOB_ID" if how.startswith("--head") else ""
    command = (
        f"{ray} start {how}{head} --num-gpus={needed.gpus} --num-cpus={needed.cpus} --block "
        "--disable-usage-stats"
    )
    tries = f"for try in 1 2 3 4 5 6; do {command} && exit; sleep 10; done; exit 1"
    # An empty trap ignores the signal, also in the commands that the shell starts.
    script = f'trap "" USR2; {tries}'
    return f"bash -c {shlex.quote(script)}"
