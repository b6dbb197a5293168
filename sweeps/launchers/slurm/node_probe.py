"""A short job that tests on a node what jobs do with their files: read, execute, write."""

import os
import secrets
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from scpo.stop_signals import stop_signals_go_to
from sweeps.launchers.slurm.cluster_settings import Site
from sweeps.launchers.slurm.refusal import UNSURE, words_of
from sweeps.launchers.slurm.scheduler import SchedulerError, cancel_named

# Prefix of the probe's job name and of its output lines: a site's prolog may print others.
MARK = "scpo-probe"

# Uses only builtins of /bin/sh. Arguments: letter of a test, path, letter, path, ...
SCRIPT = f"""echo "{MARK} node ${{SLURMD_NODENAME:-}}"
place=0
while [ $# -gt 0 ]; do
  [ "-$1" "$2" ] || echo "{MARK} lacks $place"
  place=$((place + 1))
  shift 2
done
echo "{MARK} end\""""

# Printed by srun after --immediate.
BUSY = "nodes are busy"

# Keys of Site.more that choose the nodes.
PLACES = ("reservation", "nodelist", "exclude", "clusters")

# Options that sbatch reads from SBATCH_<name> and srun from SLURM_<name>: the probe must see those
# of the submission.
INHERITED = ("ACCOUNT", "PARTITION", "QOS", "CONSTRAINT", "RESERVATION", "CLUSTERS")
POLL_S = 0.1

# Seconds for srun to cancel its job.
END_S = 5


@dataclass(frozen=True)
class Need:
    """A path that jobs use on their node; ``use`` is the letter of the shell's test, as in -r."""

    name: str
    path: Path
    use: Literal["r", "w", "x"]

    def __str__(self) -> str:
        verb = {"r": "read", "w": "write to", "x": "execute"}[self.use]
        return f"{verb} {self.name}: {self.path}"


@dataclass(frozen=True)
class ProbedPartition:
    """Partition of which the probe asks a node.

    Attributes:
        name: Name of the partition; None: the default one.
        site: Settings of the site, for the probe's options.
        gpus: True if jobs there ask for GPUs: the partition may then refuse a job without one.
    """

    name: str | None
    site: Site
    gpus: bool

    def __str__(self) -> str:
        return f"partition {self.name}" if self.name else "the default partition"


@dataclass(frozen=True)
class Answer:
    """The node that ran the probe, and the needs that it lacks.

    ``node`` is None without an answer; ``why`` is then the reason.
    """

    node: str | None
    lacking: tuple[Need, ...] = ()
    why: str = ""


def ask_node(partition: ProbedPartition, needs: Sequence[Need], wait_s: int) -> Answer:
    """Run the probe on a node of the partition; wait at most ``wait_s`` seconds for its answer.

    A job without an answer by then is cancelled. A stop signal cancels it too, and is then sent to
    this process again.

    Raises:
        KeyboardInterrupt: A stop signal arrived, and its handler returned.
    """
    deadline = time.monotonic() + wait_s
    # First without a GPU, because such a job starts sooner; some partitions refuse it.
    answer = _ask(_command(partition, needs, wait_s, gpus=0), needs, deadline)
    without_gpu = answer.why
    refused = answer.node is None and time.monotonic() < deadline and BUSY not in without_gpu
    if refused and partition.gpus and not UNSURE.search(without_gpu):
        left_s = round(deadline - time.monotonic())
        answer = _ask(_command(partition, needs, left_s, gpus=1), needs, deadline)
    if answer.node is None and (BUSY in answer.why or time.monotonic() >= deadline):
        return Answer(None, why=f"no node of {partition} was free within {wait_s} s")
    return answer


def _command(
    partition: ProbedPartition, needs: Sequence[Need], wait_s: int, gpus: int
) -> list[str]:
    site = partition.site
    options: dict[str, Any] = {
        "job-name": f"{MARK}-{secrets.token_hex(4)}",
        # Bounds the job's wait even if this process is killed. At least 2: 1 means "at once".
        "immediate": max(2, wait_s),
        "time": 1,
        "nodes": 1,
        "ntasks": 1,
        "cpus-per-task": 1,
        "partition": partition.name,
        "account": site.account,
        "qos": site.qos,
        "constraint": site.constraint,
        # Where the site leaves memory to the partition or takes whole nodes, --mem may be refused.
        "mem": "100M" if site.memory_gb else None,
        "mpi": "none",
        # The probe needs none of this shell's variables, some of which are keys.
        "export": "NONE",
        "chdir": "/",
        "input": "none",
        **{key: site.more.get(key) for key in PLACES},
        **{key.replace("_", "-"): count for key, count in site.gpu_flags(gpus).items()},
    }
    flags = [f"--{key}={value}" for key, value in options.items() if value is not None]
    tests: list[str] = []
    for need in needs:
        tests += [need.use, str(need.path.absolute())]
    return ["srun", "--quiet", *flags, "/bin/sh", "-c", SCRIPT, MARK, *tests]


def _ask(command: list[str], needs: Sequence[Need], deadline: float) -> Answer:
    stops: list[int] = []

    def note(number: int, _frame: FrameType | None) -> None:
        stops.append(number)

    with stop_signals_go_to(note):
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=_environment(),
                # In a session of its own: Ctrl-C reaches this process only, which cancels the job.
                start_new_session=True,
            )
        except OSError as error:
            return Answer(None, why=f"srun: {error.strerror}")
        output, errors = "", ""
        while time.monotonic() < deadline and not stops:
            with suppress(subprocess.TimeoutExpired):
                output, errors = process.communicate(timeout=POLL_S)
                break
        answer = _read(output, errors, needs)
        if answer.node is None:
            _end(process, command)

    if stops:
        # The handler that was there before decides what a stop signal means.
        os.kill(os.getpid(), stops[0])
        raise KeyboardInterrupt

    return answer


def _environment() -> dict[str, str]:
    """This process's environment without Slurm's variables.

    With those of a job, srun would start the probe as a step of that job.
    """
    kept = {}
    for name, value in os.environ.items():
        if not name.startswith("SLURM_") or name == "SLURM_CONF":
            kept[name] = value
    for name in INHERITED:
        if f"SBATCH_{name}" in kept:
            kept[f"SLURM_{name}"] = kept[f"SBATCH_{name}"]
    return kept


def _read(output: str, errors: str, needs: Sequence[Need]) -> Answer:
    """Parse the probe's output. Output without its last line counts as no answer."""
    lines = [line.split(" ") for line in output.splitlines() if line.startswith(f"{MARK} ")]
    # A node that dies in the middle of the tests would otherwise seem to lack nothing.
    if [MARK, "end"] not in lines:
        return Answer(None, why=f"srun: {words_of(errors)}")
    facts = [(line[1], line[2]) for line in lines if len(line) == 3]
    node = next((value for key, value in facts if key == "node" and value), "a node")
    lacking = tuple(needs[int(value)] for key, value in facts if key == "lacks")
    return Answer(node, lacking)


def _end(process: subprocess.Popen[str], command: Sequence[str]) -> None:
    """End srun, which then cancels its job; cancel the job by name in case that failed."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    (name,) = (word.partition("=")[2] for word in command if word.startswith("--job-name="))
    # If this fails, srun has cancelled the job already, or --time=1 ends it after a minute.
    with suppress(SchedulerError):
        cancel_named(name)
