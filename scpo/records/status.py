"""The state of a run: status.json, stop.json, and the state that an observer infers from them."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PositiveInt

from scpo.errors import RecordError, UnreadableError
from scpo.records.files import Count, FileSum, Record


class State(StrEnum):
    """The state of a run. The first seven are recorded; an observer infers the others.

    Every state except DAMAGED and UNREADABLE is exactly one of ``settled``, ``live`` and
    ``startable``.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    INTERRUPTED = "INTERRUPTED"
    # Stopped by a person; not started again before `retry`.
    CANCELLED = "CANCELLED"
    # Stopped by a search; final.
    PRUNED = "PRUNED"

    # The folder does not exist yet.
    NEW = "NEW"
    # Its job is waiting.
    QUEUED = "QUEUED"
    # It has a job, but the scheduler does not answer.
    UNKNOWN = "UNKNOWN"
    # Its process or job ended without recording the end.
    LOST = "LOST"
    # Its records cannot be read.
    DAMAGED = "DAMAGED"
    # This user has no permission to read its records.
    UNREADABLE = "UNREADABLE"

    @property
    def recorded(self) -> bool:
        """True if status.json may hold this state."""
        return self not in (
            State.NEW,
            State.QUEUED,
            State.UNKNOWN,
            State.LOST,
            State.DAMAGED,
            State.UNREADABLE,
        )

    @property
    def settled(self) -> bool:
        """True if a sweep leaves the run as it is."""
        return self in (State.DONE, State.PRUNED, State.CANCELLED)

    @property
    def live(self) -> bool:
        """True if a process runs it, will run it, or may be running it."""
        return self in (State.RUNNING, State.QUEUED, State.UNKNOWN)

    @property
    def startable(self) -> bool:
        """True if no process runs it, and it may be started or resumed."""
        return self in (
            State.NEW,
            State.PENDING,
            State.INTERRUPTED,
            State.FAILED,
            State.LOST,
        )


class JobState(StrEnum):
    """A scheduler's answer about the job that was submitted for a run."""

    QUEUED = "QUEUED"
    RUNNING = "RUNNING"
    # The run's record lacks the job's id: the driver died after it submitted.
    ORPHANED = "ORPHANED"
    # The scheduler does not answer.
    UNKNOWN = "UNKNOWN"
    # The job is over, or never existed.
    ENDED = "ENDED"


def state_of(error: RecordError) -> State:
    """State of a run whose records could not be read: UNREADABLE without permission, or DAMAGED."""
    return State.UNREADABLE if isinstance(error, UnreadableError) else State.DAMAGED


_STATE_OF_JOB = {
    JobState.QUEUED: State.QUEUED,
    JobState.ORPHANED: State.QUEUED,
    JobState.RUNNING: State.RUNNING,
    JobState.UNKNOWN: State.UNKNOWN,
}


@dataclass(frozen=True)
class Observed:
    """Observation of a run.

    Attributes:
        recorded: The state in status.json; NEW without a folder.
        alive: True if a process holds the run's lock now.
        job: The scheduler's answer; None if no job was ever submitted.
        stop: The state in which it was asked to end; None without a request.
        failures: Number of failed attempts.
        checkpoint: True if it has a checkpoint to resume from.
    """

    recorded: State
    alive: bool = False
    job: JobState | None = None
    stop: State | None = None
    failures: int = 0
    checkpoint: bool = False

    @property
    def state(self) -> State:
        """The state as observed: RUNNING without a process is LOST; a stop request takes effect."""
        if self.recorded is State.NEW or self.recorded.settled or self.alive:
            return self.recorded
        if self.job in _STATE_OF_JOB:
            return _STATE_OF_JOB[self.job]
        if self.stop is not None and self.stop.settled:
            return self.stop
        if self.recorded is State.RUNNING:
            return State.LOST
        # The job ended in the queue or at its start, before the run wrote its first status.
        if self.recorded is State.PENDING and self.job is JobState.ENDED:
            return State.LOST
        return self.recorded


def _recorded(state: State) -> State:
    if not state.recorded:
        allowed = ", ".join(known for known in State if known.recorded)
        raise ValueError(f"{state} is inferred by observers and never recorded; allowed: {allowed}")
    return state


class Status(Record):
    """status.json: progress of a run, and the process that runs or ran it.

    Attributes:
        run: Id of the run; None in statuses that were written before it was recorded.
        failures: Number of attempts that ended FAILED since the run was created, or since a person
            retried it.
        boot: Boot id of the kernel that ran the process. It identifies the machine of a container
            that returns under another host name.
        sums: Checksums of the run's files at the time of writing. Until the run is DONE, logs may
            have grown since.
    """

    run: str | None = None
    state: Annotated[State, AfterValidator(_recorded)]
    attempt: Count = 0
    step: Count = 0
    steps: Count
    failures: Count = 0
    reason: str | None = None
    # Positive, because os.kill interprets 0 and negative numbers as groups of processes.
    pid: Annotated[PositiveInt, Field(lt=1 << 31)] | None = None
    host: str | None = None
    boot: str | None = None
    started_at: str | None = None
    updated_at: str | None = None
    commit: str | None = None
    sums: dict[str, FileSum] = Field(default_factory=dict)


class StopRequest(Record):
    """stop.json: the state in which a run shall end at its next step.

    INTERRUPTED is for the present attempt, the others are for all attempts.
    """

    state: Literal[State.INTERRUPTED, State.CANCELLED, State.PRUNED]
    reason: str
