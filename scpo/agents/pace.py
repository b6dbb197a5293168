"""A rate limit for requests that several threads make."""

from __future__ import annotations

import threading
import time


class Pace:
    """Lets ``per_minute`` requests pass in a minute, evenly spaced, in the order in which they come."""

    def __init__(self, per_minute: float) -> None:
        self.interval_s = 60.0 / per_minute
        self._lock = threading.Lock()
        self._next = time.monotonic()

    def wait(self) -> None:
        """Return when the next request may be sent."""
        with self._lock:
            now = time.monotonic()
            turn = max(now, self._next)
            self._next = turn + self.interval_s
        time.sleep(turn - now)
