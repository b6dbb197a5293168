"""The local launcher: a pool of slots on this machine, one process per run."""

import contextlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Self

from rich.console import Console

from scpo.errors import ScpoError
from scpo.progress import counted
from scpo.records import JsonLines, RunFolder, State
from scpo.schema.run import RunConfig
from scpo.stop_signals import CountsSignals
from sweeps.launchers.forked import forked_runs
from sweeps.launchers.progress_board import ProgressBoard
from sweeps.launchers.run_process import (
    Begin,
    Outcome,
    RunProcess,
    begin_anew,
    wait_for_same_signal,
)
from sweeps.records.cancellation import settle
from sweeps.resources import (
    gpus_are_assumed,
    refused_here,
    slots_for,
    too_large,
    unchecked_gpus,
)
from sweeps.terminal import say

POLL_S = 0.1

# Time for stopped runs to finish a step and write a checkpoint; a second Ctrl-C skips it.
GRACE_S = 120.0


def make_launcher(configs: Sequence[RunConfig], train_script: Path, console: Console) -> "Pool":
    """See :func:`sweeps.launchers.base.open_launcher`."""
    return Pool(train_script, (), ProgressBoard(console, configs), planned=configs)


@dataclass
class Pool(CountsSignals):
    """Runs each folder in a process of its own, one per slot. A failed run stops no other.

    Attributes:
        train_script: The script that runs one run.
        slots: CUDA_VISIBLE_DEVICES of the process in each slot; None leaves it unset.
        board: Shows progress.
        begin: Starts a process.
        grace_s: Time that stopped runs have for their checkpoint.
        planned: All runs to come. If given, entering the context creates slots for them, starts the
            board, and forks runs from a server where that saves time.
    """

    detached: ClassVar[bool] = False

    train_script: Path
    slots: Sequence[str | None]
    board: ProgressBoard
    begin: Begin = begin_anew
    grace_s: float = GRACE_S
    poll_s: float = POLL_S
    planned: Sequence[RunConfig] = ()
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    _running: dict[int, RunProcess] = field(default_factory=dict)
    _news: dict[str, Outcome] = field(default_factory=dict)

    def __enter__(self) -> Self:
        super().__enter__()
        if self.planned:
            self.slots = slots_for(self.planned)
            self._caught.enter_context(self.board)
            self.begin = self._caught.enter_context(forked_runs(self.planned, self.board.note))
        return self

    @property
    def free(self) -> int:
        """Number of further runs that may be started now."""
        return len(self.slots) - len(self._running)

    def check(self, configs: Sequence[RunConfig]) -> int:
        """Number of slots for these runs; ConfigError if this machine cannot run one of them."""
        return len(slots_for(configs))

    def preview(self, console: Console, configs: Mapping[str, RunConfig]) -> None:
        """Show in a dry run why this machine would refuse these runs, if it would."""
        if reason := refused_here(list(configs.values())):
            say(console, f"note: would be refused on this machine: {reason}")
        reasons = list(dict.fromkeys(too_large(configs).values()))
        if reasons:
            others = len(reasons) - 1
            more = f" {counted(others, 'other kind')} of run do not fit, either." if others else ""
            say(console, f"note: would be refused: {reasons[0]}.{more}")
        if gpus_are_assumed(configs.values()):
            say(
                console,
                "note: memory is checked for GPUs of 80 GB, because this machine shows none; "
                "for another size: launcher=slurm_a800x4 launcher.gpu_gb=24",
            )
        if unknown := unchecked_gpus(configs.values()):
            say(
                console,
                f"note: memory is not checked for {' and '.join(unknown)}, for which nvidia-smi "
                "gives no size; for a given size: launcher=slurm_a800x4 launcher.gpu_gb=24",
            )

    def start(self, runs: Mapping[str, tuple[RunFolder, RunConfig]], _title: str = "") -> list[str]:
        """Start each run in a free slot."""
        for folder, config in runs.values():
            self._start(folder, config)
        return []

    def _start(self, folder: RunFolder, config: RunConfig) -> None:
        # The lowest slot without a running process.
        slot = next(number for number in range(len(self.slots)) if number not in self._running)
        gpus = self.slots[slot]
        variables = {} if gpus is None else {"CUDA_VISIBLE_DEVICES": gpus}
        try:
            ended = _ended_while_waiting(folder)
            if ended is not None:
                self._end(folder, ended)
                return
            process = RunProcess.start(folder, config, self.train_script, variables, self.begin)
        except (OSError, ScpoError) as error:
            self._end(folder, Outcome(State.FAILED, f"could not be started: {error}"))
            return
        self._running[slot] = process
        self.board.started(folder, config)

    def poll(self) -> dict[str, Outcome]:
        """Poll every process; returns the runs that have ended since the last call."""
        self._look()
        news = self._news
        self._news = {}
        return news

    def _look(self) -> None:
        """Show the progress of every run, and record the outcomes of runs that have ended."""
        for slot, run in list(self._running.items()):
            # The run itself reports a damaged log.
            with contextlib.suppress(ScpoError):
                # Only the last line is read: this is repeated ten times a second.
                last = JsonLines(run.folder.metrics).last()
                if last is not None and self._is_of(run, last["step"]):
                    self.board.progress(run.folder, last["step"], last.get("train/success_rate"))
            self.board.doing(run.folder, run.doing())
            code = run.poll()
            if code is not None:
                wait_for_same_signal(code, lambda: self.signals > 0)
                del self._running[slot]
                self._end(run.folder, run.outcome(code, interrupted=self.signals > 0))

    @staticmethod
    def _is_of(run: RunProcess, step: int) -> bool:
        """True if the present attempt has logged this step, or begun from its checkpoint."""
        # Until it has loaded a checkpoint, the log has lines of an earlier, killed attempt.
        status = run.folder.read_status()
        return status.attempt >= run.attempt and step <= status.step

    def stop(self) -> None:
        """Ask all runs to checkpoint and end, and wait for them.

        Runs that have not ended after ``grace_s`` or at a second signal are killed with their
        workers.
        """
        self.board.stopping(len(self._running), self.grace_s)
        for run in self._running.values():
            run.terminate()
        deadline = time.monotonic() + self.grace_s
        while self._running:
            time.sleep(self.poll_s)
            self._look()
            if self.signals > 1 or time.monotonic() > deadline:
                for run in self._running.values():
                    run.kill()

    def _end(self, folder: RunFolder, outcome: Outcome) -> None:
        self.outcomes[folder.run_id] = outcome
        self._news[folder.run_id] = outcome
        self.board.ended(folder, outcome)


def _ended_while_waiting(folder: RunFolder) -> Outcome | None:
    """Outcome of a run that was cancelled while it waited for a slot; None if it may start."""
    request = folder.read_stop()
    if request is None or not request.state.settled:
        return None
    # `cancel` may have died after the request, before it recorded the end.
    settle(folder)
    return Outcome(request.state, request.reason)
