"""Driver of a search: creates trials while slots are free, starts runs, and records results."""

import math
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from scpo.errors import RecordError, RecordWriteError
from scpo.records import RunFolder, State, log_gaps, run_config, run_folders, verify
from scpo.records.logs import read_whole
from scpo.records.status import JobState
from scpo.schema.run import RunConfig
from sweeps.launchers.base import Launcher
from sweeps.launchers.slurm.observer import Observer, cancel
from sweeps.launchers.slurm.scheduler import Slurm
from sweeps.search.plan import Plan
from sweeps.search.space import shown
from sweeps.search.study import ATTEMPTS, Study
from sweeps.search.trial_code import change_note, changed_trials

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

# Shortest pause between two polls, in seconds: each poll reads the records of all trials.
LEAST_POLL_S = 0.5


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
        near: True if it has a Slurm job, or its last process was on this host.
    """

    run_id: str
    seed: int
    state: State
    fresh: bool
    curve: Mapping[int, float]
    reason: str | None = None
    near: bool = False

    @property
    def occupies_slot(self) -> bool:
        """True if it is live, in a Slurm job or on this host."""
        return self.near and self.state.live

    @property
    def dead(self) -> bool:
        """True if its records are damaged, it is cancelled, or it failed or died in this trial.

        One dead run fails the trial. A cancelled run is dead even if it was cancelled before the
        trial or its first attempt, because nothing starts it before `retry`.
        """
        if self.state in (State.DAMAGED, State.CANCELLED):
            return True
        return self.fresh and self.state in (State.FAILED, State.LOST)

    @property
    def startable(self) -> bool:
        """True if it may be started or resumed, and no process runs it."""
        return self.state.startable and not self.dead

    @property
    def last(self) -> float:
        """The metric at the last step; NaN if it was never measured."""
        if not self.curve:
            return math.nan
        return self.curve[max(self.curve)]


def end_of(runs: Sequence[TrialRun]) -> tuple[State | None, str | None]:
    """How a trial with these runs ended (DONE, PRUNED or FAILED), and the reason of a failure.

    (None, None) while the trial goes on.
    """
    dead = next((run for run in runs if run.dead), None)
    if dead is not None:
        return State.FAILED, f"{dead.run_id} {dead.state}: {dead.reason or 'its process died'}"
    if any(run.state is State.PRUNED for run in runs):
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
    # A mean over some of the seeds would not be comparable with means over all of them.
    common = set.intersection(*(set(run.curve) for run in runs))
    curve = {}
    for step in sorted(common):
        curve[step] = math.fsum(run.curve[step] for run in runs) / len(runs)
    return curve


@dataclass
class Driver:
    """Driver of a study.

    The study's state is on disk, so that another driver can continue where this one was killed.

    Attributes:
        plan: The search.
        study: Its trials.
        launcher: Starts the runs.
        say: Prints a line of progress.
        scheduler: Client of Slurm, for runs with jobs.
        _observer: Observer of the present poll.
        _under_way: Ids of runs that this driver has started and whose end is not reported yet.
        _never_started: Reasons why runs could not be started, by id.
        _inherited: Ids of runs that a dead driver has started and that still occupy slots.
    """

    plan: Plan
    study: Study
    launcher: Launcher
    say: Callable[[str], None]
    scheduler: Slurm = field(default_factory=Slurm)
    _observer: Observer = field(init=False)
    _under_way: set[str] = field(default_factory=set)
    _never_started: dict[str, str] = field(default_factory=dict)
    _inherited: set[str] = field(default_factory=set)

    def run(self) -> bool:
        """Run until this driver has no trial left; False if a signal stopped it."""
        with self.launcher as launcher:
            # Trials may end before the launcher has reported the end of all their runs.
            while self.step() or self._under_way:
                if launcher.signals:
                    launcher.stop()
                    return False
                time.sleep(max(LEAST_POLL_S, launcher.poll_s))
        return True

    def step(self) -> bool:
        """Poll all runs and trials once; False if no trial of this driver is under way."""
        self._observer = Observer(self.scheduler)
        for run_id, outcome in self.launcher.poll().items():
            self._under_way.discard(run_id)
            if outcome.state is State.FAILED:
                self._never_started[run_id] = outcome.reason or "could not be started"
        # Collected again at each poll, because the launcher does not report the end of these runs.
        self._inherited.clear()
        for trial in self.study.mine():
            self._follow(trial)
        self._start_waiting()
        # New trials come last, so that existing trials finish first.
        while self._has_free_slot() and self._make_trial():
            self._start_waiting()
        return bool(self.study.mine())

    def _has_free_slot(self) -> bool:
        """True if another run may be started. Runs of a dead driver occupy slots too."""
        return self.launcher.free > len(self._inherited)

    def _make_trial(self) -> bool:
        """Create the next trial; False if there is none or it must wait."""
        parallel = self.plan.search.parallel
        if self.launcher.signals:
            return False
        if parallel is not None and len(self.study.mine()) >= parallel:
            return False
        trial = self.study.next_trial()
        if trial is None:
            return False
        self.say(f"trial {trial.number}: {shown(trial.params)}")
        # The trial may be a retry: try again to start runs that could not be started before.
        for run_id in self._runs(trial):
            self._never_started.pop(run_id, None)
        return True

    def _start_waiting(self) -> None:
        """Start waiting runs while slots are free, those of the oldest trial first.

        The lock keeps other sweeps from starting the same runs.
        """
        with run_folders.driver_lock(Path(self.plan.base.machine.runs_dir)):
            for trial in self.study.mine():
                for run in self._runs_now(trial):
                    waits = run.startable and run.run_id not in self._under_way
                    if waits and self._has_free_slot() and not self.launcher.signals:
                        self._start(run.run_id, self._runs(trial)[run.run_id])

    def _start(self, run_id: str, config: RunConfig) -> None:
        """Start a run, or note why it could not be started."""
        try:
            folder = run_config.ensure(config)
        except (RecordError, RecordWriteError) as error:
            self._never_started[run_id] = str(error)
            return
        self._under_way.add(run_id)
        self.launcher.start({run_id: (folder, config)}, config.method.name)

    def _follow(self, trial: "FrozenTrial") -> None:
        """Record a trial's values so far, and its end if it has ended or should be pruned."""
        runs = self._runs_now(trial)
        in_slots = {run.run_id for run in runs if run.occupies_slot}
        self._inherited |= in_slots - self._under_way
        # Also at the end of the trial, because pruners compare later trials with its whole curve.
        should_prune = self.study.report(trial, mean_curve(runs))
        end, reason = end_of(runs)
        if end is State.DONE:
            value = math.fsum(run.last for run in runs) / len(runs)
            self.study.complete(trial, value, {run.seed: run.last for run in runs})
            by_seed = ", ".join(f"{run.last:.3f}" for run in runs)
            self.say(f"trial {trial.number}: {value:.3f} ({by_seed})")
            self._name_other_code(trial, runs)
        elif end is State.FAILED:
            self.study.fail(trial, reason or "")
            self.say(f"trial {trial.number}: FAILED, {reason}")
        elif end is State.PRUNED or should_prune:
            self._prune(trial)

    def _name_other_code(self, trial: "FrozenTrial", runs: Sequence[TrialRun]) -> None:
        """Name the changed code of runs that had ended before the trial began, if any changed."""
        configs = self._runs(trial)
        earlier = {run.run_id: configs[run.run_id] for run in runs if not run.fresh}
        if not earlier:
            return
        for numbers, files in changed_trials(self.plan, {trial.number: earlier}).items():
            self.say(f"note: {change_note(numbers, files)}; it was not run again")

    def _prune(self, trial: "FrozenTrial") -> None:
        """Prune the runs, then the trial.

        If this driver is killed in between, the next one finds PRUNED runs and prunes the trial.
        """
        reason = f"pruned with trial {trial.number} of {self.plan.study_id}"
        for config in self._runs(trial).values():
            cancel(run_config.ensure(config), self.scheduler, State.PRUNED, reason)
        self.study.prune(trial)
        self.say(f"trial {trial.number}: pruned")

    def _runs_now(self, trial: "FrozenTrial") -> list[TrialRun]:
        """Present state of each run of a trial."""
        return [
            self._run_now(run_id, config, trial) for run_id, config in self._runs(trial).items()
        ]

    def _run_now(self, run_id: str, config: RunConfig, trial: "FrozenTrial") -> TrialRun:
        """Present state of a run of a trial, from its folder and the scheduler."""
        folder = RunFolder(Path(config.machine.runs_dir) / run_id)
        if run_id in self._never_started:
            reason = self._never_started[run_id]
            return TrialRun(run_id, config.seed, State.FAILED, fresh=True, curve={}, reason=reason)
        if not folder.path.exists():
            return TrialRun(run_id, config.seed, State.NEW, fresh=False, curve={})
        try:
            status = folder.read_status()
            seen = self._observer.observe(folder)
            if seen.job is JobState.ORPHANED:
                self._observer.adopt(folder)
            # The files of a finished run may have been edited, or be of another configuration.
            if status.state is State.DONE:
                run_config.check(folder, config)
            # Damaged lines that the run writes again have no values yet.
            rewritten = verify.rewritten(folder, seen.state)
            records = [] if rewritten else read_whole(folder, folder.metrics)
            if status.state is State.DONE:
                log_gaps.check(folder.metrics, config.model_dump(mode="json"), records)
        except RecordError as error:
            return TrialRun(
                run_id, config.seed, State.DAMAGED, fresh=True, curve={}, reason=str(error)
            )

        curve = {}
        for record in records:
            if record.get(self.plan.metric) is not None:
                curve[record["step"]] = float(record[self.plan.metric])
        return TrialRun(
            run_id,
            config.seed,
            seen.state,
            fresh=status.attempt > trial.user_attrs[ATTEMPTS][run_id],
            curve=curve,
            reason=status.reason,
            near=seen.job is not None or status.host == socket.gethostname(),
        )

    def _runs(self, trial: "FrozenTrial") -> dict[str, RunConfig]:
        """Configurations of a trial's runs, by id."""
        return self.plan.runs(trial.params)
