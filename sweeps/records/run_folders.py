"""Run folders: creating them, opening them, and refusing one that holds another configuration."""

import contextlib
import fcntl
import functools
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from scpo.errors import ConfigError, RecordError, RecordWriteError, first_line
from scpo.schema import RunConfig
from scpo.tracking import RunFolder, State, Status
from scpo.tracking.atomic import naming_write_errors, read_yaml, write_yaml
from sweeps.compose.identity import identity, run_id
from sweeps.records.reconcile import JobState, Observed

EXPERIMENTS = "experiments"  # beside the run folders: which run is which row of which experiment


def ensure(config: RunConfig) -> RunFolder:
    """The folder of this configuration's run, made if it is not there, checked if it is.

    A folder appears whole, by a rename, so that a crash or a second caller never sees half of one. It is private (0700,
    as mkdtemp makes it). The machine's part of an unfinished run follows the present call.
    """
    folder = RunFolder(Path(config.machine.runs_dir) / run_id(config))
    if not folder.path.exists():
        _create(folder, config)
    recorded = check(folder, config)
    if recorded != config and folder.read_status().state is not State.DONE:
        folder.write_config(config)
    return folder


def check(folder: RunFolder, want: RunConfig | None = None) -> RunConfig:
    """Read a folder's configuration; RecordError if its records disagree with its name, each other or ``want``."""
    if not folder.path.is_dir():
        raise RecordError(f"there is no run folder {folder.path}; `python -m sweeps status` lists those there are")
    if not folder.identity.exists() and not folder.status.exists():
        raise RecordError(f"{folder.path} is no run folder; `python -m sweeps status` lists those there are")
    hashed = read_yaml(folder.identity)
    config = folder.read_config()
    _same(folder.path, "config.yaml", identity(config), "identity.yaml", hashed)
    if want is not None:
        _same(folder.path, "identity.yaml", hashed, "the configuration asked for", identity(want))
    if folder.run_id != (name := run_id(config)):
        raise RecordError(
            f"{folder.path} holds the run {name}: the folder holds another run than it says, or is a copy of one. "
            "Restore its name and files, or delete it"
        )
    return config


def finished_in(archive: str | None) -> frozenset[str]:
    """The runs that an archive of finished runs holds (``python -m analysis study`` writes one).

    Raises:
        ConfigError: There is none in that folder, or it cannot be read.
    """
    if archive is None:
        return frozenset()
    import pandas as pd  # of an extra, and slow to import

    try:
        return frozenset(pd.read_parquet(Path(archive) / "runs.parquet", columns=["id"])["id"])
    except (ImportError, OSError, ValueError) as error:
        raise ConfigError(
            f"machine.archive={archive} is no archive of runs that can be read: {first_line(error)}. "
            "Name the folder with runs.parquet, as docs/study; or machine.archive=null runs everything here"
        ) from error


def run_folders(runs_dir: Path) -> list[RunFolder]:
    """All run folders, by name; one that has lost its status is one too, a draft of a killed process is none."""
    found = {path.parent for name in ("status.json", "identity.yaml") for path in runs_dir.glob(f"*/{name}")}
    return [RunFolder(path) for path in sorted(found) if not path.name.startswith(".")]


def driver_lock(runs_dir: Path) -> AbstractContextManager[bool]:
    """Wait for, and hold, the right to decide what is started: two sweeps at once would submit a run twice."""
    with naming_write_errors(runs_dir, 0):
        runs_dir.mkdir(parents=True, exist_ok=True)
    return locked(runs_dir / ".lock", wait=True)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold a lock, such as a run's, for as long as this process lives; False if another process holds it.

    The kernel lets go of a flock when its holder dies, however it dies: no stale lock needs a clean-up. ``wait``: until
    the other process lets go.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise RecordWriteError(error.errno or 0, f"cannot open the lock {path}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def observe(folder: RunFolder, job: JobState | None = None) -> Observed:
    """How a run stands; ``job`` is what the scheduler says of its job, None if it never had one."""
    if not folder.path.exists():
        return Observed(State.NEW)
    status, request = folder.read_status(), folder.read_stop()
    elsewhere = job is None and status.state is State.RUNNING and not of_this_machine(status)
    return Observed(
        recorded=status.state,
        alive=status.state is not State.DONE and (elsewhere or is_held(folder)),
        job=job,
        stop=None if request is None else request.state,
        failures=status.failures,
    )


def of_this_machine(status: Status) -> bool:
    """Whether this kernel ran the process: then its lock says if it lives, whatever the machine is called by now."""
    return status.host in (None, socket.gethostname()) or (status.boot is not None and status.boot == boot_id())


@functools.cache
def boot_id() -> str | None:
    """Which start of which machine this is; containers on it share it. None where the system does not tell."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


def is_held(folder: RunFolder) -> bool:
    """Whether a process has this run's lock now (on another host: where the file system passes locks on)."""
    try:
        descriptor = os.open(
            folder.lock, os.O_RDONLY
        )  # also where nothing can be written: whoever looks changes nothing
    except FileNotFoundError:
        return False
    except OSError:
        return True  # not ours to look at: as far as we know it may be held
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def _create(folder: RunFolder, config: RunConfig) -> None:
    with naming_write_errors(folder.path, 0):
        folder.path.parent.mkdir(parents=True, exist_ok=True)
        draft = RunFolder(tempfile.mkdtemp(dir=folder.path.parent, prefix=".new-"))
    try:
        draft.write_config(config)
        write_yaml(draft.identity, identity(config))
        draft.write_status(Status(state=State.PENDING, steps=config.trainer.steps))
        with contextlib.suppress(OSError):  # another caller made the folder first: it is checked next
            draft.path.rename(folder.path)
    finally:
        shutil.rmtree(draft.path, ignore_errors=True)


def _same(path: Path, old_name: str, old: Any, new_name: str, new: Any) -> None:
    difference = next(_differences(old, new), None)
    if difference:
        key, before, after = difference
        raise RecordError(
            f"{path} is of another configuration: {key} is {before!r} in {old_name} and {after!r} in {new_name}. "
            f"Restore the file, or delete {path} to start the run again"
        )


def _differences(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, old, new) of each leaf that differs; a key that one side lacks counts as None there."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in dict.fromkeys([*old, *new]):
            yield from _differences(old.get(name), new.get(name), f"{key}.{name}" if key else str(name))
    elif old != new:
        yield key or "everything", old, new
