"""A short job that tests whether a node can read, execute and write the paths that jobs use."""

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

# Prefix of the probe's job name and of its output lines, because a site's prolog may print lines
# too.
MARK = "scpo-probe"

# Its arguments are pairs: the letter of a test (-r, -w or -x, without the hyphen) and a path. It
# prints the name of the node, the index of each pair whose test fails, and a last line. Only
# builtins of /bin/sh are used, so that it runs on any node.
SCRIPT = f"""echo "{MARK} node ${{SLURMD_NODENAME:-}}"
index=0
while [ $# -gt 0 ]; do
  [ "-$1" "$2" ] || echo "{MARK} lacks $index"
  index=$((index + 1))
  shift 2
done
echo "{MARK} end\""""

# Part of srun's error if no node became free within --immediate.
BUSY = "nodes are busy"

# Keys of Site.more that choose the nodes.
PLACES = ("reservation", "nodelist", "exclude", "clusters")

# Options that sbatch reads from SBATCH_<name>, but srun from SLURM_<name>. The probe must use the
# values that a submission would use.
INHERITED = ("ACCOUNT", "PARTITION", "QOS", "CONSTRAINT", "RESERVATION", "CLUSTERS")

# Seconds between two looks for a stop signal while srun runs.
POLL_S = 0.1

# Seconds that srun has to cancel its job and end.
END_S = 5


@dataclass(frozen=True)
class Need:
    """A path that jobs use on their node.

    Attributes:
        name: What the path is, for messages.
        path: The path.
        use: What jobs do with it: read, write or execute. The shell's test has the same letter.
    """

    name: str
    path: Path
    use: Literal["r", "w", "x"]

    def __str__(self) -> str:
        verb = {"r": "read", "w": "write to", "x": "execute"}[self.use]
        return f"{verb} {self.name}: {self.path}"


@dataclass(frozen=True)
class ProbedPartition:
    """A partition, one node of which runs the probe.

    Attributes:
        name: Name of the partition; None for the default one.
        site: Settings of the site, for the options of srun.
        gpus: True if our jobs there ask for GPUs. Such a partition may refuse jobs without a GPU.
    """

    name: str | None
    site: Site
    gpus: bool

    def __str__(self) -> str:
        return f"partition {self.name}" if self.name else "the default partition"


@dataclass(frozen=True)
class Answer:
    """Result of the probe.

    Attributes:
        node: The node that ran it; None if there is no result.
        lacking: The needs whose test failed on this node.
        why: Reason why there is no result; empty if there is one.
    """

    node: str | None
    lacking: tuple[Need, ...] = ()
    why: str = ""


def ask_node(partition: ProbedPartition, needs: Sequence[Need], wait_s: int) -> Answer:
    """Run the probe on a node of the partition; wait at most ``wait_s`` seconds for its answer.

    If there is no answer by then, the probe's job is cancelled. A stop signal (Ctrl-C, SIGTERM)
    cancels it too; the signal is then sent to this process again.

    Raises:
        KeyboardInterrupt: A stop signal arrived, and this process's handler for it returned.
    """
    deadline = time.monotonic() + wait_s
    # First without a GPU, because such a job starts sooner.
    answer = _ask(_command(partition, needs, wait_s, gpus=0), needs, deadline)
    failed = answer.node is None and time.monotonic() < deadline and BUSY not in answer.why
    # Unless slurmctld did not answer, the partition may have refused a job without a GPU.
    if failed and partition.gpus and not UNSURE.search(answer.why):
        left_s = round(deadline - time.monotonic())
        answer = _ask(_command(partition, needs, left_s, gpus=1), needs, deadline)
    if answer.node is None and (BUSY in answer.why or time.monotonic() >= deadline):
        return Answer(None, why=f"no node of {partition} was free within {wait_s} s")
    return answer


def _command(
    partition: ProbedPartition, needs: Sequence[Need], wait_s: int, gpus: int
) -> list[str]:
    """The srun command of the probe."""
    site = partition.site
    options: dict[str, Any] = {
        "job-name": f"{MARK}-{secrets.token_hex(4)}",
        # Seconds after which Slurm gives up, even if this process was killed. At least 2, because
        # --immediate=1 means "now or never".
        "immediate": max(2, wait_s),
        "time": 1,
        "nodes": 1,
        "ntasks": 1,
        "cpus-per-task": 1,
        "partition": partition.name,
        "account": site.account,
        "qos": site.qos,
        "constraint": site.constraint,
        # Slurm may refuse --mem if memory_gb is null (the partition's default) or 0 (whole nodes).
        "mem": "100M" if site.memory_gb else None,
        "mpi": "none",
        # The probe needs no environment variables, some of which may be API keys.
        "export": "NONE",
        "chdir": "/",
        "input": "none",
    }
    for key in PLACES:
        options[key] = site.more.get(key)
    for key, value in site.gpu_flags(gpus).items():
        options[key.replace("_", "-")] = value
    flags = [f"--{key}={value}" for key, value in options.items() if value is not None]
    tests: list[str] = []
    for need in needs:
        tests += [need.use, str(need.path.absolute())]
    return ["srun", "--quiet", *flags, "/bin/sh", "-c", SCRIPT, MARK, *tests]


def _ask(command: list[str], needs: Sequence[Need], deadline: float) -> Answer:
    """Run srun until it ends, the deadline passes or a stop signal arrives."""
    received: list[int] = []

    def record_signal(number: int, _frame: FrameType | None) -> None:
        received.append(number)

    with stop_signals_go_to(record_signal):
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=_environment(),
                # In a session of its own, so that Ctrl-C reaches only this process, which then
                # cancels the job.
                start_new_session=True,
            )
        except OSError as error:
            return Answer(None, why=f"srun: {error.strerror}")
        output, errors = "", ""
        while time.monotonic() < deadline and not received:
            with suppress(subprocess.TimeoutExpired):
                output, errors = process.communicate(timeout=POLL_S)
                break
        answer = _read(output, errors, needs)
        if answer.node is None:
            _end(process, command)

    if received:
        # The earlier handler, which is active again, decides what the signal does.
        os.kill(os.getpid(), received[0])
        raise KeyboardInterrupt

    return answer


def _environment() -> dict[str, str]:
    """Environment of srun: that of this process, with sbatch's options in place of a job's.

    With the variables of a job (SLURM_*), srun would start the probe as a step of that job.
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
    """Parse the output of ``SCRIPT``; ``errors`` has the reason if it is incomplete."""
    lines = [line.split(" ") for line in output.splitlines() if line.startswith(f"{MARK} ")]
    # Without the last line, a test may not have run: the node may have died before it.
    if [MARK, "end"] not in lines:
        return Answer(None, why=f"srun: {words_of(errors)}")
    node = ""
    lacking = []
    for line in lines:
        if len(line) != 3:
            continue
        _, key, value = line
        if key == "node":
            node = node or value
        elif key == "lacks":
            lacking.append(needs[int(value)])
    return Answer(node or "a node", tuple(lacking))


def _end(process: subprocess.Popen[str], command: Sequence[str]) -> None:
    """End srun, which then cancels its job; also cancel the job by name in case that failed."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
    (flag,) = [word for word in command if word.startswith("--job-name=")]
    # If this fails, srun has cancelled the job already, or --time=1 ends it after a minute.
    with suppress(SchedulerError):
        cancel_named(flag.removeprefix("--job-name="))
