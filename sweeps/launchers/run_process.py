"""The process of one run: started by a launcher, its end turned into an Outcome."""

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, Self

from scpo.errors import ScpoError
from scpo.records import RunFolder, State
from scpo.records.files import locked
from scpo.records.redaction import redact
from scpo.schema.run import RunConfig
from scpo.stop_signals import STOP_SIGNALS
from sweeps.notify import notify_of_failure
from sweeps.records.process import EXIT_BUSY, EXIT_INTERRUPTED, thread_environment

TAIL_LINES = 12

# A log may be long, and its end is read ten times a second.
TAIL_BYTES = 16_384

# A signal to all processes of a job or container may reach a run before its launcher. So long a
# launcher waits for its own before it takes the death of the run for a failure.
SAME_SIGNAL_S = 2.0

# Exit statuses of a run that a stop signal has ended, before or after it could handle signals.
STOPPED = (*(-number for number in STOP_SIGNALS), EXIT_INTERRUPTED)

# Lines in the format of sweeps.records.process.LOG_FORMAT.
LOG_LINE = re.compile(r"\S+ \S+ INFO \S+: (?P<message>.*)")


@dataclass(frozen=True)
class Outcome:
    """End of one run as its launcher saw it; state RUNNING if another process is running it."""

    state: State
    reason: str | None = None
    log: Path | None = None


@dataclass(frozen=True)
class Start:
    """An attempt at a run that is about to start.

    ``variables``: environment variables besides those of the launcher.
    """

    script: Path
    folder: RunFolder
    config: RunConfig
    attempt: int
    variables: Mapping[str, str]

    @property
    def command(self) -> list[str]:
        """The script and its arguments."""
        return [str(self.script), str(self.folder.path), "--attempt", str(self.attempt)]

    @property
    def log(self) -> Path:
        """File that its output is written to."""
        return self.folder.attempt_log(self.attempt)


class Process(Protocol):
    """A process in a session of its own."""

    @property
    def pid(self) -> int: ...
    def poll(self) -> int | None: ...
    def terminate(self) -> None: ...


Begin = Callable[[Start], Process]


def begin_anew(start: Start) -> Process:
    """Start the run in a new Python process; OSError if that fails."""
    with start.log.open("ab") as log:
        return subprocess.Popen(
            [sys.executable, *start.command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env={**os.environ, **start.variables},
            # Ctrl-C must reach the launcher only, which then stops the runs.
            start_new_session=True,
            preexec_fn=ignore_warning,  # noqa: PLW1509 (launchers have no threads)
        )


@dataclass
class RunProcess:
    """Process of one attempt at a run, in a session of its own; its output is the attempt's log."""

    folder: RunFolder
    attempt: int
    process: Process

    @classmethod
    def start(
        cls,
        folder: RunFolder,
        config: RunConfig,
        train_script: Path,
        variables: Mapping[str, str],
        begin: Begin = begin_anew,
    ) -> Self:
        """Start a new attempt; RecordWriteError or OSError if that fails."""
        attempt = folder.new_attempt()
        variables = {
            **thread_environment(config.machine.threads),
            "PYTHONUNBUFFERED": "1",
            **variables,
        }
        return cls(folder, attempt, begin(Start(train_script, folder, config, attempt, variables)))

    def poll(self) -> int | None:
        """Exit status; None while it runs."""
        return self.process.poll()

    def doing(self) -> str:
        """Last message in its log, without time and logger; empty without a message."""
        for line in reversed(tail(self.folder.attempt_log(self.attempt))):
            match = LOG_LINE.fullmatch(line)
            if match:
                return match["message"]
        return ""

    def terminate(self) -> None:
        """Ask it to checkpoint and end."""
        self.process.terminate()

    def kill(self) -> None:
        """End it now, workers included."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    def outcome(self, code: int, interrupted: bool) -> Outcome:
        """Outcome of the run whose process has ended.

        A death that the process could not record is recorded here.

        Args:
            code: Its exit status.
            interrupted: True if the launcher made it end.
        """
        folder = self.folder
        log = self.folder.attempt_log(self.attempt)
        if code == EXIT_BUSY:
            return Outcome(State.RUNNING, "another process runs it")
        try:
            status = folder.read_status()
            # The status of an earlier attempt does not describe this process. That of a later one
            # does: if another process begins the attempt first, this one takes the next number.
            ended = status.attempt >= self.attempt and status.state is not State.RUNNING
            if ended or status.state in (State.DONE, State.PRUNED, State.CANCELLED):
                return Outcome(status.state, status.reason, log)
            return self._record_death(code, interrupted, log)
        except ScpoError as error:
            return Outcome(State.FAILED, str(error), log)

    def _record_death(self, code: int, interrupted: bool, log: Path) -> Outcome:
        """Record the end of a process that could not do so: it was killed or died at its start."""
        if interrupted and code in STOPPED:
            # That of `terminate`, or one to all processes, before the run could handle it.
            reason = "stopped while it was loading; the same command goes on"
        elif code < 0:
            # The last line in the log of a killed process is not the cause of its end.
            reason = f"killed by {signal.Signals(-code).name}"
        else:
            last = tail(log, 1)
            reason = f"ended with exit status {code}"
            if last and code > 0:
                reason += f": {redact(last[0].strip())}"
        state = State.INTERRUPTED if interrupted else State.FAILED
        request = self.folder.read_stop()
        if request is not None:
            state = request.state
            reason = request.reason
        # The lock is free once the process is dead, unless another one has started the run since.
        with locked(self.folder.lock) as free:
            if not free:
                return Outcome(State.RUNNING, "another process runs it", log)
            before = self.folder.read_status()
            self.folder.update_status(
                state=state,
                reason=reason,
                failures=before.failures + (state is State.FAILED),
                attempt=max(self.attempt, before.attempt),
                pid=None,
            )
        # A killed process (for example, out of memory) has sent no notice itself.
        if state is State.FAILED:
            notify_of_failure(self.folder.run_id, reason)
        return Outcome(state, reason, log)


def wait_for_same_signal(
    code: int, signalled: Callable[[], bool], sleep: Callable[[float], None] = time.sleep
) -> None:
    """Wait briefly for the launcher's own signal if a stop signal has ended a run.

    Args:
        code: The exit status of the run.
        signalled: True once the launcher has got a signal.
        sleep: Waits for a number of seconds.
    """
    if code not in STOPPED:
        return
    pause_s = 0.05
    for _ in range(round(SAME_SIGNAL_S / pause_s)):
        if signalled():
            return
        sleep(pause_s)


def ignore_warning() -> None:
    """Ignore Slurm's warning signal, which goes to all processes: the launcher passes it on."""
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)


def tail(path: Path, lines: int = TAIL_LINES) -> list[str]:
    """Last lines of a log; empty without a log."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - TAIL_BYTES))
            return log.read().decode(errors="replace").splitlines()[-lines:]
    except OSError:
        return []
