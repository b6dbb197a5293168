"""How a trial stands: a function of how its runs stand."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scpo.records import State


@dataclass(frozen=True)
class TrialRun:
    """One run of a trial. ``curve`` is the metric by training step.

    ``fresh``: it has made an attempt since the trial began; an older failure is no failure of this trial. ``near``: it
    runs, if it does, in a job or on this host.
    """

    run_id: str
    seed: int
    state: State
    fresh: bool
    curve: Mapping[int, float]
    reason: str | None = None
    near: bool = False

    @property
    def takes_room(self) -> bool:
        """It has a job of the scheduler or a slot of this host."""
        return self.near and self.state.live

    @property
    def dead(self) -> bool:
        """It failed, or its process died, in this trial."""
        return self.state is State.DAMAGED or (self.fresh and self.state in (State.FAILED, State.LOST, State.CANCELLED))

    @property
    def startable(self) -> bool:
        """Nobody runs it, and it may be started or resumed."""
        return self.state.startable and not self.dead

    @property
    def last(self) -> float:
        """The metric at the last step, NaN if it was never measured."""
        return self.curve[max(self.curve)] if self.curve else math.nan


def end_of(runs: Sequence[TrialRun]) -> tuple[State | None, str | None]:
    """How the trial of these runs has ended (DONE, PRUNED, FAILED), None while it goes on; and why it failed."""
    if dead := [run for run in runs if run.dead]:
        return State.FAILED, f"{dead[0].run_id} {dead[0].state}: {dead[0].reason or 'its process died'}"
    if any(run.state is State.PRUNED for run in runs):
        return State.PRUNED, None
    if any(run.state is not State.DONE for run in runs):
        return None, None
    if empty := [run for run in runs if math.isnan(run.last)]:
        return State.FAILED, f"{empty[0].run_id} is DONE without a value of the objective in its metrics.jsonl"
    return State.DONE, None


def mean_curve(runs: Sequence[TrialRun]) -> dict[int, float]:
    """The mean over the seeds, at the steps that all of them have reached."""
    common = set.intersection(*(set(run.curve) for run in runs))
    return {step: math.fsum(run.curve[step] for run in runs) / len(runs) for step in sorted(common)}
