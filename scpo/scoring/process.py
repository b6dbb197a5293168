"""A scorer in a process of its own, as in the paper (appendix A.2): it may die without hurting the run."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ScorerError, ScorerUnavailable
from scpo.schema.scorer import ScorerConfig, ScorerRuntime
from scpo.scoring.frames import Frame, FrameError, Kind, pack_pairs, receive, send, unpack_scores
from scpo.shaping.drive import TextPair

COMMAND = (sys.executable, "-m", "scpo.scoring.serve")
PAIRS_A_REQUEST = 128
"""Pairs that one deadline is for; more are asked for one request after another."""
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CRASHES = (OSError, EOFError, FrameError)
"""What asking a process that hangs, dies or talks nonsense ends in."""

_log = logging.getLogger(__name__)


class ScorerProcess:
    """Starts the configured scorer in a process on first use and sends it the pairs.

    A process that dies, misses its deadline or answers with anything but similarities is killed, and a new one gets
    the same request. It ends with its parent, also when that is killed. On Linux the end of the *thread* that first
    asked ends it too; the next request then starts another.

    Attributes:
        counts: Since the start: ``computed`` and ``truncated`` pairs, and ``crashes``.
    """

    def __init__(
        self,
        config: ScorerConfig,
        runtime: ScorerRuntime,
        *,
        device: str = "cpu",
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.name = config.identity
        self.counts: Counter[str] = Counter()
        self._runtime = runtime
        self._start = json.dumps({"scorer": config.model_dump(mode="json"), "device": device}).encode()
        self._command = command
        self._requests = 0
        self._child: _Child | None = None

    def score(self, pairs: Sequence[TextPair]) -> NDArray[np.float32]:
        """Similarity of each pair, in [0, 1].

        Raises:
            ScorerError: The scorer cannot be made, or the process failed too often and training is to stop.
            ScorerUnavailable: The process failed too often and training is to go on without shaping.
        """
        chunks = [pairs[start : start + PAIRS_A_REQUEST] for start in range(0, len(pairs), PAIRS_A_REQUEST)]
        return np.concatenate([np.zeros(0, dtype=np.float32), *map(self._insist, chunks)])

    def close(self) -> None:
        """End the process; asking again starts another."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def _insist(self, pairs: Sequence[TextPair]) -> NDArray[np.float32]:
        for crash in range(1, self._runtime.crashes + 1):
            try:
                return self._ask(pairs)
            except CRASHES as error:
                reason = self._end_of_child(error)
                self.counts["crashes"] += 1
                _log.warning(
                    "the process of scorer %s failed (%d of %d): %s", self.name, crash, self._runtime.crashes, reason
                )
            except BaseException:
                self.close()  # whatever it still answers belongs to no later request
                raise
        self._give_up(len(pairs), reason)

    def _give_up(self, pairs: int, reason: str) -> NoReturn:
        message = (
            f"the process of scorer {self.name} failed {self._runtime.crashes} times in a row on {pairs} pairs, the "
            f"last time: {reason}. What it wrote is in the log above."
        )
        if self._runtime.on_scorer_failure == "skip_shaping":
            raise ScorerUnavailable(message)
        raise ScorerError(
            f"{message} The same command resumes the run; machine.scorer.deadline_s and machine.scorer.crashes give it "
            "more time or chances, machine.scorer.on_scorer_failure=skip_shaping goes on without credit in such a step"
        )

    def _ask(self, pairs: Sequence[TextPair]) -> NDArray[np.float32]:
        if self._child is None:
            self._child = _Child(self._command)
            ready = self._child.ask(Frame(Kind.START, 0, self._start), Kind.READY, self._runtime.start_deadline_s)
            if ready.decode(errors="replace") != self.name:
                raise FrameError(f"it is the scorer {ready!r}, not {self.name!r}")
        self._requests += 1
        asked = Frame(Kind.PAIRS, self._requests, pack_pairs(pairs))
        answer = self._child.ask(asked, Kind.SCORES, self._runtime.deadline_s)
        scores, truncated = unpack_scores(answer, len(pairs))
        self.counts.update(computed=len(pairs), truncated=truncated)
        return scores

    def _end_of_child(self, error: Exception) -> str:
        if self._child is None:
            return f"it could not be started ({error})"
        gone = isinstance(error, EOFError | ConnectionError)
        how = self._child.end(patience_s=1.0 if gone else 0.0)
        self._child = None
        return how if gone else str(error)


class _Child:
    """One process and the socket to it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._connection, theirs = socket.socketpair()
        path = os.pathsep.join(place for place in sys.path if place)
        with theirs, _stop_signals_blocked():
            self._process = subprocess.Popen(
                [*command, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=2,  # what libraries print belongs into the log
                env={**os.environ, "PYTHONPATH": path},
            )
        self._finalizer = weakref.finalize(self, _end, self._process, self._connection)

    def ask(self, frame: Frame, due: Kind, deadline_s: float) -> bytes:
        """Send a frame and return the payload of its answer, which is of the kind that is ``due``."""
        deadline = time.monotonic() + deadline_s
        try:
            send(self._connection, frame, deadline)
            answer = receive(self._connection, deadline)
        except TimeoutError as error:
            raise TimeoutError(f"no {due.name} within {deadline_s:g} s") from error
        if answer.kind is Kind.REFUSED:
            raise ScorerError(answer.payload.decode(errors="replace"))
        if (answer.kind, answer.request) != (due, frame.request):
            raise FrameError(f"{answer.kind.name} {answer.request} instead of {due.name} {frame.request}")
        return answer.payload

    def end(self, patience_s: float = 0.0) -> str:
        """Kill the process unless it ends by itself within ``patience_s``, and say how it ended."""
        try:
            code = self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            code = None
        self._finalizer()
        if code is None:
            return "it was killed"
        return f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit status {code}"


def _end(process: subprocess.Popen[bytes], connection: socket.socket) -> None:
    connection.close()
    process.kill()
    process.wait()


@contextmanager
def _stop_signals_blocked() -> Iterator[None]:
    """A child inherits what its parent blocks: Ctrl-C, and a launcher's signals to the group, are for the trainer.

    It finishes its step with the scorer, which ends by itself once the trainer has.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
