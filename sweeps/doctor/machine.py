"""Checks of this machine: CPUs, memory, disk, file system and GPUs for the runs to start."""

import fcntl
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scpo.findings import Finding, error, ok, warning
from scpo.memory import GIB
from scpo.progress import counted
from scpo.records.files import write_bytes
from scpo.records.memory import free_gib, installed_gpus, usable_cores
from scpo.schema.model import HuggingFaceModel
from scpo.schema.run import LocalLauncher, RunConfig
from sweeps.doctor.subject import Subject
from sweeps.records.file_systems import NETWORK_FILE_SYSTEMS, VOLATILE_FILE_SYSTEMS, file_system
from sweeps.resources import (
    GB,
    all_disk_gib,
    held_by_host_gib,
    lacks_gpus,
    refused_here,
    resources,
    slots_for,
    training_gib,
)

CGROUP, MEMINFO = Path("/sys/fs/cgroup"), Path("/proc/meminfo")

# A run writes some dozens of files; with fewer inodes than this the disk is nearly full.
MIN_INODES = 10_000

# Memory of a run's process without its model: the peak of a mini run is 0.95 GiB on ALFWorld and
# 1.3 GiB on WebShop (measured with scale=mini). A lower bound: activations come on top.
PROCESS_GIB = 1.4


def check_cpus(subject: Subject) -> Iterator[Finding]:
    """Compare slots x threads with the cores of this process, within a container's quota."""
    if not isinstance(subject.first.launcher, LocalLauncher):
        return
    cores = usable_cores()
    quota = _cpu_quota()
    # A container's quota may be below the number of cores that it sees.
    usable = min(cores, quota or cores)
    slots = _slots(subject)
    threads = subject.first.machine.threads
    text = f"at most {slots} at a time with {threads} threads each, on {usable:g} cores"
    if quota is not None and quota < cores:
        text += f" (of {cores}: this container's quota)"
    if slots * threads > usable:
        fitting = max(1, int(usable // threads))
        yield warning("cpus", f"{text}: they will wait for each other", f"launcher.slots={fitting}")
    else:
        yield ok("cpus", text)


def check_memory(subject: Subject) -> Iterator[Finding]:
    """Compare free memory, within a container's limit, with what the slots need.

    Less than the least is an error, less than what a job would ask Slurm for a warning.
    """
    if not isinstance(subject.first.launcher, LocalLauncher):
        return
    slots = _slots(subject)
    on_gpu = bool(installed_gpus()) and subject.first.machine.device != "cpu"
    # On a GPU, weights and optimizer take none of the machine's memory, unless they are offloaded.
    held = held_by_host_gib if on_gpu else training_gib
    models = [held(config) or 0.0 for config in subject.configs]
    needed = slots * (PROCESS_GIB + max(models))
    estimated = slots * max(_estimated_gib(config) for config in subject.configs)
    needs = f"{slots} at a time need at least {rounded(needed)}"
    if estimated > needed:
        needs += f", by estimate {rounded(estimated)}"
    free = free_gib(MEMINFO, CGROUP)
    if free is None:
        yield ok("memory", f"{needs}; what is free is read on Linux only")
        return
    text = f"{rounded(free)} free; {needs}"
    fitting = int(free // (needed / slots))
    if needed > free:
        yield error(
            "memory",
            text,
            f"launcher.slots={fitting}" if fitting else "a smaller model, or a larger machine",
        )
    elif estimated > free:
        fitting = int(free // (estimated / slots))
        yield warning(
            "memory",
            text,
            f"launcher.slots={fitting}" if fitting else "a machine with more; watch the first run",
        )
    else:
        yield ok("memory", text)


def _estimated_gib(config: RunConfig) -> float:
    """GiB that a job of a language model asks Slurm for; 0 for small models, which are measured."""
    if not isinstance(config.model, HuggingFaceModel):
        return 0.0
    return resources(config).memory_gb * GB / GIB


def check_disk(subject: Subject) -> Iterator[Finding]:
    """Compare free space and inodes with the checkpoints and logs that all runs will write."""
    place = subject.existing_dir
    free = shutil.disk_usage(place).free / GIB
    needed, unknown = all_disk_gib(subject.every_run)
    text = f"{rounded(free)} free in {place}; runs: {subject.runs}, writing up to {rounded(needed)}"
    if needed > free:
        yield error(
            "disk", text, "machine.runs_dir=<a larger disk>, or a smaller trainer.keep_checkpoints"
        )
    elif unknown:
        yield warning(
            "disk",
            f"{text}, not counting {counted(unknown, 'run')} of unknown size",
            "see that their checkpoints fit",
        )
    else:
        yield ok("disk", text)
    inodes = os.statvfs(place)
    # Some file systems have no fixed number of inodes and report 0.
    if inodes.f_files and inodes.f_favail < MIN_INODES:
        yield error(
            "disk",
            f"{inodes.f_favail} inodes are left in {place}",
            "remove small files, or another disk",
        )


def check_run_folder(subject: Subject) -> Iterator[Finding]:
    """Check that records can be written, renamed and locked, and name the file system."""
    place = subject.existing_dir
    kind = file_system(place)
    try:
        _try_out(place)
    except OSError as failure:
        fix = (
            "machine.runs_dir=<a folder of yours> (locks: another file system, or mount it with "
            "locks)"
        )
        yield error("run folder", f"{place} ({kind}): {failure.strerror or failure}", fix)
        return

    if kind in VOLATILE_FILE_SYSTEMS:
        yield warning(
            "run folder",
            f"{place} is {kind}: gone when the machine restarts",
            "machine.runs_dir=<a disk>",
        )
    else:
        yield ok("run folder", f"{place} ({kind}): writable, renames and locks work")
    if (
        subject.search is not None
        and subject.search.storage == "sqlite"
        and kind in NETWORK_FILE_SYSTEMS
    ):
        yield error(
            "search storage",
            f"sqlite on {kind} breaks when two hosts write",
            "search.storage=journal",
        )


def check_gpus(subject: Subject) -> Iterator[Finding]:
    """Compare the GPUs of this machine and their memory with the largest model."""
    if not isinstance(subject.first.launcher, LocalLauncher):
        return
    gpus = installed_gpus()
    large = any(isinstance(config.model, HuggingFaceModel) for config in subject.configs)
    if not gpus:
        yield _without_gpu(subject, large)
        return
    yield ok("gpus", ", ".join(f"{name} {_size(gib)}" for name, gib in gpus))
    if reason := refused_here(subject.configs):
        yield error("gpus", reason, "what it says, or a machine with more")


def _without_gpu(subject: Subject, large: bool) -> Finding:
    if subject.first.machine.device == "cuda":
        return error(
            "gpus",
            "machine.device=cuda, and nvidia-smi shows no GPU",
            "machine.device=auto, or a driver",
        )
    if any(lacks_gpus(config, 0) for config in subject.configs):
        return error(
            "gpus",
            "training with verl wants GPUs, and nvidia-smi shows none",
            "a machine with GPUs, or launcher=slurm_a800x4 on a cluster",
        )
    if large:
        return warning(
            "gpus", "none: a model of this size takes days a step on a CPU", "launcher=slurm_a800x4"
        )

    return ok("gpus", "none; the tiny policy needs none")


def _size(gib: float | None) -> str:
    return "of unknown size" if gib is None else rounded(gib)


def rounded(gib: float) -> str:
    """Format a size for people: 0.3 GiB, 12 GiB (from 10 on rounded up)."""
    if gib < 10:
        return f"{gib:.1f} GiB"
    return f"{math.ceil(gib)} GiB"


def _try_out(place: Path) -> None:
    """Write, rename and lock a file in this folder; OSError if that fails."""
    with tempfile.TemporaryDirectory(dir=place, prefix=".doctor-") as folder:
        path = Path(folder) / "record"
        write_bytes(path, b"written, synced and renamed\n")
        with path.open("rb+") as file:
            # Some network file systems are mounted without locks, on which run folders rely.
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _slots(subject: Subject) -> int:
    """Number of the runs that this machine runs at a time."""
    if refused_here([subject.first]):
        # check_gpus reports the reason.
        return 1
    return min(subject.runs, len(slots_for([subject.first] * subject.runs)))


def _cpu_quota() -> float | None:
    """Cores that the container's quota amounts to; None without a quota."""
    try:
        quota, period = (CGROUP / "cpu.max").read_text().split()
    except (OSError, ValueError):
        return None
    return None if quota == "max" else int(quota) / int(period)
