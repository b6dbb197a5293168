"""Progress bars of long loops: shown on a terminal, silent elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import TypeVar

T = TypeVar("T")


def progress(items: Sequence[T], description: str) -> Iterator[T]:
    """Iterate over ``items`` with a bar on stderr when that is a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track

    yield from track(items, description, console=Console(stderr=True), transient=True)
