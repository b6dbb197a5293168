"""Counting the signals that ask a launcher to stop."""

import signal
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any, Self

from sweeps.records.attempt import STOP_SIGNALS


@dataclass
class CountsSignals:
    """Inside its ``with`` block the stop signals only count up ``signals``; those that were ignored before stay so."""

    signals: int = field(default=0, kw_only=True)
    _before: dict[int, Any] = field(default_factory=dict, kw_only=True)

    def __enter__(self) -> Self:
        def count(_number: int, _frame: FrameType | None) -> None:
            self.signals += 1

        heeded = [number for number in STOP_SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
        self._before = {number: signal.signal(number, count) for number in heeded}
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
