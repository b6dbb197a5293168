"""Run folders: layout, readers and writers of their records, creation, identity check and observation."""

import contextlib
import fcntl
import functools
import logging
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    Field,
    NonNegativeInt,
    RootModel,
    ValidationError,
)

from scpo.errors import ConfigError, PanelError, RecordError, RecordWriteError
from scpo.records.archive_index import INDEX, METRICS, RUNS, locate, read_index
from scpo.records.files import (
    Count,
    FileSum,
    Record,
    file_sum,
    first_complaint,
    naming_write_errors,
    read_record,
    read_yaml,
    sync,
    write_json,
    write_yaml,
)
from scpo.records.identity import identity, run_id
from scpo.records.status import JobState, Observed, State, Status, StopRequest
from scpo.schema import RunConfig


class PanelRecord(Record):
    """One panel of panels.json: the hash of its games, and their ids (of older runs their number)."""

    sha256: str
    tasks: list[str] | NonNegativeInt


class Panels(RootModel[dict[str, PanelRecord]]):
    """panels.json: the panels by name."""


class CheckpointMarker(Record):
    """COMPLETE, which a trainer writes last into a checkpoint: what is in it, and the logs as they were then."""

    step: Count
    files: dict[str, FileSum]
    logs: dict[str, FileSum]


class Provenance(Record):
    """provenance.json: by the number of an attempt its code, packages and machine."""

    attempts: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], dict[str, Any]]


CHECKPOINT_MARKER = "COMPLETE"  # the file that a trainer writes last into a checkpoint


CHECKPOINT = re.compile(r"step_(\d{5,9})")


SCRATCH = ".step_{:05d}.tmp"  # a checkpoint of trainer=local until it is whole; verl's lacks its marker until then


ATTEMPT = re.compile(r"attempt_(\d{1,9})")


logger = logging.getLogger(__name__)


class RunFolder:
    """``runs/<id>/``; see docs of each path. All writes are atomic, all readers raise RecordError naming the file."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"  # the full configuration
        self.identity = self.path / "identity.yaml"  # the part of it that was hashed into the run id
        self.provenance = self.path / "provenance.json"  # code, packages and machine of each attempt
        self.status = self.path / "status.json"
        self.stop = self.path / "stop.json"  # there as long as the run is asked to stop
        self.panels = self.path / "panels.json"  # name -> {sha256, tasks}
        self.metrics = self.path / "metrics.jsonl"  # deterministic values only: the truth
        self.timing = self.path / "timing.jsonl"  # wall times and hosts
        self.diagnostics = self.path / "diagnostics"
        self.checkpoints = self.path / "checkpoints"
        self.lock = self.path / "lock"  # flock-ed by the process that runs this run, for its lifetime
        self.latest = self.path / "latest"  # symlink to the newest attempt

    @property
    def run_id(self) -> str:
        """The name of the folder."""
        return self.path.name

    def read_config(self) -> RunConfig:
        """The validated full configuration."""
        data = read_yaml(self.config)
        try:
            return RunConfig.model_validate(data)
        except ValidationError as error:
            raise RecordError(
                f"{self.config} is no valid run configuration: {first_complaint(error)}. It was edited, or written by "
                f"another version of the code (its commit is in {self.provenance.name}): restore one or the other, or "
                "move the folder away"
            ) from error

    def write_config(self, config: RunConfig) -> None:
        """Store the full configuration."""
        write_yaml(self.config, config.model_dump(mode="json"), checked=True)

    def read_status(self) -> Status:
        """What status.json says; whether the process behind RUNNING lives is for ``sweeps`` to find out."""
        return read_record(self.status, Status, "status")

    def write_status(self, status: Status) -> Status:
        """Store the status with the current time; returns what was stored."""
        stamped = status.model_copy(update={"updated_at": now()})
        write_json(self.status, stamped.model_dump(mode="json"))
        return stamped

    def update_status(self, **changes: Any) -> Status:
        """Change some fields of the status. Only the process that holds the run's lock may do so."""
        return self.write_status(self.read_status().model_copy(update=changes))

    def note_sums(self, sums: Mapping[str, FileSum], **changes: Any) -> None:
        """Put what is known of the run's files into its status, if it has one; the same may do so."""
        if self.status.exists():
            before = self.read_status()
            self.write_status(before.model_copy(update={**changes, "sums": {**before.sums, **sums}}))

    def request_stop(self, request: StopRequest) -> None:
        """Ask the run to end at its next step, whichever process on whichever host is on it."""
        write_json(self.stop, request.model_dump(mode="json"))

    def read_stop(self) -> StopRequest | None:
        """What the run is asked to end as, None if it may go on."""
        if not self.stop.exists():
            return None
        return read_record(self.stop, StopRequest, "request", "Delete it, or `python -m sweeps cancel` the run again")

    def clear_stop(self) -> None:
        """Let the run go on."""
        self.stop.unlink(missing_ok=True)

    def read_panels(self) -> dict[str, dict[str, Any]]:
        """Name -> {sha256, tasks}; empty before the first attempt got that far."""
        if not self.panels.exists():
            return {}
        panels = read_record(self.panels, Panels, "record of panels").root
        return {name: panel.model_dump(mode="json") for name, panel in panels.items()}

    def read_attempts(self) -> list[dict[str, Any]]:
        """Code, packages and machine of each attempt, the first one first; empty before there was any."""
        if not self.provenance.exists():
            return []
        attempts = read_record(self.provenance, Provenance, "record of attempts").attempts
        return [attempts[number] for number in sorted(attempts, key=int)]

    def pin_panels(self, panels: dict[str, dict[str, Any]]) -> None:
        """Record the panels of this run; at a later attempt, refuse others than those it was started with."""
        recorded = self.read_panels()
        if not recorded:
            write_json(self.panels, panels)
            self.note_sums({self.panels.name: file_sum(self.panels)})
            return
        for name in sorted(recorded.keys() | panels.keys()):
            old, new = (of.get(name, {}).get("sha256", "absent") for of in (recorded, panels))
            if old != new:
                raise PanelError(
                    f"panel {name} of run {self.run_id} changed: it was started with {old}, now it is {new}. "
                    f"Restore the games, or delete {self.path} to start the run again"
                )

    def checkpoint(self, step: int) -> Path:
        """Where the checkpoint after ``step`` lies; a trainer writes CHECKPOINT_MARKER into it last."""
        return self.checkpoints / f"step_{step:05d}"

    def complete_checkpoints(self) -> list[int]:
        """Steps of the checkpoints that were finished, ascending; copies under other names are none."""
        folders = (marker.parent for marker in self.checkpoints.glob(f"step_*/{CHECKPOINT_MARKER}"))
        return sorted(step for path in folders if (step := numbered(path, CHECKPOINT)) is not None)

    def drop_half_checkpoints(self) -> None:
        """Remove what killed processes left of checkpoints that they were writing or removing: it may fill the disk.

        Only the process that holds the run's lock may do so.
        """
        unmarked = (path for path in self.checkpoints.glob("step_*") if numbered(path, CHECKPOINT) is not None)
        half = [path for path in unmarked if not (path / CHECKPOINT_MARKER).exists()]
        for path in sorted((*self.checkpoints.glob(".step_*.tmp"), *half)):
            logger.warning("checkpoint %s was never completed; it is removed", path)
            shutil.rmtree(path, ignore_errors=True)  # what cannot be removed is in nobody's way but the disk's

    def mark_complete(self, step: int, files: Mapping[str, FileSum], logs: Mapping[str, FileSum]) -> None:
        """Write a checkpoint's marker: from now on it counts."""
        marker = CheckpointMarker(step=step, files=dict(files), logs=dict(logs))
        write_json(self.checkpoint(step) / CHECKPOINT_MARKER, marker.model_dump(mode="json"))

    def attempt(self, number: int) -> Path:
        """The folder of one attempt: stdout.log and the code's uncommitted changes."""
        return self.path / f"attempt_{number}"

    def attempt_log(self, number: int) -> Path:
        """What that attempt printed."""
        return self.attempt(number) / "stdout.log"

    def new_attempt(self) -> int:
        """Make the next attempt's folder; two callers never get the same number."""
        known = (numbered(path, ATTEMPT) for path in self.path.glob("attempt_*"))
        number = 1 + max((one for one in known if one is not None), default=0)
        with naming_write_errors(self.attempt(number), 0):
            try:
                self.attempt(number).mkdir()
            except FileExistsError:
                return self.new_attempt()
        return number

    def point_latest(self, number: int) -> None:
        """Move the ``latest`` link to an attempt, atomically."""
        temporary = self.path / f".latest.{os.getpid()}.tmp"
        with naming_write_errors(self.latest, 0):
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            temporary.symlink_to(self.attempt(number).name)
            temporary.replace(self.latest)
            sync(self.path)


def now() -> str:
    """The time as records hold it: UTC, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def numbered(path: Path, form: re.Pattern[str]) -> int | None:
    """The number in a folder's name; None for a name of another form, as a copy of the folder has."""
    found = form.fullmatch(path.name)
    return int(found[1]) if found else None


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
    folder = Path(archive)
    try:
        index, damage = read_index(folder)
    except RecordError as error:
        raise ConfigError(
            f"machine.archive: {error}; or name a folder with {INDEX}, as docs/study; or "
            "machine.archive=null runs everything here"
        ) from error
    damaged = [name for name in (METRICS, RUNS) if locate(folder, name, index) is None]
    if damage or damaged:
        raise ConfigError(
            f"machine.archive={archive} is damaged ({', '.join(damaged or [INDEX])}): which of its "
            f"runs are whole is named by `python -m analysis figures --runs-dir {archive}`. Restore "
            "it; or machine.archive=null runs everything here"
        )
    return frozenset(index.runs)


def list_runs(runs_dir: Path) -> list[RunFolder]:
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
