"""Progress of a launcher's runs and time left: bars on a terminal, lines in a log."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from scpo.errors import ScpoError
from scpo.progress import Pace, about, counted
from scpo.records import JsonLines, RunFolder, State
from scpo.schema.run import RunConfig
from sweeps.estimates import RunPace, time_left_s
from sweeps.launchers.run_process import Outcome
from sweeps.terminal import coloured, say_markup

# Without news, a log gets a line at this interval, to show that the sweep still runs.
HEARTBEAT_S = 300.0


@dataclass
class _Run(RunPace):
    """A run that was started here, and the values shown for it."""

    doing: str = "starting"
    printed: str = ""
    success: float | None = None
    task: TaskID | None = None
    # False for a run that failed or was stopped: it has ended, but is not done.
    finished: bool = False

    @property
    def note(self) -> str:
        """Current activity, and the success rate once it trains."""
        if self.success is None:
            return self.doing
        return f"train success {self.success:.2f}"


class ProgressBoard:
    """One line per run (activity, step of steps, training success) and one for all of ``planned``.

    In a log file: a line when a run starts or ends and, at growing intervals, a line for each run
    with news. Without news, the line for all runs is repeated every ``HEARTBEAT_S``.
    """

    def __init__(
        self,
        console: Console,
        planned: Sequence[RunConfig] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._clock = clock
        self._planned = planned
        self._runs: dict[str, _Run] = {}
        self._pace = Pace(clock)
        self._printed = ""
        self._printed_at = clock()
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=20),
            TextColumn("{task.completed}/{task.total} {task.fields[note]}"),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._all = self._progress.add_task(
            "runs done", total=len(planned), note="", visible=bool(planned)
        )

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def note(self, line: str) -> None:
        """Print a line about all runs."""
        self._say(escape(line))

    def started(self, folder: RunFolder, config: RunConfig) -> None:
        """Show a run whose process was started."""
        step = -1
        # The run itself reports a damaged log.
        with contextlib.suppress(ScpoError):
            # What a killed attempt logged after its last checkpoint is trained again.
            if JsonLines(folder.metrics).last() is not None:
                step = max([0, *folder.complete_checkpoints()])
        run = _Run(config.trainer.steps, step, self._clock())
        run.task = self._progress.add_task(
            folder.run_id, total=run.steps, completed=max(0, run.step), note=run.doing
        )
        self._runs[folder.run_id] = run
        if not self._console.is_terminal:
            self._say(f"started {folder.run_id}")

    def progress(self, folder: RunFolder, step: int, success: float | None) -> None:
        """Note that a run has logged up to ``step``, with its training success if known."""
        run = self._runs[folder.run_id]
        if step < run.step:
            # The run could not use its last checkpoint and goes on from an earlier one.
            run.step, run.first = step, None
        elif step > run.step:
            run.step = step
            run.last = self._clock()
            # The pace is measured from the first step on, so that loading does not count.
            run.first = run.first or (run.last, step)
        run.success = success

    def doing(self, folder: RunFolder, what: str) -> None:
        """Show the last message of a run; called at every poll to refresh the display."""
        run = self._runs[folder.run_id]
        run.doing = what or run.doing
        if self._console.is_terminal:
            assert run.task is not None  # noqa: S101 (for mypy: `started` has set it)
            self._progress.update(run.task, completed=max(0, run.step), note=run.note)
            self._progress.update(self._all, completed=self._done, note=self._left())
        elif self._pace.due():
            self._say_all()

    def _say_all(self) -> None:
        """Print a line for each run with news, and one for all runs."""
        for run_id, run in self._runs.items():
            line = f"{run_id}: step {max(0, run.step)} of {run.steps}; {escape(run.note)}"
            if not run.ended and line != run.printed:
                self._say(line)
                run.printed = line
        if not self._planned:
            return
        line = f"{self._done} of {counted(len(self._planned), 'run')} done{self._left(', ')}"
        if line != self._printed or self._clock() - self._printed_at >= HEARTBEAT_S:
            self._say(line)
            self._printed = line
            self._printed_at = self._clock()

    def ended(self, folder: RunFolder, outcome: Outcome) -> None:
        """Show the outcome of a run whose process has ended."""
        run = self._runs.get(folder.run_id)
        if run is not None and run.task is not None:
            run.ended = True
            run.finished = outcome.state in (State.DONE, State.PRUNED)
            # Bars of ended runs would push the others off the screen.
            self._progress.update(run.task, visible=False)
        why = f": {escape(outcome.reason)}" if outcome.reason else ""
        self._say(f"{coloured(outcome.state)} {folder.run_id}{why}")

    def stopping(self, runs: int, seconds: float) -> None:
        """Show that a signal arrived and was passed to the runs."""
        have = "has" if runs == 1 else "have"
        self._say(
            f"stopping: {counted(runs, 'run')} {have} {seconds:g} s to checkpoint; Ctrl-C again "
            "stops at once"
        )

    @property
    def _done(self) -> int:
        return sum(run.finished for run in self._runs.values())

    def _left(self, before: str = "") -> str:
        """Time left of all runs, after the text ``before``; empty if it is unknown."""
        left = time_left_s(self._planned, self._runs)
        return "" if left is None else f"{before}{about(left)} left"

    def _say(self, line: str) -> None:
        say_markup(self._progress.console, line)
