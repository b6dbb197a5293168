"""When Python looks for garbage in circles: at checkpoints, and only among what is new since the last one.

The collector goes through all that is alive whenever that has grown by a quarter. A run keeps prompts, games and their
states by the million, hardly any of it in circles: looking at them again and again took 12 of a study run's 55 s.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_YOUNG = 100_000  # objects made, less those freed, before the young ones are looked at; Python's own is 700
_NEVER = 1_000_000  # looks at the young before the old ones' turn comes in between


@contextmanager
def collected_at_checkpoints() -> Iterator[Callable[[], None]]:
    """Yields what to call at each: it frees garbage and takes the rest for permanent."""
    before = gc.get_threshold()
    gc.set_threshold(_YOUNG, 10, _NEVER)

    def collect() -> None:
        gc.collect()
        gc.freeze()

    try:
        collect()
        yield collect
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
