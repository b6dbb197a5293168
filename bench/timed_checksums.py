"""``python -m bench.timed_checksums FILE WORD...``: train.py, and into FILE the CPU seconds that its checksums took.

Both computing and verifying checksums is timed: those of records, logs and checkpoints
(``scpo.records.files``), and those of the caches, which pass their bytes to sha256 in one call. CPU
time is measured for each thread, so that the work of other threads does not count.
"""

import atexit
import functools
import hashlib
import runpy
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scpo.records import files

FUNCTIONS = ("file_sum", "change", "folder_sums", "folder_change", "sealed", "unsealed", "text_sum")
METHODS = ("add", "now")


class Stopwatch:
    """Adds up the seconds of what is called through it; a call inside another one counts once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._lock = threading.Lock()
        self._inside = threading.local()

    def timed(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, its time taken."""

        @functools.wraps(function, assigned=("__name__", "__doc__"), updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._inside, "now", False):
                return function(*args, **kwargs)
            self._inside.now = True
            began = time.thread_time()
            try:
                return function(*args, **kwargs)
            finally:
                self._inside.now = False
                with self._lock:
                    self.seconds += time.thread_time() - began

        return call


def main() -> None:
    """Take the time of checksums before anything has imported them, then do what train.py does."""
    out, *words = sys.argv[1:]
    watch = Stopwatch()
    for name in FUNCTIONS:
        setattr(files, name, watch.timed(getattr(files, name)))
    for name in METHODS:
        setattr(files.RunningSum, name, watch.timed(getattr(files.RunningSum, name)))
    hashlib.sha256 = watch.timed(hashlib.sha256)
    sys.argv = ["train.py", *words]
    atexit.register(lambda: Path(out).write_text(repr(watch.seconds)))  # train.py does not come back
    runpy.run_path("train.py", run_name="__main__")


if __name__ == "__main__":
    main()
