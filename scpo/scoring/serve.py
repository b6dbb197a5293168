"""The scorer's process, ``python -m scpo.scoring.serve <socket> <pid of the parent>``: ``process.py`` starts it."""

import ctypes
import json
import os
import queue
import signal
import socket
import sys
import threading
from collections.abc import Callable

from pydantic import TypeAdapter

from scpo.errors import ScorerError
from scpo.schema.scorer import ScorerConfig
from scpo.scoring import make_scorer
from scpo.scoring.frames import Frame, FrameError, Kind, pack_scores, receive, send, unpack_pairs
from scpo.shaping.drive import Scorer

PR_SET_PDEATHSIG = 1
WARM_UP = [("go to shelf 1 || You arrive at shelf 1.", "look || On the shelf 1, you see a cup 1.")]


def main() -> None:
    """Serve until the parent is gone."""
    descriptor, parent = map(int, sys.argv[1:])
    end_with(parent)
    serve(socket.socket(fileno=descriptor), _make)


def end_with(parent: int) -> None:
    """Die with the parent, even while stuck in a call that holds the interpreter (Linux; elsewhere EOF must do)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit("the parent ended before its scorer had started")


def serve(connection: socket.socket, make: Callable[[Frame], Scorer]) -> None:
    """Make the scorer that the first frame describes, warm it up, and answer pairs until the other side is gone.

    An error while scoring ends the process: the parent starts a new one and asks again.
    """
    frames: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(connection, frames), daemon=True).start()
    start = frames.get()
    try:
        scorer = make(start)
    except ScorerError as error:
        send(connection, Frame(Kind.REFUSED, start.request, str(error).encode()))
        return
    scorer.score(WARM_UP)
    send(connection, Frame(Kind.READY, start.request, scorer.name.encode()))
    while True:
        _answer(connection, frames.get(), scorer)


def _make(start: Frame) -> Scorer:
    settings = json.loads(start.payload)
    config: ScorerConfig = TypeAdapter(ScorerConfig).validate_python(settings["scorer"])
    return make_scorer(config, device=settings["device"])


def _read(connection: socket.socket, frames: "queue.SimpleQueue[Frame]") -> None:
    """Read ahead, so that the end of the parent is noticed in the middle of a batch."""
    while True:
        try:
            frames.put(receive(connection))
        except (EOFError, OSError, FrameError):
            os._exit(0)


def _answer(connection: socket.socket, asked: Frame, scorer: Scorer) -> None:
    counts = getattr(scorer, "counts", {})
    before = counts.get("truncated", 0)
    scores = scorer.score(unpack_pairs(asked.payload))
    truncated = counts.get("truncated", 0) - before
    send(connection, Frame(Kind.SCORES, asked.request, pack_scores(scores, truncated)))


if __name__ == "__main__":
    main()
