"""What to do about each run: a pure function of what is wanted and what is found on disk."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from scpo.tracking import State


class Action(StrEnum):
    """START covers a first start, a resume and a retry alike: a run finds its own last checkpoint."""

    START = "start"
    SKIP = "skip"
    LEAVE = "leave"


@dataclass(frozen=True)
class Observed:
    """A run on disk. ``state`` None: it has no folder yet; ``alive``: some process holds it now."""

    state: State | None
    alive: bool = False

    @property
    def shown(self) -> str:
        """The state as people see it: a RUNNING run that nobody runs is LOST."""
        if self.state is None:
            return "NEW"
        return "LOST" if self.state is State.RUNNING and not self.alive else str(self.state)


@dataclass(frozen=True)
class Decision:
    """An action and, in a few words, why."""

    action: Action
    why: str


_STARTS = {
    "NEW": "first start",
    "PENDING": "not started yet",
    "LOST": "its process died; goes on from its last checkpoint",
    "INTERRUPTED": "goes on from its last checkpoint",
    "FAILED": "tried again, from its last checkpoint",
}


def reconcile(want: Iterable[str], have: Mapping[str, Observed]) -> dict[str, Decision]:
    """Run id -> what to do. Runs that are on disk but not wanted are none of this call's business."""
    return {run_id: decide(have.get(run_id, Observed(None))) for run_id in want}


def decide(run: Observed) -> Decision:
    """What to do about one run."""
    if run.state is State.DONE:
        return Decision(Action.SKIP, "finished")
    if run.alive:
        return Decision(Action.LEAVE, "another process runs it")
    return Decision(Action.START, _STARTS[run.shown])
