"""What to do about each run: a pure function of what is wanted and what is found on disk and at the scheduler."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from scpo.tracking import State


class Action(StrEnum):
    """START covers a first start, a resume and a retry alike: a run finds its own last checkpoint."""

    START = "start"
    SKIP = "skip"
    LEAVE = "leave"
    ADOPT = "adopt"


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


@dataclass(frozen=True)
class Decision:
    """An action and, in a few words, why."""

    action: Action
    why: str


_WITH_JOB = {
    JobState.QUEUED: State.QUEUED,
    JobState.ORPHANED: State.QUEUED,
    JobState.RUNNING: State.RUNNING,
    JobState.UNKNOWN: State.UNKNOWN,
}
_SETTLED = {
    State.DONE: Decision(Action.SKIP, "finished before"),
    State.PRUNED: Decision(Action.SKIP, "pruned by a search; `python -m sweeps retry` lets it go on"),
    State.CANCELLED: Decision(Action.LEAVE, "cancelled; `python -m sweeps retry` starts it again"),
}
_JOBS = {
    JobState.QUEUED: Decision(Action.LEAVE, "queued"),
    JobState.RUNNING: Decision(Action.LEAVE, "its job runs"),
    JobState.ORPHANED: Decision(Action.ADOPT, "submitted by a call that died before it could record the job"),
    JobState.UNKNOWN: Decision(Action.LEAVE, "the scheduler does not say whether its job lives"),
}
_STARTS = {
    State.NEW: "first start",
    State.PENDING: "not started yet",
    State.LOST: "its process died; goes on from its last checkpoint",
    State.INTERRUPTED: "goes on from its last checkpoint",
    State.FAILED: "tried again, from its last checkpoint",
}


def reconcile(want: Iterable[str], have: Mapping[str, Observed], max_failures: int) -> dict[str, Decision]:
    """Run id -> what to do. Runs that are on disk but not wanted are none of this call's business."""
    return {run_id: decide(have.get(run_id, Observed(State.NEW)), max_failures) for run_id in want}


def decide(run: Observed, max_failures: int) -> Decision:
    """What to do about one run; one that has failed ``max_failures`` times is left to a person."""
    if run.recorded.settled:
        return _SETTLED[run.recorded]
    if run.alive:
        return Decision(Action.LEAVE, "run by another process")
    if run.job in _JOBS:
        return _JOBS[run.job]
    if run.state.settled:
        return _SETTLED[run.state]
    if run.recorded is State.FAILED and run.failures >= max_failures:
        return Decision(Action.LEAVE, f"failed {run.failures} times; `python -m sweeps retry` tries it again")
    return Decision(Action.START, _STARTS[run.state])
