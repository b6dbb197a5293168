"""Scorer in a separate process (appendix A.2), so that its crash does not end the run.

Trainer and process exchange messages through a multiprocessing pipe. A message is bytes: its kind,
the number of the request, then texts as JSON or scores as little-endian float32. Nothing is
unpickled, so nothing that the process sends can run code in the trainer, even if a library that it
loaded is compromised.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import logging
import multiprocessing
import os
import queue
import signal
import struct
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from enum import IntEnum
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ScorerError, ScorerUnavailable
from scpo.schema.scorer import ScorerConfig, ScorerRuntime
from scpo.shaping.drive import Scorer, TextPair
from scpo.stop_signals import stop_signals_blocked

logger = logging.getLogger(__name__)

HEADER = struct.Struct("<BI")
"""Kind and number of the request."""
LARGEST = 1 << 28
"""Largest message in bytes; the answer to ``PAIRS_A_REQUEST`` pairs has about half a kilobyte."""
TRUNCATED = struct.Struct("<I")
"""Number of pairs with a truncated text; the scores follow it."""


class Kind(IntEnum):
    """Message kinds.

    ``READY`` or ``REFUSED`` (no scorer) come from the process first; then each ``PAIRS`` sent to it
    is answered with ``SCORES``.
    """

    READY = 1
    REFUSED = 2
    PAIRS = 3
    SCORES = 4


class Message(NamedTuple):
    """One message; an answer has the number of its request.

    Attributes:
        kind: Determines how the payload is read.
        request: Counted by the parent from 1; 0 for ``READY`` and ``REFUSED``.
        payload: JSON, text in UTF-8, or scores.
    """

    kind: Kind
    request: int
    payload: bytes


class MessageError(ScorerError):
    """Message that is malformed or was not expected."""


def send(connection: Connection, message: Message) -> None:
    """Send a message.

    Raises:
        OSError: The other process has ended.
    """
    connection.send_bytes(HEADER.pack(message.kind, message.request) + message.payload)


def receive(connection: Connection) -> Message:
    """Wait for a whole message.

    Raises:
        EOFError: The other process has ended.
        OSError: The other process has ended, or the message is too long.
        MessageError: The received bytes are not a message.
    """
    # Bounded, so that a faulty process cannot make the trainer allocate all memory.
    received = connection.recv_bytes(LARGEST)
    # No kind has the number 0, so a message without a whole header is refused, too.
    kind, request = 0, 0
    if len(received) >= HEADER.size:
        kind, request = HEADER.unpack_from(received)
    if kind not in set(Kind):
        raise MessageError(f"no message begins with the bytes {received[: HEADER.size].hex(' ')}")
    return Message(Kind(kind), request, received[HEADER.size :])


def pack_pairs(pairs: Sequence[TextPair]) -> bytes:
    """The payload of ``PAIRS``."""
    return json.dumps(list(pairs)).encode()


def unpack_pairs(payload: bytes) -> list[TextPair]:
    """The pairs of a ``PAIRS`` message."""
    return [(first, second) for first, second in json.loads(payload)]


def pack_scores(scores: NDArray[np.float32], truncated: int) -> bytes:
    """The payload of ``SCORES``: number of pairs with a truncated text, and the scores."""
    # Raw float32: the scores arrive with the bits that the scorer computed.
    return TRUNCATED.pack(truncated) + scores.astype("<f4").tobytes()


def unpack_scores(payload: bytes, count: int) -> tuple[NDArray[np.float32], int]:
    """The scores of ``count`` pairs, and the number of pairs with a truncated text.

    Raises:
        MessageError: The payload has another number of scores, or one outside [0, 1].
    """
    if len(payload) != TRUNCATED.size + 4 * count:
        raise MessageError(
            f"{len(payload)} bytes for {count} scores: expected {TRUNCATED.size + 4 * count}"
        )
    scores = np.frombuffer(payload, dtype="<f4", offset=TRUNCATED.size).astype(np.float32)
    bad = scores[~((scores >= 0) & (scores <= 1))]
    if len(bad):
        raise MessageError(
            f"{len(bad)} of {count} scores are no numbers in [0, 1], the first of them {bad[0]}"
        )
    return scores, TRUNCATED.unpack_from(payload)[0]


MakeScorer = Callable[[], Scorer]
Serve = Callable[[Connection, MakeScorer], None]

# From <linux/prctl.h>: the signal that the kernel sends when the parent thread ends.
PR_SET_PDEATHSIG = 1

# File descriptors.
STDOUT, STDERR = 1, 2

# A pair of ALFWorld's step texts.
WARM_UP = [("go to shelf 1 || You arrive at shelf 1.", "look || On the shelf 1, you see a cup 1.")]


def main(connection: Connection, make: MakeScorer, serve: Serve) -> None:
    """Serve until the parent has ended."""
    # What libraries print goes to the log, as stderr does.
    os.dup2(STDERR, STDOUT)
    end_with_parent()
    serve(connection, make)


def end_with_parent() -> None:
    """End with the parent process, even inside a call that holds the interpreter lock.

    Linux only; elsewhere the process ends when the pipe is closed.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # If the parent ended before the call above, no signal will come.
    parent = multiprocessing.parent_process()
    if parent is None or os.getppid() != parent.pid:
        sys.exit("the parent ended before its scorer had started")


def serve(connection: Connection, make: MakeScorer) -> None:
    """Make the scorer, warm it up, and answer requests until the parent has ended.

    An error while scoring ends the process, and the parent sends the request to a new one. Only a
    scorer that cannot be made is reported as a message, since a new process would not help.

    Args:
        connection: This process's end of the pipe.
        make: Makes the scorer; it may take minutes, which the parent's first deadline covers.
    """
    asked: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, asked), daemon=True).start()
    try:
        scorer = make()
    except ScorerError as error:
        send(connection, Message(Kind.REFUSED, 0, str(error).encode()))
        return
    # The first pass compiles kernels, which the deadline of a request should not have to cover.
    scorer.score(WARM_UP)
    send(connection, Message(Kind.READY, 0, scorer.name.encode()))
    while True:
        _answer(connection, asked.get(), scorer)


def _read(connection: Connection, asked: queue.SimpleQueue[Message]) -> None:
    """Read requests in a thread, so that the parent's end is noticed while a batch is scored."""
    while True:
        try:
            asked.put(receive(connection))
        except (EOFError, OSError, MessageError):
            # Immediately, even while a batch is scored: no process waits for its scores.
            os._exit(0)


def _answer(connection: Connection, asked: Message, scorer: Scorer) -> None:
    """Score the pairs of one request and send the answer."""
    # Scorers count truncated pairs over their lifetime; the parent gets this request's number.
    counts = getattr(scorer, "counts", {})
    before = counts.get("truncated", 0)
    scores = scorer.score(unpack_pairs(asked.payload))
    truncated = counts.get("truncated", 0) - before
    send(connection, Message(Kind.SCORES, asked.request, pack_scores(scores, truncated)))


PAIRS_A_REQUEST = 128
"""Largest number of pairs of a request, each of which has a deadline of its own."""
CRASHES = (OSError, EOFError, MessageError)
"""Errors of a request to a process that hangs, dies or sends malformed messages."""


class ScorerProcess:
    """Scorer that starts the configured one in a process on first use and sends it the pairs.

    A process that dies, misses its deadline or answers with anything but similarities is killed,
    and a new one gets the same request. The process ends with its parent, even if that is killed.
    On Linux it also ends with the *thread* that started it; the next request then starts another.

    Args:
        config: The scorer's configuration; its ``identity`` is the scorer's name.
        runtime: Deadlines, number of crashes allowed, and what a failure means.
        make: Makes the scorer; pickled, because it is called in the process.
        serve: Main function of the process; tests replace it.

    Attributes:
        counts: Counts since the start: ``computed`` and ``truncated`` pairs, and ``crashes``.
    """

    def __init__(
        self,
        config: ScorerConfig,
        runtime: ScorerRuntime,
        make: MakeScorer,
        *,
        serve: Serve = serve,
    ) -> None:
        self.name = config.identity
        self.counts: Counter[str] = Counter()
        self._runtime = runtime
        self._make = make
        self._serve = serve
        self._requests = 0
        self._child: _Child | None = None

    def score(self, pairs: Sequence[TextPair]) -> NDArray[np.float32]:
        """Similarity of each pair, in [0, 1].

        Raises:
            ScorerError: The scorer cannot be made, or the process failed too often and training
                must stop.
            ScorerUnavailable: The process failed too often and training must continue without
                shaping.
        """
        chunks = [
            pairs[start : start + PAIRS_A_REQUEST]
            for start in range(0, len(pairs), PAIRS_A_REQUEST)
        ]
        return np.concatenate([np.zeros(0, dtype=np.float32), *map(self._insist, chunks)])

    def close(self) -> None:
        """End the process; the next request starts another."""
        if self._child is not None:
            self._child.end()
            self._child = None

    def _insist(self, pairs: Sequence[TextPair]) -> NDArray[np.float32]:
        """Repeat a request until it is answered, with a new process after each crash.

        Crashes are counted per request, so that rare ones do not add up over a long run.

        Raises:
            ScorerError: See ``score``.
        """
        for crash in range(1, self._runtime.crashes + 1):
            try:
                return self._ask(pairs)
            except CRASHES as error:
                reason = self._end_of_child(error)
                self.counts["crashes"] += 1
                logger.warning(
                    "the process of scorer %s failed (%d of %d): %s",
                    self.name,
                    crash,
                    self._runtime.crashes,
                    reason,
                )
            except BaseException:
                # A late answer to this request must not be read as that to the next one.
                self.close()
                raise
        self._give_up(len(pairs), reason)

    def _give_up(self, pairs: int, reason: str) -> NoReturn:
        """Raise the error that ``on_scorer_failure`` asks for."""
        message = (
            f"the process of scorer {self.name} failed {self._runtime.crashes} times in a row on "
            f"{pairs} pairs, the last time: {reason}. What it wrote is in the log above."
        )
        if self._runtime.on_scorer_failure == "skip_shaping":
            raise ScorerUnavailable(message)
        raise ScorerError(
            f"{message} The same command resumes the run; machine.scorer.deadline_s and "
            "machine.scorer.crashes give it more time or chances, "
            "machine.scorer.on_scorer_failure=skip_shaping goes on without credit in such a step"
        )

    def _ask(self, pairs: Sequence[TextPair]) -> NDArray[np.float32]:
        """Send one request, to a new process if there is none.

        Raises:
            OSError, EOFError, MessageError: The process crashed, hung or sent a wrong message.
            ScorerError: The process cannot make the scorer.
        """
        if self._child is None:
            self._child = _Child(self._make, self._serve)
            ready = self._child.answer(Kind.READY, 0, self._runtime.start_deadline_s)
            # Nothing else would reveal that another scorer computes the scores.
            if ready.decode(errors="replace") != self.name:
                raise MessageError(f"it is the scorer {ready!r}, not {self.name!r}")
        self._requests += 1
        answer = self._child.answer(
            Kind.SCORES, self._requests, self._runtime.deadline_s, pack_pairs(pairs)
        )
        scores, truncated = unpack_scores(answer, len(pairs))
        self.counts.update(computed=len(pairs), truncated=truncated)
        return scores

    def _end_of_child(self, error: Exception) -> str:
        """End the process after a crash and describe how it ended."""
        if self._child is None:
            return f"it could not be started ({error})"
        gone = isinstance(error, EOFError | ConnectionError)
        # A process that has closed its pipe is about to end; its exit status gives the reason.
        how = self._child.end(patience_s=1.0 if gone else 0.0)
        self._child = None
        return how if gone else str(error)


class _Child:
    """Process and its pipe.

    The process is started with ``spawn``, so ``make`` and ``serve`` are pickled. Only the trainer
    pickles; it never unpickles what the process sends.
    """

    def __init__(self, make: MakeScorer, serve: Serve) -> None:
        # A forked child would inherit the trainer's CUDA context and the locks of its threads.
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(
            target=main, args=(theirs, make, serve), name="scorer", daemon=True
        )
        # `start` calls `ensure_running`, which unblocks stop signals after it has started the
        # tracker. With the tracker already running they stay blocked below.
        resource_tracker.ensure_running()
        with theirs, stop_signals_blocked():
            self._process.start()
        self._finalizer = weakref.finalize(self, _end, self._process, self._connection)
        # Runs before multiprocessing's exit handler, which would wait for the process.
        atexit.register(self._finalizer)

    def answer(
        self, due: Kind, request: int, deadline_s: float, pairs: bytes | None = None
    ) -> bytes:
        """Send ``pairs``, if any, and return the payload of the answer of kind ``due``.

        After the deadline the process is killed, which ends the wait, whether for sending or for
        the answer.

        Args:
            due: The expected kind.
            request: Number of the request; 0 for the first message of the process.
            deadline_s: Seconds until the process is killed.
            pairs: Payload of ``PAIRS``; None: only wait for a message.

        Raises:
            OSError, EOFError: The process ended; TimeoutError if the deadline has passed.
            MessageError: The answer is of another kind or request.
            ScorerError: The process cannot make the scorer.
        """
        too_late = threading.Event()
        timer = threading.Timer(deadline_s, self._kill, (too_late,))
        timer.daemon = True
        timer.start()
        try:
            if pairs is not None:
                send(self._connection, Message(Kind.PAIRS, request, pairs))
            answer = receive(self._connection)
        except (EOFError, OSError) as error:
            if too_late.is_set():
                raise TimeoutError(f"no {due.name} within {deadline_s:g} s") from error
            raise
        finally:
            timer.cancel()

        if answer.kind is Kind.REFUSED:
            raise ScorerError(answer.payload.decode(errors="replace"))

        # An answer to an earlier request would assign scores to the wrong pairs.
        if (answer.kind, answer.request) != (due, request):
            raise MessageError(
                f"{answer.kind.name} {answer.request} instead of {due.name} {request}"
            )
        return answer.payload

    def _kill(self, too_late: threading.Event) -> None:
        too_late.set()
        self._process.kill()

    def end(self, patience_s: float = 0.0) -> str:
        """Kill the process unless it ends within ``patience_s``; returns how it ended."""
        self._process.join(patience_s)
        code = self._process.exitcode
        atexit.unregister(self._finalizer)
        self._finalizer()
        if code is None:
            return "it was killed"
        if code < 0:
            return f"it was killed by {signal.Signals(-code).name}"
        return f"it ended with exit status {code}"


def _end(process: BaseProcess, connection: Connection) -> None:
    # The pipe is closed first, so that a process that still runs ends by itself.
    connection.close()
    process.kill()
    process.join()
