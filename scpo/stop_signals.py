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
AGAIN_AFTER_S = 0.05  # the destructor has returned by then


@contextmanager
def stop_signals_go_to(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Call ``handler`` on stop signals; signals that the parent ignores stay ignored (nohup)."""
    caught = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in caught}
    try:
        with _swallowed_interrupts_come_again(caught):
            yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextmanager
def _swallowed_interrupts_come_again(caught: Sequence[signal.Signals]) -> Iterator[None]:
    """Send a signal again whose handler raised KeyboardInterrupt inside a destructor.

    Python prints what a ``__del__`` raises and goes on, as if nobody had asked to stop. Handlers
    run between any two bytecodes of the main thread, so they do run inside destructors.

    Args:
        caught: Signals that have a handler of ours; with none, nothing is sent.
    """
    earlier = sys.unraisablehook
    timers: list[threading.Timer] = []

    def hook(unraisable: Any) -> None:
        if not caught or not isinstance(unraisable.exc_value, KeyboardInterrupt):
            earlier(unraisable)
            return
        # From a timer: a signal sent here would be handled before the destructor has returned, and
        # swallowed again. Which signal it was is unknown here; all of them ask for the same.
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
        # A signal that came after the block would meet the handlers of the caller.
        for timer in timers:
            timer.cancel()


@contextmanager
def stop_signals_blocked() -> Iterator[None]:
    """Block stop signals in this thread, so that processes started meanwhile do not receive them.

    A child inherits the mask of its parent. Ctrl-C, ``timeout`` and ``scancel`` signal a whole
    process group: only the trainer shall react, finish its step and then stop its helpers in order.
    A signal that arrives meanwhile is delivered at the end of the block.
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
