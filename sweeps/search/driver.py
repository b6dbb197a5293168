"""Driver of a search: creates trials while slots are free, starts their runs, reports results."""

import math
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from scpo.errors import RecordError, RecordWriteError
from scpo.records import RunFolder, State, log_gaps, run_config, run_folders
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

# Shortest pause between two polls: each poll reads the records of all trials.
LEAST_POLL_S = 0.5


@dataclass(frozen=True)
class TrialRun:
    """State of one run of a trial.

    Attributes:
        run_id: Name of its folder.
        seed: Its seed; the objective is averaged over the seeds.
        state: Its observed state.
        fresh: True if an attempt was made since the trial began. Failures of earlier attempts do
            not count against the trial.
        curve: The metric by training step.
        reason: Reason of its end.
        near: True if it has a job of the scheduler or its process is on this host.
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
        """True if it occupies a job of the scheduler or a slot of this host."""
        return self.near and self.state.live

    @property
    def dead(self) -> bool:
        """True if it failed or its process died during this trial."""
        ended_badly = self.state in (State.FAILED, State.LOST, State.CANCELLED)
        return self.state is State.DAMAGED or (self.fresh and ended_badly)

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
    """State of a trial with these runs (DONE, PRUNED or FAILED), and the reason of a failure.

    The state is None while the trial goes on.
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
    """Mean over the seeds at the steps that all of them have reached."""
    # Means over fewer seeds are not comparable with those of trials whose seeds are all as far.
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
        """Run until no trial is left for this driver; False if a signal stopped it."""
        with self.launcher as launcher:
            # A trial may end before the launcher has reported all of its runs.
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
        # Collected again at each poll, because runs of a dead driver end without a report.
        self._inherited.clear()
        for trial in self.study.mine():
            self._follow(trial)
        self._start_waiting()
        # Runs of existing trials come first, so that trials finish instead of piling up.
        while self._room() and self._make_trial():
            self._start_waiting()
        return bool(self.study.mine())

    def _room(self) -> bool:
        """True if another run may be started. Runs left by a dead driver occupy slots too."""
        return self.launcher.free > len(self._inherited)

    def _make_trial(self) -> bool:
        parallel = self.plan.search.parallel
        if self.launcher.signals:
            return False
        if parallel is not None and len(self.study.mine()) >= parallel:
            return False
        trial = self.study.next_trial()
        if trial is not None:
            self.say(f"trial {trial.number}: {shown(trial.params)}")
            for run_id in self._runs(trial):
                # A retry may start a run that could not be started before.
                self._never_started.pop(run_id, None)
        return trial is not None

    def _start_waiting(self) -> None:
        """Start waiting runs, the oldest trial first, under the lock against other sweeps."""
        with run_folders.driver_lock(Path(self.plan.base.machine.runs_dir)):
            for trial in self.study.mine():
                for run in self._runs_now(trial):
                    waits = run.startable and run.run_id not in self._under_way
                    if waits and self._room() and not self.launcher.signals:
                        self._start(run.run_id, self._runs(trial)[run.run_id])

    def _start(self, run_id: str, config: RunConfig) -> None:
        try:
            folder = run_config.ensure(config)
        except (RecordError, RecordWriteError) as error:
            self._never_started[run_id] = str(error)
            return
        self._under_way.add(run_id)
        self.launcher.start({run_id: (folder, config)}, config.method.name)

    def _follow(self, trial: "FrozenTrial") -> None:
        runs = self._runs_now(trial)
        in_slots = {run.run_id for run in runs if run.takes_room}
        self._inherited |= in_slots - self._under_way
        # Also reported at the end of a trial: pruners compare later trials with this curve.
        hopeless = self.study.report(trial, mean_curve(runs))
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
        elif end is State.PRUNED or hopeless:
            self._prune(trial)

    def _name_other_code(self, trial: "FrozenTrial", runs: Sequence[TrialRun]) -> None:
        """Name runs that had ended before the trial began, if their code has changed since."""
        found = {run.run_id for run in runs if not run.fresh}
        if found:
            before = {key: config for key, config in self._runs(trial).items() if key in found}
            for change in changed_trials(self.plan, {trial.number: before}).items():
                self.say(f"note: {change_note(*change)}; it was not run again")

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
        return [
            self._run_now(run_id, config, trial) for run_id, config in self._runs(trial).items()
        ]

    def _run_now(self, run_id: str, config: RunConfig, trial: "FrozenTrial") -> TrialRun:
        folder = RunFolder(Path(config.machine.runs_dir) / run_id)
        if run_id in self._never_started:
            reason = self._never_started[run_id]
            return TrialRun(run_id, config.seed, State.FAILED, True, {}, reason)
        if not folder.path.exists():
            return TrialRun(run_id, config.seed, State.NEW, False, {})
        try:
            status = folder.read_status()
            seen = self._observer.observe(folder)
            if seen.job is JobState.ORPHANED:
                self._observer.adopt(folder)
            # A finished run may have been edited, or be of another configuration.
            if status.state is State.DONE:
                run_config.check(folder, config)
            records = read_whole(folder, folder.metrics)
            if status.state is State.DONE:
                log_gaps.check(folder.metrics, config.model_dump(mode="json"), records)
        except RecordError as error:
            return TrialRun(run_id, config.seed, State.DAMAGED, True, {}, str(error))

        curve = {}
        for record in records:
            if record.get(self.plan.metric) is not None:
                curve[record["step"]] = float(record[self.plan.metric])
        fresh = status.attempt > trial.user_attrs[ATTEMPTS][run_id]
        near = seen.job is not None or status.host == socket.gethostname()
        return TrialRun(run_id, config.seed, seen.state, fresh, curve, status.reason, near)

    def _runs(self, trial: "FrozenTrial") -> dict[str, RunConfig]:
        return self.plan.runs(trial.params)
