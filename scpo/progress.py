"""Progress of long loops: a bar on a terminal; in log files, a line from time to time."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")

logger = logging.getLogger(__name__)

# Shortest time between two lines, in seconds. A loop that ends sooner logs only its first line.
QUIET_S = 10.0

# Shortest time between two lines as a share of the time so far: a loop of a minute logs 6 lines,
# one of an hour about 105.
QUIET_SHARE = 1 / 30


@dataclass
class Pace:
    """Schedule of progress lines: every QUIET_S, later at growing intervals to keep logs short.

    Attributes:
        clock: Source of seconds; tests pass their own.
    """

    clock: Callable[[], float] = time.monotonic
    _started: float = field(init=False)
    _last: float = field(init=False)

    def __post_init__(self) -> None:
        self._started = self._last = self.clock()

    @property
    def elapsed(self) -> float:
        """Seconds since the beginning."""
        return self.clock() - self._started

    def due(self) -> bool:
        """Return True if a line is due, and start the next interval."""
        if self.clock() - self._last < max(QUIET_S, QUIET_SHARE * self.elapsed):
            return False
        self._last = self.clock()
        return True


def progress(
    items: Sequence[T], description: str, unit: str, clock: Callable[[], float] = time.monotonic
) -> Iterator[T]:
    """Iterate over ``items``; report the number done and the estimated time left.

    Args:
        items: Items of the loop; their number is the total.
        description: Name of the loop, at the beginning of each line.
        unit: Noun for one item, such as ``update``.
        clock: Source of seconds for the log lines.
    """
    if sys.stderr.isatty():
        # On stderr and removed at the end, so that it never mixes with a command's output.
        from rich.console import Console
        from rich.progress import track

        yield from track(items, description, console=Console(stderr=True), transient=True)
        return

    pace = Pace(clock)
    logger.info("%s: %d %ss", description, len(items), unit)
    for done, item in enumerate(items):
        if done and pace.due():
            left = about(pace.elapsed / done * (len(items) - done))
            logger.info(
                "%s: %s %d of %d is done, %s left", description, unit, done, len(items), left
            )
        yield item


def about(seconds: float) -> str:
    """Format an estimated time: ``about 40 s``, ``about 3 min``, ``about 2.5 h``."""
    # Up to 55 s in multiples of 5 s, so that "about 60 s" never occurs.
    if seconds < 55:
        return f"about {max(1, 5 * round(seconds / 5))} s"
    # From 90 min on, hours are easier to read.
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min"
    return f"about {seconds / 3600:.1f} h"


def counted(number: int, what: str, plural: str = "") -> str:
    """Format a number with its noun: ``1 run``, ``3 runs``; ``plural`` if it is not noun + s."""
    if number == 1:
        return f"{number} {what}"
    return f"{number} {plural or what + 's'}"
