"""Disks that tests may fill or make read-only: mounted in memory, which only root may do."""

import contextlib
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path


class NoMountsError(Exception):
    """The machine lets nobody mount a disk here."""


@contextlib.contextmanager
def small_disk(path: Path, size: str = "8m") -> Iterator[Path]:
    """A disk of its own at ``path``, gone afterwards.

    Raises:
        NoMountsError: Only root may mount one, and not in every container.
    """
    path.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        raise NoMountsError("needs root: a small disk is mounted")
    try:
        yield path
    finally:
        subprocess.run(["umount", "-l", str(path)], check=True)


def fill(disk: Path, room: int = 0) -> Path:
    """Leave only so many bytes on the disk; the file to remove for more."""
    filler = disk / "filler"
    with contextlib.suppress(OSError):
        filler.write_bytes(b"x" * max(0, shutil.disk_usage(disk).free - room))
    return filler


@contextlib.contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Nobody can write to it, root neither."""
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True)


def half_a_checkpoint(folder: Path, step: int, size: int) -> Path:
    """What a kill in the middle of writing one leaves among a run's checkpoints: weights that are cut, no marker."""
    scratch = folder / f".step_{step:05d}.tmp"
    scratch.mkdir(parents=True)
    (scratch / "model.safetensors").write_bytes(os.urandom(size))
    return scratch
