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

    ``state`` None: it has no folder yet. ``alive``: some process holds it now. ``job`` None: no job was ever submitted
    for it. ``stop``: what it was asked to end as. ``failures``: how often it has failed.
    """

    state: State | None
    alive: bool = False
    job: JobState | None = None
    stop: State | None = None
    failures: int = 0

    @property
    def shown(self) -> str:
        """The state as people see it: a RUNNING run that nobody runs is LOST, one that was told to stop has stopped."""
        if self.state is None:
            return "NEW"
        if self.state in SETTLED:
            return str(self.state)
        if self.alive:
            return str(self.state)
        if self.job in _SHOWN:
            return _SHOWN[self.job]
        if self.stop in SETTLED:
            return str(self.stop)
        died = self.state is State.RUNNING or (self.state is State.PENDING and self.job is JobState.ENDED)
        return "LOST" if died else str(self.state)


@dataclass(frozen=True)
class Decision:
    """An action and, in a few words, why."""

    action: Action
    why: str


SETTLED = (State.DONE, State.PRUNED, State.CANCELLED)  # what no sweep starts by itself
_SHOWN = {
    JobState.QUEUED: "QUEUED",
    JobState.ORPHANED: "QUEUED",
    JobState.RUNNING: "RUNNING",
    JobState.UNKNOWN: "UNKNOWN",
}
_SETTLED = {
    "DONE": Decision(Action.SKIP, "finished before"),
    "PRUNED": Decision(Action.SKIP, "pruned by a search; `python -m sweeps retry` lets it go on"),
    "CANCELLED": Decision(Action.LEAVE, "cancelled; `python -m sweeps retry` starts it again"),
}
_JOBS = {
    JobState.QUEUED: Decision(Action.LEAVE, "queued"),
    JobState.RUNNING: Decision(Action.LEAVE, "its job runs"),
    JobState.ORPHANED: Decision(Action.ADOPT, "submitted by a call that died before it could record the job"),
    JobState.UNKNOWN: Decision(Action.LEAVE, "the scheduler does not say whether its job lives"),
}
_STARTS = {
    "NEW": "first start",
    "PENDING": "not started yet",
    "LOST": "its process died; goes on from its last checkpoint",
    "INTERRUPTED": "goes on from its last checkpoint",
    "FAILED": "tried again, from its last checkpoint",
}


def reconcile(want: Iterable[str], have: Mapping[str, Observed], max_failures: int) -> dict[str, Decision]:
    """Run id -> what to do. Runs that are on disk but not wanted are none of this call's business."""
    return {run_id: decide(have.get(run_id, Observed(None)), max_failures) for run_id in want}


def decide(run: Observed, max_failures: int) -> Decision:
    """What to do about one run; one that has failed ``max_failures`` times is left to a person."""
    if run.state in SETTLED:
        return _SETTLED[run.shown]
    if run.alive:
        return Decision(Action.LEAVE, "run by another process")
    if run.job in _JOBS:
        return _JOBS[run.job]
    if run.shown in _SETTLED:
        return _SETTLED[run.shown]
    if run.state is State.FAILED and run.failures >= max_failures:
        return Decision(Action.LEAVE, f"failed {run.failures} times; `python -m sweeps retry` tries it again")
    return Decision(Action.START, _STARTS[run.shown])
