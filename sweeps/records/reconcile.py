"""Decide what to do with each run: a pure function of the wanted and the observed runs."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from scpo.records import State
from scpo.records.run_folders import RUNS_DIR, option_of
from scpo.records.status import JobState, Observed


class Action(StrEnum):
    """Actions on a run.

    START is a first start, a resume or a retry: the run itself looks for a checkpoint. LEAVE is for
    a run that is active elsewhere or that only a person may start again. ADOPT records the id of a
    job whose submission died before it could.
    """

    START = "start"
    SKIP = "skip"
    LEAVE = "leave"
    ADOPT = "adopt"


# Replaces a run's id in the commands of a reason, so that runs with the same reason can be counted.
ANY_RUN = "RUN"


@dataclass(frozen=True)
class Decision:
    """An action and a short reason, in whose commands ``ANY_RUN`` is the run's id."""

    action: Action
    why: str

    def reason(self, run_id: str) -> str:
        """The reason with the id of this run in its commands."""
        return self.why.replace(f" {ANY_RUN}", f" {run_id}")


# ``{here}``: the option for the folder of the runs; empty for the default folder.
_SETTLED = {
    State.DONE: Decision(Action.SKIP, "finished before"),
    State.PRUNED: Decision(
        Action.SKIP, "pruned by a search; `python -m sweeps retry RUN{here}` lets it go on"
    ),
    State.DAMAGED: Decision(
        Action.LEAVE,
        "DAMAGED; `python -m sweeps verify RUN{here}` names the damage and what to do",
    ),
    State.UNREADABLE: Decision(Action.LEAVE, "UNREADABLE; you have no permission to read it"),
    State.CANCELLED: Decision(
        Action.LEAVE, "cancelled; `python -m sweeps retry RUN{here}` starts it again"
    ),
}

_JOBS = {
    JobState.QUEUED: Decision(Action.LEAVE, "waiting in the queue of Slurm"),
    JobState.RUNNING: Decision(Action.LEAVE, "running as a Slurm job"),
    JobState.ORPHANED: Decision(
        Action.ADOPT, "submitted by a call that died before it could record the job"
    ),
    JobState.UNKNOWN: Decision(Action.LEAVE, "the scheduler does not say whether its job lives"),
}

_STARTS = {
    State.NEW: "first start",
    State.PENDING: "not started yet",
    State.LOST: "its process died; goes on",
    State.INTERRUPTED: "goes on",
    State.FAILED: "tried again",
}


def reconcile(
    want: Iterable[str],
    have: Mapping[str, Observed],
    max_failures: int,
    runs_dir: Path = RUNS_DIR,
) -> dict[str, Decision]:
    """Decision for each wanted run by id; other runs on disk are ignored.

    ``runs_dir``: the folder of the runs, for the commands in the reasons.
    """
    here = option_of(runs_dir)
    decisions = {}
    for run_id in want:
        decision = decide(have.get(run_id, Observed(State.NEW)), max_failures)
        decisions[run_id] = replace(decision, why=decision.why.replace("{here}", here))
    return decisions


def decide(run: Observed, max_failures: int) -> Decision:
    """Decide about one run; after ``max_failures`` failures only `retry` starts it again."""
    # The order matters: a recorded end is final; then a live process counts, then the scheduler.
    if run.recorded.settled or run.recorded in (State.DAMAGED, State.UNREADABLE):
        return _SETTLED[run.recorded]
    # While its job runs, the process is that of the job.
    if run.alive and run.job is not JobState.RUNNING:
        return Decision(Action.LEAVE, "run by another process")
    if run.job in _JOBS:
        return _JOBS[run.job]
    if run.state.settled:
        return _SETTLED[run.state]
    if run.recorded is State.FAILED and run.failures >= max_failures:
        return Decision(
            Action.LEAVE,
            f"failed {run.failures} times; `python -m sweeps retry RUN{{here}}` tries it again",
        )
    why = _STARTS[run.state]
    if run.state in (State.LOST, State.INTERRUPTED, State.FAILED):
        why += " from its last checkpoint" if run.checkpoint else ", no checkpoint yet"
    return Decision(Action.START, why)
