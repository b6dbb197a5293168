"""Drives a search: makes trials while there is room, starts their runs, tells the study how they end."""

import math
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from scpo.errors import RecordError, RecordWriteError
from scpo.records import RunFolder, State, run_config, run_folders
from scpo.records.logs import read_whole
from scpo.records.status import JobState
from scpo.schema import RunConfig
from sweeps.launchers.base import Launcher
from sweeps.launchers.slurm.launcher import cancel
from sweeps.launchers.slurm.observer import Observer
from sweeps.launchers.slurm.scheduler import Slurm
from sweeps.search.plan import Plan
from sweeps.search.space import shown
from sweeps.search.study import ATTEMPTS, Study
from sweeps.search.trial_runs import TrialRun, end_of, mean_curve

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

LEAST_POLL_S = 0.5  # between two looks at the trials


@dataclass
class Driver:
    """One driver of a study. All that it needs to know is on disk: another one may go on where it was killed."""

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
        """Until nothing is left to do here: True; False if a signal stopped it."""
        with self.launcher as launcher:
            while self.step() or self._under_way:
                if launcher.signals:
                    launcher.stop()
                    return False
                time.sleep(max(LEAST_POLL_S, launcher.poll_s))
        return True

    def step(self) -> bool:
        """Look at everything once; False if no trial of this driver is under way."""
        self._observer = Observer(self.scheduler)
        for run_id, outcome in self.launcher.poll().items():
            self._under_way.discard(run_id)
            if outcome.state is State.FAILED:
                self._never_started[run_id] = outcome.reason or "could not be started"
        self._inherited.clear()
        for trial in self.study.mine():
            self._follow(trial)
        self._start_waiting()
        while self._room() and self._make_trial():
            self._start_waiting()
        return bool(self.study.mine())

    def _room(self) -> bool:
        """Whether one more run may be started: what a dead driver left running takes room too."""
        return self.launcher.free > len(self._inherited)

    def _make_trial(self) -> bool:
        parallel = self.plan.search.parallel
        if self.launcher.signals or (parallel is not None and len(self.study.mine()) >= parallel):
            return False
        trial = self.study.next_trial()
        if trial is not None:
            self.say(f"trial {trial.number}: {shown(trial.params)}")
            for run_id in self._runs(trial):
                self._never_started.pop(run_id, None)
        return trial is not None

    def _start_waiting(self) -> None:
        """Start what waits, the oldest trial first; no sweep on the same runs looks or starts meanwhile."""
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
        self._inherited |= {run.run_id for run in runs if run.takes_room} - self._under_way
        hopeless = self.study.report(trial, mean_curve(runs))
        end, reason = end_of(runs)
        if end is State.DONE:
            value = math.fsum(run.last for run in runs) / len(runs)
            self.study.complete(trial, value, {run.seed: run.last for run in runs})
            self.say(f"trial {trial.number}: {value:.3f} (" + ", ".join(f"{run.last:.3f}" for run in runs) + ")")
        elif end is State.FAILED:
            self.study.fail(trial, reason or "")
            self.say(f"trial {trial.number}: FAILED, {reason}")
        elif end is State.PRUNED or hopeless:
            self._prune(trial)

    def _prune(self, trial: "FrozenTrial") -> None:
        """The runs first: a driver killed in between finds them PRUNED and tells the study then."""
        reason = f"pruned with trial {trial.number} of {self.plan.study_id}"
        for config in self._runs(trial).values():
            cancel(run_config.ensure(config), self.scheduler, State.PRUNED, reason)
        self.study.prune(trial)
        self.say(f"trial {trial.number}: pruned")

    def _runs_now(self, trial: "FrozenTrial") -> list[TrialRun]:
        return [self._run_now(run_id, config, trial) for run_id, config in self._runs(trial).items()]

    def _run_now(self, run_id: str, config: RunConfig, trial: "FrozenTrial") -> TrialRun:
        folder = RunFolder(Path(config.machine.runs_dir) / run_id)
        if run_id in self._never_started:
            return TrialRun(run_id, config.seed, State.FAILED, True, {}, self._never_started[run_id])
        if not folder.path.exists():
            return TrialRun(run_id, config.seed, State.NEW, False, {})
        try:
            status, seen = folder.read_status(), self._observer.observe(folder)
            if seen.job is JobState.ORPHANED:
                self._observer.adopt(folder)
            if status.state is State.DONE:
                run_config.check(folder, config)
            records = read_whole(folder, folder.metrics)
        except RecordError as error:
            return TrialRun(run_id, config.seed, State.DAMAGED, True, {}, str(error))
        metric = self.plan.metric
        curve = {record["step"]: float(record[metric]) for record in records if record.get(metric) is not None}
        fresh = status.attempt > trial.user_attrs[ATTEMPTS][run_id]
        near = seen.job is not None or status.host == socket.gethostname()
        return TrialRun(run_id, config.seed, seen.state, fresh, curve, status.reason, near)

    def _runs(self, trial: "FrozenTrial") -> dict[str, RunConfig]:
        return self.plan.runs(trial.params)
