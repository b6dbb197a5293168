"""The state of a run: status.json, stop.json, and what an observer concludes from them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    PositiveInt,
)

from scpo.records.files import Count, FileSum, Record


class State(StrEnum):
    """How a run stands. The first seven are what status.json says; the others only an observer can tell.

    Every state but DAMAGED is one of ``settled``, ``live`` and ``startable``.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    INTERRUPTED = "INTERRUPTED"
    CANCELLED = "CANCELLED"  # by a person: left alone until `retry`
    PRUNED = "PRUNED"  # by a search: final

    NEW = "NEW"  # it has no folder yet
    QUEUED = "QUEUED"  # its job waits
    UNKNOWN = "UNKNOWN"  # it has a job, and the scheduler does not answer
    LOST = "LOST"  # its process or its job is gone without a word
    DAMAGED = "DAMAGED"  # its records cannot be read

    @property
    def recorded(self) -> bool:
        """Whether status.json may say so."""
        return self not in (State.NEW, State.QUEUED, State.UNKNOWN, State.LOST, State.DAMAGED)

    @property
    def settled(self) -> bool:
        """No sweep starts it by itself."""
        return self in (State.DONE, State.PRUNED, State.CANCELLED)

    @property
    def live(self) -> bool:
        """Something runs it, will run it, or may be running it."""
        return self in (State.RUNNING, State.QUEUED, State.UNKNOWN)

    @property
    def startable(self) -> bool:
        """Nobody runs it, and it may be started or resumed."""
        return self in (State.NEW, State.PENDING, State.INTERRUPTED, State.FAILED, State.LOST)


class JobState(StrEnum):
    """What a scheduler says of the job that was submitted for a run.

    ORPHANED: it has the job, but the run's record lacks the id, because the driver died in between. UNKNOWN: it does
    not answer. ENDED: over, or never there.
    """

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    ORPHANED = "ORPHANED"
    UNKNOWN = "UNKNOWN"
    ENDED = "ENDED"


@dataclass(frozen=True)
class Observed:
    """A run as it is found.

    ``recorded``: what its status says, NEW without a folder. ``alive``: some process holds it now. ``job`` None: no job
    was ever submitted for it. ``stop``: what it was asked to end as. ``failures``: how often it has failed.
    """

    recorded: State
    alive: bool = False
    job: JobState | None = None
    stop: State | None = None
    failures: int = 0

    @property
    def state(self) -> State:
        """How it stands: a RUNNING run that nobody runs is LOST, one that was told to stop has stopped."""
        if self.recorded is State.NEW or self.recorded.settled or self.alive:
            return self.recorded
        if self.job in _WITH_JOB:
            return _WITH_JOB[self.job]
        if self.stop is not None and self.stop.settled:
            return self.stop
        died = self.recorded is State.RUNNING or (self.recorded is State.PENDING and self.job is JobState.ENDED)
        return State.LOST if died else self.recorded


_WITH_JOB = {
    JobState.QUEUED: State.QUEUED,
    JobState.ORPHANED: State.QUEUED,
    JobState.RUNNING: State.RUNNING,
    JobState.UNKNOWN: State.UNKNOWN,
}


def _recorded(state: State) -> State:
    if not state.recorded:
        raise ValueError(f"{state} is what others see of a run, never what it records")
    return state


class Status(Record):
    """status.json: how far a run has come, and which process is or was on it.

    ``failures`` counts the attempts that ended FAILED since the run was made or retried by a person. ``boot`` is the
    kernel that the process ran under: a container that comes back under another name is on it still. ``sums`` are of
    the run's files as they were when this was written; the logs may have grown since, until the run is DONE.
    """

    state: Annotated[State, AfterValidator(_recorded)]
    attempt: Count = 0
    step: Count = 0
    steps: Count
    failures: Count = 0
    reason: str | None = None
    pid: Annotated[PositiveInt, Field(lt=1 << 31)] | None = None
    host: str | None = None
    boot: str | None = None
    started_at: str | None = None
    updated_at: str | None = None
    commit: str | None = None
    sums: dict[str, FileSum] = Field(default_factory=dict)


class StopRequest(Record):
    """stop.json: what a run shall end as at its next step. INTERRUPTED holds for one attempt, the others for all."""

    state: Literal[State.INTERRUPTED, State.CANCELLED, State.PRUNED]
    reason: str
