"""The local launcher: a pool of slots on this machine, one process a run."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol

from scpo.errors import ScpoError
from scpo.schema import RunConfig
from scpo.tracking import JsonLines, RunFolder, State
from sweeps import store
from sweeps.entry import EXIT_BUSY, STOP_SIGNALS, thread_environment

POLL_S = 0.1
GRACE_S = 120.0  # for finishing a step and writing a checkpoint; a second Ctrl-C does not wait
TAIL_LINES = 12


@dataclass(frozen=True)
class Outcome:
    """How one run ended here. ``state`` RUNNING: another process had it."""

    state: State
    reason: str | None = None
    log: Path | None = None


class Board(Protocol):
    """Shows what the pool does."""

    def started(self, folder: RunFolder, config: RunConfig) -> None: ...
    def progress(self, folder: RunFolder, step: int, success: float | None) -> None: ...
    def ended(self, folder: RunFolder, outcome: Outcome) -> None: ...
    def stopping(self, runs: int, seconds: float) -> None: ...


@dataclass
class Slot:
    """A process on a run."""

    folder: RunFolder
    attempt: int
    process: subprocess.Popen[bytes]


@dataclass
class Pool:
    """Runs each folder in a process of its own, at most ``slots`` at once. One that fails stops none of the others."""

    train_script: Path
    slots: int
    board: Board
    grace_s: float = GRACE_S
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    signals: int = 0
    _running: list[Slot] = field(default_factory=list)

    def run(self, runs: Mapping[str, tuple[RunFolder, RunConfig]]) -> bool:
        """Run all; True if they were let run to their ends, False if a signal stopped the pool."""
        waiting = list(runs.values())
        with self._catching_signals():
            while (waiting and not self.signals) or self._running:
                while waiting and not self.signals and len(self._running) < self.slots:
                    self._start(*waiting.pop(0))
                time.sleep(POLL_S)
                self._poll()
                if self.signals:
                    self._stop()
        return not self.signals

    def _start(self, folder: RunFolder, config: RunConfig) -> None:
        try:
            attempt = folder.new_attempt()
            with folder.attempt_log(attempt).open("ab") as log:
                process = subprocess.Popen(
                    [sys.executable, str(self.train_script), str(folder.path), "--attempt", str(attempt)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **thread_environment(config.machine.threads), "PYTHONUNBUFFERED": "1"},
                    start_new_session=True,  # a Ctrl-C reaches this process only, which then tells the runs in order
                )
        except (OSError, ScpoError) as error:
            self._end(folder, Outcome(State.FAILED, f"could not be started: {error}"))
            return
        self._running.append(Slot(folder, attempt, process))
        self.board.started(folder, config)

    def _poll(self) -> None:
        for slot in list(self._running):
            with contextlib.suppress(ScpoError):  # a damaged log is the run's own to report
                last = JsonLines(slot.folder.metrics).last()
                if last is not None:
                    self.board.progress(slot.folder, last["step"], last.get("train/success_rate"))
            code = slot.process.poll()
            if code is not None:
                self._running.remove(slot)
                self._end(slot.folder, self._outcome(slot, code))

    def _end(self, folder: RunFolder, outcome: Outcome) -> None:
        self.outcomes[folder.run_id] = outcome
        self.board.ended(folder, outcome)

    def _outcome(self, slot: Slot, code: int) -> Outcome:
        folder, log = slot.folder, slot.folder.attempt_log(slot.attempt)
        if code == EXIT_BUSY:
            shutil.rmtree(folder.attempt(slot.attempt), ignore_errors=True)
            return Outcome(State.RUNNING, "another process runs it")
        try:
            status = folder.read_status()
            if status.state is State.DONE:
                return Outcome(State.DONE, None, log)
            if status.attempt == slot.attempt and status.state is not State.RUNNING:
                return Outcome(status.state, status.reason, log)
            return self._record_death(slot, code, log)
        except ScpoError as error:
            return Outcome(State.FAILED, str(error), log)

    def _record_death(self, slot: Slot, code: int, log: Path) -> Outcome:
        """The process ended without saying how: killed, or dead before it reached its first line."""
        state = State.INTERRUPTED if self.signals else State.FAILED
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit status {code}"
        last = tail(log, 1)
        reason = how + (f": {last[0].strip()}" if last and code > 0 else "")
        with store.run_lock(slot.folder) as free:
            if not free:
                return Outcome(State.RUNNING, "another process runs it", log)
            slot.folder.update_status(state=state, reason=reason, attempt=slot.attempt, pid=None)
        return Outcome(state, reason, log)

    @contextlib.contextmanager
    def _catching_signals(self) -> Iterator[None]:
        def count(_number: int, _frame: FrameType | None) -> None:
            self.signals += 1

        heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        before = {number: signal.signal(number, count) for number in heeded}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self) -> None:
        """Ask all runs to checkpoint and end; kill what outlasts the grace or a second signal, workers included."""
        self.board.stopping(len(self._running), self.grace_s)
        for slot in self._running:
            slot.process.terminate()
        deadline = time.monotonic() + self.grace_s
        while self._running:
            time.sleep(POLL_S)
            self._poll()
            if self.signals > 1 or time.monotonic() > deadline:
                self._kill()

    def _kill(self) -> None:
        for slot in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(slot.process.pid, signal.SIGKILL)


def slots_for(configs: Sequence[RunConfig]) -> int:
    """``launcher.slots``, or one for each ``machine.threads`` of the cores that this process may use."""
    first = configs[0]
    cores = len(os.sched_getaffinity(0))
    return min(len(configs), first.launcher.slots or max(1, cores // first.machine.threads))


def tail(path: Path, lines: int = TAIL_LINES) -> list[str]:
    """The last lines of a log; empty if there is none."""
    try:
        return path.read_text(errors="replace").splitlines()[-lines:]
    except OSError:
        return []
