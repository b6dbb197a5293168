"""The signals that ask a process to stop: SIGTERM, Ctrl-C and the end of a terminal."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

# Seconds until a lost signal is sent again; the destructor has returned by then.
AGAIN_AFTER_S = 0.05


@contextmanager
def stop_signals_go_to(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call ``handler`` on stop signals; signals that the parent ignores stay ignored (nohup)."""
    caught = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in caught}
    try:
        with _resend_lost_interrupts(caught):
            yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def _resend_lost_interrupts(caught: Sequence[signal.Signals]) -> Iterator[None]:
    """Send a stop signal again if its handler raised KeyboardInterrupt inside a destructor.

    Handlers run between any two bytecodes of the main thread, also inside a ``__del__``. Python
    prints an exception of ``__del__`` and continues, so the request to stop would be lost.

    Args:
        caught: Signals that have a handler of ours; nothing is sent if there are none.
    """
    earlier = sys.unraisablehook
    timers: list[threading.Timer] = []

    def hook(unraisable: Any) -> None:
        if not caught or not isinstance(unraisable.exc_value, KeyboardInterrupt):
            earlier(unraisable)
            return
        # By a timer: a signal sent here would be handled before the destructor has returned, and
        # lost again. Which signal was lost is unknown, but all of them have the same meaning.
        main = threading.main_thread().ident
        timer = threading.Timer(AGAIN_AFTER_S, signal.pthread_kill, (main, caught[0]))
        timer.daemon = True
        timers.append(timer)
        timer.start()

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = earlier
        # A signal sent after the block would reach the handlers of the caller.
        for timer in timers:
            timer.cancel()


@contextmanager
def stop_signals_blocked() -> Iterator[None]:
    """Block stop signals in this thread, so that processes started in the block do not get them.

    A child inherits the mask of its parent. Ctrl-C, ``timeout`` and ``scancel`` signal a whole
    process group, but only the trainer shall react: it finishes its step and then stops its child
    processes in order. A signal that arrives during the block is delivered at its end.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@dataclass
class CountsSignals:
    """Context manager inside which the stop signals only count up ``signals``.

    The owner looks at the count where stopping is safe, and can treat a second signal as more
    urgent than the first.

    Attributes:
        signals: Stop signals received so far.
    """

    signals: int = field(default=0, kw_only=True)
    _caught: ExitStack = field(default_factory=ExitStack, kw_only=True)

    def __enter__(self) -> Self:
        self._caught.enter_context(stop_signals_go_to(self._count))
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self._caught.close()

    def _count(self, _number: int, _frame: FrameType | None) -> None:
        self.signals += 1
