"""What runs in the scorer's process, which ``scpo.scoring.process`` starts."""

import ctypes
import multiprocessing
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection

from scpo.errors import ScorerError
from scpo.scoring.messages import Kind, Message, MessageError, pack_scores, receive, send, unpack_pairs
from scpo.shaping.drive import Scorer

MakeScorer = Callable[[], Scorer]
Serve = Callable[[Connection, MakeScorer], None]

PR_SET_PDEATHSIG = 1
STDOUT, STDERR = 1, 2
WARM_UP = [("go to shelf 1 || You arrive at shelf 1.", "look || On the shelf 1, you see a cup 1.")]


def main(connection: Connection, make: MakeScorer, serve: Serve) -> None:
    """Serve until the parent is gone."""
    os.dup2(STDERR, STDOUT)  # what libraries print belongs into the log
    end_with_parent()
    serve(connection, make)


def end_with_parent() -> None:
    """Die with the parent, even while stuck in a call that holds the interpreter (Linux; elsewhere EOF must do)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    if parent is None or os.getppid() != parent.pid:
        sys.exit("the parent ended before its scorer had started")


def serve(connection: Connection, make: MakeScorer) -> None:
    """Make the scorer, warm it up, and answer pairs until the other side is gone.

    An error while scoring ends the process: the parent starts a new one and asks again.
    """
    asked: queue.SimpleQueue[Message] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, asked), daemon=True).start()
    try:
        scorer = make()
    except ScorerError as error:
        send(connection, Message(Kind.REFUSED, 0, str(error).encode()))
        return
    scorer.score(WARM_UP)
    send(connection, Message(Kind.READY, 0, scorer.name.encode()))
    while True:
        _answer(connection, asked.get(), scorer)


def _read(connection: Connection, asked: "queue.SimpleQueue[Message]") -> None:
    """Read ahead, so that the end of the parent is noticed in the middle of a batch."""
    while True:
        try:
            asked.put(receive(connection))
        except (EOFError, OSError, MessageError):
            os._exit(0)


def _answer(connection: Connection, asked: Message, scorer: Scorer) -> None:
    counts = getattr(scorer, "counts", {})
    before = counts.get("truncated", 0)
    scores = scorer.score(unpack_pairs(asked.payload))
    truncated = counts.get("truncated", 0) - before
    send(connection, Message(Kind.SCORES, asked.request, pack_scores(scores, truncated)))
