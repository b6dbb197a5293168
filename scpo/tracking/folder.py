"""A run folder: where each record of one run lies, and how it is read and written."""

import contextlib
import os
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from scpo.errors import PanelError, RecordError
from scpo.schema import RunConfig
from scpo.tracking.atomic import naming_write_errors, read_json, read_yaml, write_json, write_yaml
from scpo.whole_file import sync

CHECKPOINT_MARKER = "COMPLETE"  # the file that a trainer writes last into a checkpoint


class State(StrEnum):
    """What status.json says. RUNNING without a living process is what the console calls LOST."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    INTERRUPTED = "INTERRUPTED"
    CANCELLED = "CANCELLED"  # by a person: left alone until `retry`
    PRUNED = "PRUNED"  # by a search: final


class Status(BaseModel):
    """status.json: how far a run has come, and which process is or was on it.

    ``failures`` counts the attempts that ended FAILED since the run was made or retried by a person.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: State
    attempt: NonNegativeInt = 0
    step: NonNegativeInt = 0
    steps: NonNegativeInt
    failures: NonNegativeInt = 0
    reason: str | None = None
    pid: int | None = None
    host: str | None = None
    started_at: str | None = None
    updated_at: str | None = None
    commit: str | None = None


class StopRequest(BaseModel):
    """stop.json: what a run shall end as at its next step. INTERRUPTED holds for one attempt, the others for all."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: Literal[State.INTERRUPTED, State.CANCELLED, State.PRUNED]
    reason: str


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
                f"{self.config} is no valid run configuration: {_first(error)}. It was edited, or written by another "
                f"version of the code (its commit is in {self.provenance.name}): restore one or the other, or move "
                "the folder away"
            ) from error

    def write_config(self, config: RunConfig) -> None:
        """Store the full configuration."""
        write_yaml(self.config, config.model_dump(mode="json"))

    def read_status(self) -> Status:
        """What status.json says; whether the process behind RUNNING lives is for ``sweeps`` to find out."""
        data = read_json(self.status)
        try:
            return Status.model_validate(data)
        except ValidationError as error:
            raise RecordError(f"{self.status} is no valid status: {_first(error)}") from error

    def write_status(self, status: Status) -> Status:
        """Store the status with the current time; returns what was stored."""
        stamped = status.model_copy(update={"updated_at": now()})
        write_json(self.status, stamped.model_dump(mode="json"))
        return stamped

    def update_status(self, **changes: Any) -> Status:
        """Change some fields of the status. Only the process that holds the run's lock may do so."""
        return self.write_status(self.read_status().model_copy(update=changes))

    def request_stop(self, request: StopRequest) -> None:
        """Ask the run to end at its next step, whichever process on whichever host is on it."""
        write_json(self.stop, request.model_dump(mode="json"))

    def read_stop(self) -> StopRequest | None:
        """What the run is asked to end as, None if it may go on."""
        if not self.stop.exists():
            return None
        try:
            return StopRequest.model_validate(read_json(self.stop))
        except ValidationError as error:
            raise RecordError(f"{self.stop} is no valid request: {_first(error)}") from error

    def clear_stop(self) -> None:
        """Let the run go on."""
        self.stop.unlink(missing_ok=True)

    def read_panels(self) -> dict[str, dict[str, Any]]:
        """Name -> {sha256, tasks}; empty before the first attempt got that far."""
        return dict(read_json(self.panels)) if self.panels.exists() else {}

    def pin_panels(self, panels: dict[str, dict[str, Any]]) -> None:
        """Record the panels of this run; at a later attempt, refuse others than those it was started with."""
        recorded = self.read_panels()
        if not recorded:
            write_json(self.panels, panels)
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
        """Steps of the checkpoints that were finished, ascending."""
        return sorted(int(marker.parent.name[5:]) for marker in self.checkpoints.glob(f"step_*/{CHECKPOINT_MARKER}"))

    def attempt(self, number: int) -> Path:
        """The folder of one attempt: stdout.log and the code's uncommitted changes."""
        return self.path / f"attempt_{number}"

    def attempt_log(self, number: int) -> Path:
        """What that attempt printed."""
        return self.attempt(number) / "stdout.log"

    def new_attempt(self) -> int:
        """Make the next attempt's folder; two callers never get the same number."""
        number = 1 + max((int(path.name[8:]) for path in self.path.glob("attempt_*")), default=0)
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


def _first(error: ValidationError) -> str:
    detail = error.errors()[0]
    return f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
