"""Work that may take no longer than it may, and that nobody has to wait for who wants to leave."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

Answer = TypeVar("Answer")
_LOOK_S = 0.1  # how soon a wait notices that it is no longer wanted


class AbandonedError(Exception):
    """Nobody waits for the answer any more."""


def within(seconds: float, act: Callable[[threading.Event], Answer], closed: threading.Event) -> Answer:
    """The answer of ``act(over)``, which runs in a thread of its own.

    A socket gives a time limit to each read only, so an endpoint that sends a byte now and then would never be given
    up. The thread is left behind: it is told by ``over``, and no process waits for it at its end.

    Raises:
        TimeoutError: It took longer.
        AbandonedError: ``closed`` was set meanwhile.
    """
    answer: Future[Answer] = Future()
    over = threading.Event()

    def work() -> None:
        try:
            answer.set_result(act(over))
        except BaseException as error:  # noqa: BLE001 (raised again where it is waited for)
            answer.set_exception(error)

    threading.Thread(target=work, name="request", daemon=True).start()
    end = time.monotonic() + seconds
    try:
        while not closed.is_set() and (left := end - time.monotonic()) > 0:
            if wait([answer], min(left, _LOOK_S)).done:
                return answer.result()
    finally:
        over.set()
    if closed.is_set():
        raise AbandonedError
    raise TimeoutError
