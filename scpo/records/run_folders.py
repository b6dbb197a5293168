"""Run folders: layout, readers and writers of their records, and observation of their state."""

import contextlib
import errno
import functools
import logging
import os
import re
import shlex
import shutil
import socket
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, NonNegativeInt, RootModel

from scpo.errors import ConfigError, MisnamedError, PanelError, RecordError, RecordWriteError
from scpo.records.archive_index import INDEX, METRICS, RUNS, locate, read_index
from scpo.records.files import (
    RUN_AGAIN,
    Count,
    FileSum,
    Record,
    check_readable,
    file_sum,
    folder_change,
    is_locked,
    is_open,
    locked,
    naming_write_errors,
    owner,
    read_record,
    read_yaml,
    sync,
    write_json,
)
from scpo.records.status import JobState, Observed, State, Status, StopRequest

# A trainer writes this file last, so a checkpoint without it is incomplete.
CHECKPOINT_MARKER = "COMPLETE"
CHECKPOINT = re.compile(r"step_(\d{5,9})")

# Form of run ids: environment, model, method, seed and a hash.
RUN_NAME = re.compile(r".+-s\d+-[0-9a-f]{8}")

# Name of a checkpoint of trainer=local until it is complete. verl writes checkpoints in place.
SCRATCH = ".step_{:05d}.tmp"

# Largest checkpoint, in bytes, that a dry run and `status` read; of larger ones they compare only
# the sizes of the files. A resumed run and `verify` always read the whole checkpoint, which takes
# minutes at 7B (91 GB).
READ_AT_A_GLANCE = 1 << 30

# Log with the wall times of the steps.
TIMING = "timing.jsonl"

# How to recover from a damaged record of a run's job.
JOB_REMEDY = (
    "No result depends on it. Delete it if the scheduler has no such job, then start the sweep "
    "again"
)

# How to recover from a damaged record of a run's code. Tables leave a run without one out of their
# comparison of the code, and keep its numbers.
CODE_REMEDY = (
    "No result depends on it. Restore it from a copy, or move the file away: the run then has no "
    "record of its code, so that tables cannot compare it, and a run that goes on compares the "
    "commits"
)

# Panels that panels.json lists besides the configured validation panels.
TRAINING_PANELS = ("train", "probe")

# Errors of a write where nothing may be written.
READ_ONLY = (errno.EROFS, errno.EACCES, errno.EPERM)

# The folder of runs where none is named, in the working directory.
RUNS_DIR = Path("runs")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

logger = logging.getLogger(__name__)


class PanelRecord(Record):
    """One panel of panels.json: hash of its games, and their ids (their number, if unknown)."""

    sha256: str
    tasks: list[str] | NonNegativeInt


class Panels(RootModel[dict[str, PanelRecord]]):
    """panels.json: the panels of training and validation, by name."""


class CheckpointMarker(Record):
    """COMPLETE: checksums of a checkpoint's files, and of the logs when it was written."""

    step: Count
    files: dict[str, FileSum]
    logs: dict[str, FileSum]


class Provenance(Record):
    """provenance.json: code, packages and machine of each attempt, by its number.

    ``run`` is the run's id; None in records that were written before it was recorded.
    """

    run: str | None = None
    attempts: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], dict[str, Any]]


class RunFolder:
    """Paths, readers and writers of ``runs/<id>/``.

    Writes are atomic; readers raise RecordError with the name of the damaged file.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.config = self.path / "config.yaml"  # the full configuration
        # The part of the configuration that the run id hashes.
        self.identity = self.path / "identity.yaml"
        self.provenance = self.path / "provenance.json"
        # Written by sweeps for a run that a scheduler starts.
        self.job = self.path / "job.json"
        self.code = self.path / "code.json"
        self.status = self.path / "status.json"
        # Present while the run is asked to stop.
        self.stop = self.path / "stop.json"
        self.panels = self.path / "panels.json"
        # Deterministic values only, so that a resumed run writes the same bytes.
        self.metrics = self.path / "metrics.jsonl"
        # Wall times and hosts, which differ between attempts.
        self.timing = self.path / TIMING
        self.diagnostics = self.path / "diagnostics"
        self.checkpoints = self.path / "checkpoints"
        # Held by the run's process for its lifetime.
        self.lock = self.path / "lock"
        self.latest = self.path / "latest"  # symlink to the newest attempt

    @property
    def run_id(self) -> str:
        """The name of the folder."""
        return self.path.name

    def read_status(self) -> Status:
        """The recorded status; ``observe`` also checks that the process of a RUNNING run lives."""
        status = read_record(self.status, Status, "status")
        self._check_owner(self.status, status.run)
        return status

    def write_status(self, status: Status) -> Status:
        """Write the status with the current time; returns the written status."""
        # The time of a finished run's last status is its end, which ``PastTimes`` reads.
        stamped = status.model_copy(update={"updated_at": now()})
        write_json(self.status, stamped.model_dump(mode="json"))
        return stamped

    def update_status(self, **changes: Any) -> Status:
        """Change fields of the status. The caller must hold the run's lock."""
        return self.write_status(self.read_status().model_copy(update=changes))

    def note_sums(self, sums: Mapping[str, FileSum], **changes: Any) -> None:
        """Add checksums of the run's files to its status. The caller must hold the run's lock."""
        # A trainer may be used without the launcher that creates a status.
        if self.status.exists():
            before = self.read_status()
            merged = {**before.sums, **sums}
            self.write_status(before.model_copy(update={**changes, "sums": merged}))

    def request_stop(self, request: StopRequest) -> None:
        """Ask the run to end at its next step, on any host."""
        write_json(self.stop, request.model_dump(mode="json"))

    def read_stop(self) -> StopRequest | None:
        """The pending stop request, or None."""
        if not self.stop.exists():
            return None
        cancel = command_on(self.path.parent, "sweeps cancel", self.run_id)
        remedy = f"No result depends on it. Delete it, or cancel the run again: {cancel}"
        return read_record(self.stop, StopRequest, "request", remedy)

    def clear_stop(self) -> None:
        """Withdraw the stop request."""
        self.stop.unlink(missing_ok=True)

    def read_panels(self) -> dict[str, dict[str, Any]]:
        """Name -> {sha256, tasks}; empty until the first attempt has recorded them."""
        if not self.panels.exists():
            return {}
        panels = read_record(self.panels, Panels, "record of panels").root
        return {name: panel.model_dump(mode="json") for name, panel in panels.items()}

    def read_provenance(self) -> dict[str, dict[str, Any]]:
        """Provenance of each attempt, by its number; empty before the first one."""
        if not self.provenance.exists():
            return {}
        remedy = f"It has commit, packages and machine of each attempt, no results. {RUN_AGAIN}"
        record = read_record(self.provenance, Provenance, "record of attempts", remedy)
        self._check_owner(self.provenance, record.run)
        return record.attempts

    def read_attempts(self) -> list[dict[str, Any]]:
        """Provenance of each attempt, in their order; empty before the first one."""
        attempts = self.read_provenance()
        # Sorted as numbers, because as text "10" would come before "2".
        return [attempts[number] for number in sorted(attempts, key=int)]

    def _check_owner(self, path: Path, run: str | None) -> None:
        """Verify that a record is of this run; ``run`` is the id in it, None in an old record.

        Logs, panels and samples have no id, but their checksums are in status.json. If they were
        copied from another run with its status, the status has the other id; if they were copied
        without it, the checksums differ.

        Raises:
            RecordError: The record is of another run.
        """
        if run is None or run == self.run_id:
            return
        if self.path.is_symlink():
            # Files that are "restored" here would replace those of the run that it leads to.
            raise misnamed(self.path, run)
        raise RecordError(
            f"{path} is of the run {run}: it was copied from there, or the folder was renamed. "
            f"Restore this run's own {path.name} and the logs that belong to it; or move the run "
            "folder away to start the run again"
        )

    def pin_panels(self, panels: dict[str, dict[str, Any]]) -> None:
        """Record the panels at the first attempt; check them at later ones.

        Raises:
            PanelError: A panel differs from the recorded one.
        """
        recorded = self.read_panels()
        if not recorded:
            write_json(self.panels, panels)
            self.note_sums({self.panels.name: file_sum(self.panels)})
            return
        for name in sorted(recorded.keys() | panels.keys()):
            old = recorded.get(name, {}).get("sha256", "absent")
            new = panels.get(name, {}).get("sha256", "absent")
            if old != new:
                raise PanelError(
                    f"panel {name} of run {self.run_id} changed: it was started with {old}, now it "
                    f"is {new}. Restore the games, or move {self.path} away to start the run again"
                )

    def checkpoint(self, step: int) -> Path:
        """The folder of the checkpoint after ``step``."""
        return self.checkpoints / f"step_{step:05d}"

    def complete_checkpoints(self) -> list[int]:
        """Steps of the complete checkpoints, ascending; copies under other names are ignored."""
        steps = []
        for marker in self.checkpoints.glob(f"step_*/{CHECKPOINT_MARKER}"):
            step = numbered(marker.parent, CHECKPOINT)
            if step is not None:
                steps.append(step)
        return sorted(steps)

    def read_marker(self, step: int) -> CheckpointMarker:
        """The marker of a complete checkpoint, with the checksums of its files and of the logs."""
        path = self.checkpoint(step) / CHECKPOINT_MARKER
        return read_record(path, CheckpointMarker, "marker of a checkpoint", "Restore it")

    def checkpoint_damage(self, step: int, *, at_a_glance: bool = False) -> str | None:
        """Describe the damage of a complete checkpoint, or None if it is whole.

        Args:
            step: Its step.
            at_a_glance: Compare only the sizes of a large one. Otherwise all its bytes are read,
                because a change of a byte does not change the size.
        """
        place = self.checkpoint(step)
        try:
            marker = self.read_marker(step)
        except RecordError as error:
            return str(error)
        if marker.step != step:
            path = place / CHECKPOINT_MARKER
            return f"{path} is of step {marker.step}, its folder of step {step}"
        size = sum(known.bytes for known in marker.files.values())
        contents = not at_a_glance or size <= READ_AT_A_GLANCE
        changed = folder_change(place, marker.files, contents=contents)
        return f"{place}: {changed}" if changed else None

    def whole_checkpoints(self, *, at_a_glance: bool = False) -> Iterator[int]:
        """Steps of the whole checkpoints, newest first, each examined when it is asked for.

        Args:
            at_a_glance: See ``checkpoint_damage``; damaged ones are passed over without a warning.

        Raises:
            RecordError: There are checkpoints, and none is whole. Starting again would overwrite
                what the run has logged, which only a person may decide.
        """
        if lost := self.lost_markers():
            raise lost
        damages = []
        found = False
        for step in reversed(self.complete_checkpoints()):
            damage = self.checkpoint_damage(step, at_a_glance=at_a_glance)
            if damage is None:
                found = True
                yield step
                continue
            damages.append((step, damage))
            if not at_a_glance:
                logger.warning("%s: this checkpoint is damaged; trying an earlier one", damage)
        if damages and not found:
            raise self.all_damaged(*damages[0])

    def lost_markers(self) -> RecordError | None:
        """Error of a run whose checkpoints have all lost their markers; None for others.

        trainer=local writes the marker before a checkpoint gets its name. With verl, the marker is
        written later, but for one checkpoint at a time: a single checkpoint without a marker may
        be left from a killed process.
        """
        if self.complete_checkpoints():
            return None
        # A folder that has only temporary files holds no checkpoint that could be lost.
        unmarked = [path for path in self._unmarked() if any(path.glob("[!.]*"))]
        if not unmarked or (len(unmarked) == 1 and not self._is_local()):
            return None
        step, newest = max((numbered(path, CHECKPOINT) or 0, path) for path in unmarked)
        return self.all_damaged(step, f"{newest / CHECKPOINT_MARKER} is lost")

    def _unmarked(self) -> list[Path]:
        """Folders with a checkpoint's name and without a marker."""
        paths = []
        for path in sorted(self.checkpoints.glob("step_*")):
            is_checkpoint = numbered(path, CHECKPOINT) is not None
            if is_checkpoint and not (path / CHECKPOINT_MARKER).exists():
                paths.append(path)
        return paths

    def _is_local(self) -> bool:
        """True if trainer=local writes the run's checkpoints."""
        try:
            return bool(read_yaml(self.config)["trainer"]["name"] == "local")
        except (RecordError, LookupError, TypeError):
            # `run_config.check` reports a damaged configuration. A trainer may be used without the
            # launcher that creates one.
            return False

    def all_damaged(self, step: int, damage: str) -> RecordError:
        """Error of a run that cannot go on; ``step``, ``damage``: of its newest checkpoint."""
        steps = "1 step" if step == 1 else f"{step} steps"
        return RecordError(
            f"{damage}: this checkpoint is damaged, and no other one is whole. Restore its files; "
            f"or move {self.checkpoints} (or the run folder) away, and the same command begins "
            f"anew from step 0, which loses {steps}"
        )

    def drop_half_checkpoints(self) -> None:
        """Remove incomplete checkpoints of killed processes, which may fill the disk.

        Checkpoints that have all lost their markers are kept: see ``lost_markers``. The caller must
        hold the run's lock.
        """
        half = list(self.checkpoints.glob(".step_*.tmp"))
        if self.lost_markers() is None:
            half += self._unmarked()
        for path in sorted(half):
            logger.warning("checkpoint %s was never completed; it is removed", path)
            # Errors are ignored: an incomplete checkpoint takes space, but is never loaded.
            shutil.rmtree(path, ignore_errors=True)

    def mark_complete(
        self, step: int, files: Mapping[str, FileSum], logs: Mapping[str, FileSum]
    ) -> None:
        """Write a checkpoint's marker, with which it becomes valid.

        Args:
            step: Step of the checkpoint.
            files: Checksums of its files.
            logs: Checksums of the logs at this step.
        """
        marker = CheckpointMarker(step=step, files=dict(files), logs=dict(logs))
        write_json(self.checkpoint(step) / CHECKPOINT_MARKER, marker.model_dump(mode="json"))

    def attempt(self, number: int) -> Path:
        """The folder of one attempt: stdout.log and the code's uncommitted changes."""
        return self.path / f"attempt_{number}"

    def attempt_log(self, number: int) -> Path:
        """Standard output of that attempt."""
        return self.attempt(number) / "stdout.log"

    def new_attempt(self) -> int:
        """Number of the next attempt; its folder is created.

        Processes that start at the same time get the same number and folder, and the first one that
        holds the run's lock begins the attempt. The number is not derived from the folders, because
        each of these processes would then create one of its own.
        """
        number = self.read_status().attempt + 1
        with naming_write_errors(self.attempt(number), 0):
            self.attempt(number).mkdir(exist_ok=True)
        return number

    def point_latest(self, number: int) -> None:
        """Point the ``latest`` link to an attempt, atomically."""
        temporary = self.path / f".latest.{os.getpid()}.tmp"
        with naming_write_errors(self.latest, 0):
            with contextlib.suppress(FileNotFoundError):
                temporary.unlink()
            temporary.symlink_to(self.attempt(number).name)
            temporary.replace(self.latest)
            sync(self.path)


def now() -> str:
    """The time in records: UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def numbered(path: Path, form: re.Pattern[str]) -> int | None:
    """The number in a folder's name; None for a name of another form, such as that of a copy."""
    match = form.fullmatch(path.name)
    return int(match[1]) if match else None


def finished_in(archive: str | None) -> frozenset[str]:
    """Ids of the runs in an archive, which ``python -m analysis study`` writes; empty for None.

    Raises:
        ConfigError: The folder is not an archive, or the archive is damaged.
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
            f"machine.archive={archive} is damaged ({', '.join(damaged or [INDEX])}): "
            f"`{command_on(folder, 'analysis figures')}` names the runs that are whole. Restore "
            "it; or machine.archive=null runs everything here"
        )
    return frozenset(index.runs)


def misnamed(path: Path, held: str) -> MisnamedError:
    """Error of a folder or link whose name is not the id of the run that it holds.

    It never advises to delete data, as nothing shows that there is another copy.

    Args:
        path: The folder or link.
        held: Id of the run by the records in it.
    """
    own = path.with_name(held)
    unused = "No table, figure or sweep uses it"
    rename = shlex.join(["mv", str(path), str(own)])
    if path.is_symlink():
        target = path.resolve()
        if target == own.resolve():
            where, use = f"the run {held} of the same folder", ""
        else:
            where = f"the run {held} in {target}"
            use = "" if own.exists() else f", or give the link the run's name: `{rename}`"
        return MisnamedError(
            f"{path} is a link to {where}. {unused} under this name. Remove the link only: "
            f"`{shlex.join(['rm', str(path)])}`{use}"
        )
    if own.exists():
        return MisnamedError(
            f"{path} holds the run {held}: the folder is a copy, or it or its config.yaml was "
            f"changed. {unused}. Restore its name and files, or move it out of {path.parent}"
        )
    return MisnamedError(
        f"{path} holds the run {held}, the only folder of it in {path.parent}: it was renamed, or "
        f"its config.yaml was changed. {unused}. Restore its name (`{rename}`) or its config.yaml"
    )


def check_link(path: Path) -> None:
    """Raise MisnamedError for a link under a run's name that leads nowhere."""
    if path.is_symlink() and not path.exists():
        raise MisnamedError(
            f"{path} is a link to {path.readlink()}, which is not there. Bring it back (is its "
            f"disk mounted?); or remove the link, `{shlex.join(['rm', str(path)])}`, to start the "
            "run again"
        )


def list_runs(runs_dir: Path) -> list[RunFolder]:
    """All run folders, sorted by name.

    Folders that have lost their status are included, so that they can be reported, and so are those
    that this user may not read. Drafts that were left by killed processes are not.

    Raises:
        UnreadableError: This user may not read ``runs_dir``.
    """
    check_readable(runs_dir)
    paths: set[Path] = set()
    for name in ("status.json", "identity.yaml"):
        paths.update(path.parent for path in runs_dir.glob(f"*/{name}"))
    # The records of an unreadable folder cannot be found, so its name decides.
    for path in runs_dir.glob("*-s*-*"):
        if RUN_NAME.fullmatch(path.name) and not is_open(path):
            paths.add(path)
    return [RunFolder(path) for path in sorted(paths) if not path.name.startswith(".")]


def command_on(runs_dir: Path, call: str, *words: str) -> str:
    """A command on the runs of a folder, to be copied to a shell.

    Args:
        runs_dir: The folder; the default one is left out.
        call: The command with its options, such as ``sweeps rm --finished``.
        words: Its arguments, such as ids of runs.

    Returns:
        For example ``python -m sweeps rm --finished one --runs-dir elsewhere``.
    """
    return " ".join([f"python -m {call}", *map(shlex.quote, words)]) + option_of(runs_dir)


def option_of(runs_dir: Path) -> str:
    """`` --runs-dir elsewhere``; empty for the default folder."""
    return "" if runs_dir == RUNS_DIR else f" --runs-dir {shlex.quote(str(runs_dir))}"


@contextlib.contextmanager
def driver_lock(runs_dir: Path) -> Iterator[bool]:
    """Lock for starting runs; waits for it, since two sweeps at once would submit a run twice.

    Raises:
        ConfigError: The folder is read-only, at least for this user.
    """
    with naming_write_errors(runs_dir, 0):
        runs_dir.mkdir(parents=True, exist_ok=True)
    lock = runs_dir / ".lock"
    with contextlib.ExitStack() as stack:
        try:
            held = stack.enter_context(locked(lock, wait=True))
        except RecordWriteError as error:
            if error.errno not in READ_ONLY:
                raise
            if error.errno == errno.EACCES and lock.is_file() and is_open(runs_dir, os.W_OK):
                whose = owner(lock)
                raise ConfigError(
                    f"{lock} belongs to {whose}, and only {whose} may lock it: "
                    f"machine.runs_dir={runs_dir} is written by the sweeps of {whose}. One folder "
                    "is written by one account (docs/cluster.md): name a folder of your own, "
                    "machine.runs_dir=...; to read the runs here, "
                    f"`{command_on(runs_dir, 'analysis figures')}` after {whose} has called "
                    f"`chmod -R a+rX {shlex.quote(str(runs_dir))}`"
                ) from error
            raise ConfigError(
                f"machine.runs_dir={runs_dir}: nothing can be written there "
                f"({os.strerror(error.errno)}), and a sweep locks and records its runs there, also "
                "finished ones. Tables without a sweep: "
                f"`{command_on(runs_dir, 'analysis figures')}`; or name a folder that can be "
                "written: machine.runs_dir=..."
            ) from error
        yield held


def observe(folder: RunFolder, job: JobState | None = None) -> Observed:
    """Observe a run; ``job`` is the scheduler's answer about its job, None if it never had one."""
    check_readable(folder.path)
    check_link(folder.path)
    if not folder.path.exists():
        return Observed(State.NEW)
    status, held = _status_and_lock(folder)
    request = folder.read_stop()
    # A process on another machine, without a job, cannot be checked: assume that it is alive.
    elsewhere = job is None and status.state is State.RUNNING and not of_this_machine(status)
    return Observed(
        recorded=status.state,
        alive=held or elsewhere,
        job=job,
        stop=None if request is None else request.state,
        failures=status.failures,
        checkpoint=bool(folder.complete_checkpoints()),
    )


def _status_and_lock(folder: RunFolder) -> tuple[Status, bool]:
    """Status of a run, and whether a process holds its lock (False for DONE), as of one moment.

    A process takes the lock before it records RUNNING, and releases it after it has recorded its
    end. The status is therefore read again after the lock was found free, until it has not changed.
    """
    status = folder.read_status()
    while status.state is not State.DONE and not is_locked(folder.lock):
        before, status = status, folder.read_status()
        if status == before:
            return status, False
    return status, status.state is not State.DONE


def of_this_machine(status: Status) -> bool:
    """True if the process ran under this kernel, so that its lock shows if it is alive."""
    if status.host in (None, socket.gethostname()):
        return True
    return status.boot is not None and status.boot == boot_id()


@functools.cache
def boot_id() -> str | None:
    """Boot id of the kernel, which its containers share; None on systems without one."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return None
