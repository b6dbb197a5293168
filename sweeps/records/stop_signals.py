"""The signals that ask a launcher or a run to stop."""

import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Self

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@contextmanager
def stop_signals_go_to(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Inside, the stop signals call ``handler``; those that the parent told us to ignore (nohup) stay ignored."""
    caught = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in caught}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@dataclass
class CountsSignals:
    """Inside its ``with`` block the stop signals only count up ``signals``."""

    signals: int = field(default=0, kw_only=True)
    _caught: ExitStack = field(default_factory=ExitStack, kw_only=True)

    def __enter__(self) -> Self:
        self._caught.enter_context(stop_signals_go_to(self._count))
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._caught.close()

    def _count(self, _number: int, _frame: FrameType | None) -> None:
        self.signals += 1
