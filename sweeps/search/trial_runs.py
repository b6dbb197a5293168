"""Runs of a trial: their states and values, and how the trial ends with them.

A complete trial's recorded value is compared with the logs of its runs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from scpo.errors import RecordError, no_space_in
from scpo.records import RunFolder, State, log_gaps, run_config
from scpo.records.logs import read_whole
from scpo.schema.run import RunConfig
from sweeps.records.process import NOT_RESUMED
from sweeps.search.plan import Plan
from sweeps.search.study import BY_SEED

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial


@dataclass(frozen=True)
class TrialRun:
    """State of one run of a trial.

    Attributes:
        run_id: Name of its folder.
        seed: Its seed; the objective is averaged over the seeds.
        state: Its observed state.
        fresh: True if an attempt was made since the trial began. How earlier attempts ended does
            not count against the trial.
        curve: Values of the search's metric, by training step.
        reason: Why it ended.
        near: True if it has a job of the scheduler, or its last process was on this host.
        attempt: Number of its attempts.
        stopped: True if this trial is being pruned and the run was stopped for it.
        without_space: Errno of the full disk, quota or file-size limit that it failed for; None if
            it did not. Such a failure does not count against the trial.
    """

    run_id: str
    seed: int
    state: State
    fresh: bool
    curve: Mapping[int, float]
    reason: str | None = None
    near: bool = False
    attempt: int = 0
    stopped: bool = False
    without_space: int | None = None

    @property
    def occupies_slot(self) -> bool:
        """True if it is live, in a job of the scheduler or in a slot of this host."""
        return self.near and self.state.live

    @property
    def dead(self) -> bool:
        """True if its records are damaged, it is cancelled, or it failed or died in this trial.

        One dead run fails the trial. A run that was cancelled before the trial, or in the queue
        before its first attempt, counts too: nothing starts it before `retry`.
        """
        if self.state in (State.DAMAGED, State.CANCELLED):
            return True
        failed = self.fresh and self.state in (State.FAILED, State.LOST)
        return failed and self.without_space is None

    @property
    def startable(self) -> bool:
        """True if it may be started or resumed, and no process runs it.

        A run that another search has pruned may be resumed: that decision was about its trial.
        """
        return (self.state.startable or self.state is State.PRUNED) and not self.dead

    @property
    def last(self) -> float:
        """The metric at the last step; NaN if it was never measured."""
        if not self.curve:
            return math.nan
        return self.curve[max(self.curve)]


def was_stopped(state: State, attempt: int, attempt_to_stop: int | None, *, asked: bool) -> bool:
    """True if a run was stopped because its trial is being pruned.

    Args:
        state: Its observed state.
        attempt: Number of its attempts.
        attempt_to_stop: Their number when the trial was to be pruned; None if it is not pruned.
        asked: True if this driver has asked the run to stop.
    """
    if attempt_to_stop is None or state is State.DONE:
        return False
    # Another search or `retry` may let a stopped run go on, which this trial does not wait for.
    goes_on = attempt > attempt_to_stop or (asked and state.startable)
    return state is State.PRUNED or goes_on


def errno_without_space(state: State, reason: str | None) -> int | None:
    """Errno of the lack of space that a run failed for, as its reason names it; None if not."""
    if state not in (State.FAILED, State.LOST) or not reason:
        return None
    # An earlier failure of a run that was then not resumed is no reason for its present state.
    return no_space_in(reason.rpartition(NOT_RESUMED)[2])


def end_of(runs: Sequence[TrialRun]) -> tuple[State | None, str | None]:
    """How a trial with these runs ended (DONE, PRUNED or FAILED), and the reason of a failure.

    (None, None) while the trial goes on, or while the runs of a trial that is being pruned end.
    """
    dead = next((run for run in runs if run.dead), None)
    if dead is not None:
        return State.FAILED, f"{dead.run_id} {dead.state}: {dead.reason or 'its process died'}"
    if any(run.stopped for run in runs):
        return State.PRUNED, None
    if any(run.state is not State.DONE for run in runs):
        return None, None
    empty = next((run for run in runs if math.isnan(run.last)), None)
    if empty is not None:
        why = f"{empty.run_id} is DONE without a value of the objective in its metrics.jsonl"
        return State.FAILED, why
    return State.DONE, None


def mean_curve(runs: Sequence[TrialRun]) -> dict[int, float]:
    """Mean of the metric over the seeds, at the steps that all seeds have reached."""
    # A mean over some of the seeds would not be comparable with other trials' means over all.
    common = set.intersection(*(set(run.curve) for run in runs))
    curve = {}
    for step in sorted(common):
        curve[step] = math.fsum(run.curve[step] for run in runs) / len(runs)
    return curve


def read_curve(
    folder: RunFolder, config: RunConfig, metric: str, *, finished: bool
) -> dict[int, float]:
    """Values of a metric in a run's metrics.jsonl, by training step.

    Args:
        folder: The run.
        config: The configuration that it should have.
        metric: The metric.
        finished: True if the run is DONE. Its files may have been edited since, or be of another
            configuration, so they are verified.

    Raises:
        RecordError: The log is damaged, or that of a finished run is not what the run has written.
    """
    if finished:
        run_config.check(folder, config)
    records = read_whole(folder, folder.metrics)
    if finished:
        log_gaps.check(folder.metrics, config.model_dump(mode="json"), records)
    curve = {}
    for record in records:
        if record.get(metric) is not None:
            curve[record["step"]] = float(record[metric])
    return curve


def value_notes(plan: Plan, trials: "Sequence[FrozenTrial]") -> list[str]:
    """Notes on complete trials whose recorded values are not those of their runs any more.

    The study keeps the value that it has recorded. Runs that were deleted or go on are left out.
    """
    notes = []
    for trial in trials:
        if trial.state.name != "COMPLETE":
            continue
        for run_id, config in plan.runs(trial.params).items():
            recorded = trial.user_attrs[BY_SEED][str(config.seed)]
            damage = _disagreement(plan, run_id, config, recorded)
            if damage is not None:
                notes.append(
                    f"the recorded value of trial {trial.number} can no longer be checked against "
                    f"{run_id}: {damage}"
                )
    return notes


def _disagreement(plan: Plan, run_id: str, config: RunConfig, recorded: float) -> str | None:
    """Why a finished run does not show the value that was recorded; None if it does."""
    folder = RunFolder(Path(plan.base.machine.runs_dir) / run_id)
    if not folder.path.exists():
        return None
    try:
        if folder.read_status().state is not State.DONE:
            return None
        curve = read_curve(folder, config, plan.metric, finished=True)
    except RecordError as error:
        return str(error)
    last = curve[max(curve)] if curve else math.nan
    if last == recorded:
        return None
    return f"its last {plan.metric} is {last}, and {recorded} was recorded"
