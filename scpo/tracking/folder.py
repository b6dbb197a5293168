"""A run folder: where each record of one run lies, and how it is read and written."""

import contextlib
import logging
import os
import re
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from scpo.checksums import FileSum, file_sum
from scpo.errors import PanelError, RecordError
from scpo.schema import RunConfig
from scpo.tracking.atomic import naming_write_errors, read_yaml, write_json, write_yaml
from scpo.tracking.records import (
    CheckpointMarker,
    Panels,
    Provenance,
    Status,
    StopRequest,
    first_complaint,
    read_record,
)
from scpo.whole_file import sync

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
