"""Checks of the cluster: Slurm's commands, its accounting, and what the partition offers."""

import math
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from scpo.errors import ConfigError
from scpo.findings import Finding, error, ok, warning
from scpo.memory import shortage
from scpo.progress import counted
from scpo.records.provenance import key_variables
from scpo.schema.run import RunConfig, SlurmLauncher
from sweeps.doctor.subject import Subject
from sweeps.launchers.slurm.cluster_settings import (
    IN_THE_SHELL,
    MORE_MEMORY,
    Site,
    read_site,
    site_path,
)
from sweeps.launchers.slurm.node_probe import Need, ask_node
from sweeps.launchers.slurm.reachable import folders_on_local_disks, is_outside, local_folders
from sweeps.launchers.slurm.scheduler import Slurm, node_names
from sweeps.launchers.slurm.submission import Request, arrays_of, by_request, probed_partitions

COMMANDS = ("sbatch", "squeue", "scancel", "sinfo", "sacct")

# Limit in seconds for the answer of a command.
TIMEOUT_S = 20

# Columns of sinfo: those of ``_NodeKind``.
FIELDS = "%P|%a|%l|%c|%G|%F"


class _NodeKind(NamedTuple):
    """One row of sinfo: a partition has one for each kind of node.

    Attributes:
        partition: Its name; * marks the default partition.
        available: ``up``, or why jobs cannot be started: ``down``, ``drain``, ``inact``.
        time_limit: Longest time limit of a job.
        cores: CPU cores of a node; with a + where nodes have different numbers.
        resources: Generic resources of a node, such as GPUs; ``(null)`` for none.
        nodes: Numbers of allocated/idle/other/all nodes; others are drained, down or reserved.
    """

    partition: str
    available: str
    time_limit: str
    cores: str
    resources: str
    nodes: str


def check_slurm(subject: Subject) -> Iterator[Finding]:
    """Check Slurm's commands, accounting, limits and partitions; nothing for other launchers."""
    launcher = subject.first.launcher
    if not isinstance(launcher, SlurmLauncher):
        return
    missing = [name for name in COMMANDS if shutil.which(name) is None]
    if missing:
        yield error(
            "slurm",
            f"not found: {', '.join(missing)}",
            "run this on a login node, or launcher=local",
        )
        return

    yield from _accounting()
    yield from _reachable(subject)
    path = site_path(launcher.site)
    try:
        site = read_site(launcher.site)
    except ConfigError as failure:
        other = "launcher.site=<your copy of slurm/site.yaml>"
        yield error("slurm site", str(failure), f"edit {path}" if path.exists() else other)
        return
    try:
        requests = by_request(_numbered(subject.configs), launcher, site)
    except ConfigError as failure:
        yield _without_job(subject, launcher, failure)
        return

    if secrets := site.secrets_in_clear(key_variables(subject.configs)):
        yield warning("slurm site", f"{path}: {secrets}", IN_THE_SHELL)
    most_gb = max((request.resources.memory_gb for request in requests), default=0)
    if shortage := site.memory_shortage(most_gb):
        yield warning("slurm memory", shortage, f"in {path}: {MORE_MEMORY}")
    yield from _limits(subject, site, launcher)
    for partition in dict.fromkeys(request.partition for request in requests):
        asked = [request for request in requests if request.partition == partition]
        code, output = _sinfo(partition)
        if code != 0:
            # sinfo succeeds even for a partition that does not exist, so slurmctld does not answer,
            # and would not for the other partitions either.
            yield error(
                f"partition {partition or '(default)'}",
                f"not checked; sinfo: {output or f'exit status {code}'}",
                "is slurmctld up? ask the administrators",
            )
            return
        yield from _partition(launcher, partition, asked, site.gres, output)


def _without_job(subject: Subject, launcher: SlurmLauncher, failure: ConfigError) -> Finding:
    """Report the run that fits no job; ``failure`` is the error of ``by_request``."""
    for config in subject.configs:
        missing = shortage(config, launcher.gpu_gb)
        # Of several runs that fit no job, the error is about the first.
        if missing is not None and str(missing) == str(failure):
            return error("slurm job", missing.what, missing.remedy)
    return error("slurm job", str(failure), "launcher.time_h=<hours>, or other resources")


def check_node(subject: Subject) -> Iterator[Finding]:
    """Run the probe of submissions on a node of each partition: Python and the run folders.

    No findings with ``launcher.probe_s=0``, if Slurm does not answer, if this host is a node itself
    or if ``check_slurm`` reports an error of the site file or of a job.
    """
    launcher = subject.first.launcher
    if not isinstance(launcher, SlurmLauncher) or not launcher.probe_s or not is_outside():
        return
    try:
        site = read_site(launcher.site)
        requests = list(by_request(_numbered(subject.configs), launcher, site))
    except ConfigError:
        return

    needs = (
        Need("the Python of the environment", Path(sys.executable), "x"),
        Need("machine.runs_dir", subject.existing_dir, "w"),
    )
    for partition in probed_partitions(requests, site):
        answer = ask_node(partition, needs, launcher.probe_s)
        if answer.node is None:
            yield warning("slurm node", answer.why, "later, or a longer launcher.probe_s")
        elif answer.lacking:
            lacking = ", ".join(f"cannot {need}" for need in answer.lacking)
            text = f"{answer.node} ({partition}) {lacking}"
            yield error("slurm node", text, "a folder on a file system that the nodes share")
        else:
            text = f"{answer.node} ({partition}) can execute Python and write run folders"
            yield ok("slurm node", text)


def _numbered(configs: Iterable[RunConfig]) -> dict[str, RunConfig]:
    """Configurations by their numbers, in the place of run ids."""
    return {str(number): config for number, config in enumerate(configs)}


def _accounting() -> Iterator[Finding]:
    """Check that sacct answers: only sacct knows why a job that left the queue has ended.

    Without sacct, runs of such jobs are LOST without a reason; sweeps resume them nevertheless.
    """
    code, output = _call("sacct", "--noheader", "--starttime", "now-1minutes")
    if code == 0:
        yield ok("slurm accounting", "sacct answers")
    else:
        fix = (
            "the site's administrators: slurmdbd; until then, status cannot say why a job was LOST"
        )
        yield warning("slurm accounting", f"sacct: {output or f'exit status {code}'}", fix)


def _reachable(subject: Subject) -> Iterator[Finding]:
    """Warn about folders that the nodes may not see, without which a job ends at once."""
    # Without the names of the nodes, it is unknown whether this host is one of them.
    known = bool(node_names())
    folders = local_folders if known else folders_on_local_disks
    described = [
        f"{name} lies in {folder} ({kind})" for name, folder, kind in folders(subject.runs_dir)
    ]
    local = ", ".join(described)
    if local and not known:
        text = f"could not be checked, as Slurm names no node: {local}"
        fix = "repeat when sinfo answers, or check that the nodes can read them"
        yield warning("slurm files", text, fix)
    elif local:
        text = f"{local}: no network file system, do the nodes see it?"
        yield warning("slurm files", text, "a folder on a file system that the nodes share")
    else:
        yield ok("slurm files", "run folders and Python environment lie where nodes can read them")


def _limits(subject: Subject, site: Site, launcher: SlurmLauncher) -> Iterator[Finding]:
    """Report the limits on the number of jobs, and a ``parallelism`` that a sweep refuses."""
    limits = Slurm().limits(site.account, site.qos)
    listed = {
        "jobs of an array": limits.array_size,
        "of yours queued and running": limits.submitted,
        "of yours running": limits.running,
    }
    known = ", ".join(f"{count} {what}" for what, count in listed.items() if count is not None)
    try:
        # A search submits each of its runs by itself, so it has no such limit.
        requests = by_request(_numbered(subject.planned), launcher, site)
        arrays_of(requests, launcher.parallelism, limits)
    except ConfigError as failure:
        yield error("slurm limits", str(failure), "launcher.parallelism=<as many>")
        return
    yield ok(
        "slurm limits", f"{known or 'none known'}; launcher.parallelism={launcher.parallelism}"
    )


def _sinfo(partition: str | None) -> tuple[int, str]:
    """Exit status of sinfo and its rows of a partition (None: of all), or its error."""
    chosen = ["--partition", partition] if partition else []
    return _call("sinfo", "--noheader", "--format", FIELDS, *chosen)


def _partition(
    launcher: SlurmLauncher,
    name: str | None,
    asked: Sequence[Request],
    gres: str | None,
    output: str,
) -> Iterator[Finding]:
    """Check that a partition exists, and that it can run the jobs.

    Args:
        launcher: Settings of the launcher.
        name: The partition; None for the default one.
        asked: Requests of the jobs in this partition.
        gres: ``gres`` of the site file.
        output: Output of ``_sinfo`` for this partition.
    """
    kinds = []
    for line in output.splitlines():
        # sinfo may print warnings between its rows.
        if line.count("|") == FIELDS.count("|"):
            kinds.append(_NodeKind(*line.split("|")))
    if name is None:
        # Without a partition, Slurm takes the default one.
        kinds = [kind for kind in kinds if kind.partition.endswith("*")] or kinds
    check = f"partition {name or '(default)'}"
    if not kinds:
        yield error(
            check,
            "the cluster has no such partition",
            f"partition: <one that sinfo shows>, in {launcher.site}",
        )
        return
    if gres and any(request.resources.gpus for request in asked):
        yield from _gres(check, gres, [kind.resources for kind in kinds], launcher.site)
    yield from _fits(check, asked, kinds)


def _gres(check: str, gres: str, offered: Sequence[str], site: str) -> Iterator[Finding]:
    """Report a ``gres`` of the site that no node of the partition has."""
    names = set().union(*map(_gres_names, offered))
    if re.sub(r":\d+$", "", gres) not in names:
        text = f"gres: {gres}; its nodes have {', '.join(sorted(names)) or 'none'}"
        yield error(check, text, f"gres: <one of these>, or leave it out, in {site}")


def _gres_names(resources: str) -> set[str]:
    """Names that a job may ask a node for: gpu and gpu:a800 for ``gpu:a800:4(S:0-1)``."""
    # Sockets, whose numbers may have commas between them; or (null), for a node without resources.
    without_parentheses = re.sub(r"\([^)]*\)", "", resources)
    names = set()
    for resource in without_parentheses.split(","):
        # gpu:a800:4 -> gpu:a800; a large number may end in K or M.
        name = re.sub(r":\d+\w?$", "", resource.strip())
        if name:
            names |= {name, name.partition(":")[0]}
    return names


def _fits(check: str, asked: Sequence[Request], kinds: Sequence[_NodeKind]) -> Iterator[Finding]:
    """Check that a partition is up, and offers the cores, GPUs and hours that jobs ask for."""
    if all(kind.available != "up" for kind in kinds):
        yield error(check, f"is {kinds[0].available}", "another partition, or wait")
        return

    usable = 0
    all_nodes = 0
    for kind in kinds:
        allocated, idle, _, total = [int(count) for count in kind.nodes.split("/")]
        usable += allocated + idle
        all_nodes += total
    if not usable:
        yield warning(
            check,
            f"up, and none of its {counted(all_nodes, 'node')} takes jobs now{_reasons()}",
            "jobs wait until a node is back (`sinfo -R` has the reasons), or another partition",
        )
        return

    # A job fits if the largest kind of node has enough.
    cores = max(int(re.sub(r"\D", "", kind.cores) or 0) for kind in kinds)
    gpus = max(_gpus_in(kind.resources) for kind in kinds)
    asked_cores = max(request.resources.cpus for request in asked)
    asked_gpus = max(request.resources.gpus for request in asked)
    if cores < asked_cores:
        yield error(
            check,
            f"nodes have {cores} cores, a job asks for {asked_cores}",
            f"launcher.cpus={cores}",
        )
    if gpus < asked_gpus:
        fix = "another partition, or trainer=verl_1gpu" if asked_gpus > 1 else "another partition"
        yield error(check, f"nodes have {gpus} GPUs, a job asks for {asked_gpus}", fix)
    longest = max(_hours(kind.time_limit) for kind in kinds)
    asked_h = max(request.limit_min for request in asked) / 60
    if asked_h > longest:
        yield warning(
            check,
            f"allows {longest:.4g} h, a job asks for {asked_h:.4g} h",
            # Rounded down to 0.01 h: a limit of 31 min, rounded up to 0.52 h, would become 32 min.
            f"max_time_h: {math.floor(100 * longest) / 100:g}, in launcher.site",
        )
    if cores >= asked_cores and gpus >= asked_gpus and asked_h <= longest:
        yield ok(check, f"up, {cores} cores and {gpus} GPUs a node, {longest:.4g} h")


def _reasons() -> str:
    """Administrators' reasons why nodes of any partition take no jobs, in parentheses, or empty."""
    code, output = _call("sinfo", "--noheader", "--list-reasons", "--format", "%T: %E")
    reasons = dict.fromkeys(line.strip() for line in output.splitlines() if line.strip())
    return f" ({'; '.join(reasons)})" if code == 0 and reasons else ""


def _gpus_in(resources: str) -> int:
    """Number of GPUs in a node's generic resources: 4 for ``gpu:a800:4(S:0-1)``."""
    return sum(int(count) for count in re.findall(r"gpu(?::[^:,()]+)?:(\d+)", resources))


def _hours(limit: str) -> float:
    """Hours of a time limit of sinfo: 36 for ``1-12:00:00``, infinite for ``infinite``."""
    if not re.fullmatch(r"(\d+-)?[\d:]+", limit):
        return float("inf")
    days, _, clock = limit.rpartition("-")
    parts = [int(part) for part in clock.split(":")]
    # sinfo omits leading parts that are 0: 30:00 is half an hour.
    hours, minutes, seconds = [0] * (3 - len(parts)) + parts
    return int(days or 0) * 24 + hours + minutes / 60 + seconds / 3600


def _call(*command: str) -> tuple[int, str]:
    """Exit status of a command, and its output or, if it failed, the last line of its errors."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return 1, f"no answer within {TIMEOUT_S} s"
    if done.returncode == 0:
        return 0, done.stdout.strip()
    # Earlier lines may be warnings; the last one has the fatal error.
    errors = done.stderr.strip().splitlines()
    return done.returncode, errors[-1] if errors else ""
