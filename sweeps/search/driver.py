"""Driver of a search: creates trials while slots are free, starts runs, and records results."""

import math
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from scpo.errors import RecordError, RecordWriteError, no_space_in
from scpo.records import RunFolder, State, run_config, run_folders, verify
from scpo.records.status import JobState
from scpo.schema.run import RunConfig
from sweeps.launchers.base import Launcher
from sweeps.launchers.run_process import tail
from sweeps.launchers.slurm.observer import Observer, cancel
from sweeps.launchers.slurm.scheduler import Slurm
from sweeps.records import cancellation
from sweeps.search.plan import Plan
from sweeps.search.space import shown
from sweeps.search.study import ATTEMPTS, PRUNING, Study
from sweeps.search.trial_code import change_note, changed_trials
from sweeps.search.trial_runs import (
    TrialRun,
    end_of,
    errno_without_space,
    mean_curve,
    read_curve,
    was_stopped,
)

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

# Shortest pause between two polls, in seconds: each poll reads the records of all trials.
LEAST_POLL_S = 0.5


class _FullDisk(RecordWriteError):
    """A run of this driver failed for lack of space, so that all others would fail, too."""


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
        _asked: Numbers of trials whose runs this driver has asked to stop, to prune them.
        _inherited: Ids of runs that a dead driver has started and that still occupy slots.
        _without_space: Number of the attempt that had failed for lack of space when this driver
            first read the run, by id; 0 if none had.
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
    _asked: set[int] = field(default_factory=set)
    _without_space: dict[str, int] = field(default_factory=dict)

    def run(self) -> bool:
        """Run until this driver has no trial left; False if a signal stopped it.

        Raises:
            RecordWriteError: A run failed for lack of space.
        """
        with self.launcher as launcher:
            try:
                # Trials may end before the launcher has reported the end of all their runs.
                while self.step() or self._under_way:
                    if launcher.signals:
                        launcher.stop()
                        return False
                    time.sleep(max(LEAST_POLL_S, launcher.poll_s))
            except _FullDisk:
                if self._under_way:
                    # As after a signal: runs that end now are INTERRUPTED and not failed.
                    launcher.signals += 1
                    launcher.stop()
                raise
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
                if PRUNING in trial.user_attrs:
                    continue
                runs = self._runs_now(trial)
                pruned_before = any(run.state is State.PRUNED for run in runs)
                # This search's pruner judges their values first; the next poll prunes the trial.
                if pruned_before and self.study.report(trial, mean_curve(runs)):
                    continue
                for run in runs:
                    waits = run.startable and run.run_id not in self._under_way
                    if not waits or not self._has_free_slot() or self.launcher.signals:
                        continue
                    if run.state is not State.PRUNED or self._reopen(run, trial):
                        self._start(run.run_id, self._runs(trial)[run.run_id])

    def _reopen(self, run: TrialRun, trial: "FrozenTrial") -> bool:
        """Let a run start again that another search has pruned; False if it cannot start now.

        The other search has ended its trial, or ends it when it reads the run next, and does not
        stop the run again.
        """
        config = self._runs(trial)[run.run_id]
        folder = RunFolder(Path(config.machine.runs_dir) / run.run_id)
        try:
            request = folder.read_stop()
            cancellation.retry(folder, keep_failures=True)
        except RecordError:
            # A process runs it again, or its records are damaged: the next poll reads its state.
            return False
        pruned = (request.reason if request else run.reason) or "pruned"
        own = self.plan.study_id in pruned
        by = "this search had pruned before" if own else "another search had pruned"
        self.say(f"note: trial {trial.number} lets {run.run_id} go on, which {by} ({pruned})")
        # A job that was not taken out of the queue when the run was pruned runs it.
        return self._run_now(run.run_id, config, trial).startable

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
        self._refuse_full_disk(trial, runs)
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
            self.study.fail(trial, reason or "", [run.run_id for run in runs if run.dead])
            self.say(f"trial {trial.number}: FAILED, {reason}")
        elif end is State.PRUNED:
            self.study.prune(trial)
            self.say(f"trial {trial.number}: pruned")
        elif should_prune or PRUNING in trial.user_attrs:
            self._stop(trial, runs)

    def _refuse_full_disk(self, trial: "FrozenTrial", runs: Sequence[TrialRun]) -> None:
        """Stop the search if a run of the trial has failed for lack of space under this driver.

        The trial goes on with the next driver: its settings are not the cause, and those of the
        next trials would meet the same disk.
        """
        for run in runs:
            new = run.run_id in self._never_started or run.attempt > self._without_space.get(
                run.run_id, 0
            )
            if run.without_space is not None and new:
                raise _FullDisk(
                    run.without_space,
                    f"the search stops: {run.run_id} of trial {trial.number} met a full disk "
                    f"({run.reason}). This does not count against the trial: make room and start "
                    "the same command again, which goes on with it",
                )

    def _name_other_code(self, trial: "FrozenTrial", runs: Sequence[TrialRun]) -> None:
        """Name the changed code of runs that had ended before the trial began, if any changed."""
        configs = self._runs(trial)
        earlier = {run.run_id: configs[run.run_id] for run in runs if not run.fresh}
        if not earlier:
            return
        for numbers, files in changed_trials(self.plan, {trial.number: earlier}).items():
            self.say(f"note: {change_note(numbers, files)}; it was not run again")

    def _stop(self, trial: "FrozenTrial", runs: Sequence[TrialRun]) -> None:
        """Stop the runs of a trial that is to be pruned.

        The next polls end the trial: a run may be DONE before it reads the request to stop, and a
        trial whose runs are all DONE is complete.
        """
        if PRUNING not in trial.user_attrs:
            # Recorded first: if this driver is killed, the next one goes on with the pruning.
            self.study.begin_pruning(trial, {run.run_id: run.attempt for run in runs})
        # Asked once only: a second signal would stop a run in the middle of its step, and another
        # search may let a stopped run go on.
        if trial.number in self._asked:
            return
        self._asked.add(trial.number)
        reason = f"pruned with trial {trial.number} of {self.plan.study_id}"
        for config in self._runs(trial).values():
            folder = run_config.ensure(config)
            request = folder.read_stop()
            if request is None or not request.state.settled:
                cancel(folder, self.scheduler, State.PRUNED, reason)

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
            return TrialRun(
                run_id,
                config.seed,
                State.FAILED,
                fresh=True,
                curve={},
                reason=reason,
                without_space=errno_without_space(State.FAILED, reason),
            )
        if not folder.path.exists():
            self._without_space.setdefault(run_id, 0)
            return TrialRun(run_id, config.seed, State.NEW, fresh=False, curve={})
        try:
            status = folder.read_status()
            seen = self._observer.observe(folder)
            if seen.job is JobState.ORPHANED:
                self._observer.adopt(folder)
            finished = status.state is State.DONE
            # Damaged lines that the run writes again have no values yet.
            curve = {}
            if not verify.rewritten(folder, seen.state):
                curve = read_curve(folder, config, self.plan.metric, finished=finished)
        except RecordError as error:
            return TrialRun(
                run_id, config.seed, State.DAMAGED, fresh=True, curve={}, reason=str(error)
            )

        why = status.reason
        if seen.state is State.LOST:
            # On a full disk its end could not be recorded; its log may name the cause.
            for line in tail(folder.attempt_log(status.attempt)):
                if no_space_in(line) is not None:
                    why = line
        without_space = errno_without_space(seen.state, why)
        failed_before = 0 if without_space is None else status.attempt
        self._without_space.setdefault(run_id, failed_before)
        stopped = was_stopped(
            seen.state,
            status.attempt,
            trial.user_attrs.get(PRUNING, {}).get(run_id),
            asked=trial.number in self._asked,
        )
        return TrialRun(
            run_id,
            config.seed,
            seen.state,
            fresh=status.attempt > trial.user_attrs[ATTEMPTS][run_id],
            curve=curve,
            reason=why,
            near=seen.job is not None or status.host == socket.gethostname(),
            attempt=status.attempt,
            stopped=stopped,
            without_space=without_space,
        )

    def _runs(self, trial: "FrozenTrial") -> dict[str, RunConfig]:
        """Configurations of a trial's runs, by id."""
        return self.plan.runs(trial.params)
