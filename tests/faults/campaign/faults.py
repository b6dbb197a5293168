"""The registry of faults: what is attacked, how often, and what has to be made once beforehand."""

from collections.abc import Callable, Collection
from pathlib import Path

from tests.faults.campaign import archives, processes, resumed, samples, searches
from tests.faults.campaign.place import Found, Place

Fault = Callable[[Place], Found]
KINDS: dict[str, tuple[int, Fault]] = resumed.KINDS | archives.KINDS | samples.KINDS | searches.KINDS | processes.KINDS
"""By name: how often, of all."""
OF_THE_SWEEP = frozenset((*resumed.KINDS, *processes.OF_THE_SWEEP))
"""Kinds that damage the tiny sweep, which takes the longest to make."""


def make(top: Path, kinds: Collection[str]) -> None:
    """Make what these kinds damage, besides the sweep."""
    for area in (archives, samples, searches):
        if area.KINDS.keys() & set(kinds):
            area.make(top)
