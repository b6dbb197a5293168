"""What an episode has seen so far: the receptacles that were looked into, when, and what lay in them then.

It is read off the game's answers, never asked of the simulator: a thing that the agent itself took or put down is
accounted for, anything else stands as it was last reported.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass

_THING = re.compile(r"\ba ([a-z]+ \d+)")
_OPEN = re.compile(r"(?:On|In) the ([a-z]+ \d+), you see ([^.]*)\.|The ([a-z]+ \d+) is open\. In it, you see ([^.]*)\.")
_CLOSED = re.compile(r"The ([a-z]+ \d+) is closed\.")
_TAKE = re.compile(r"take ([a-z]+ \d+) from ([a-z]+ \d+)")
_PUT = re.compile(r"move ([a-z]+ \d+) to ([a-z]+ \d+)")
_CLOSE = re.compile(r"close ([a-z]+ \d+)")


@dataclass(frozen=True)
class Sighting:
    """A receptacle as it was at ``step``; ``things`` None: it was closed."""

    step: int
    things: tuple[str, ...] | None


class Sightings:
    """The latest sighting of each receptacle, in the order of their first."""

    def __init__(self) -> None:
        self._latest: dict[str, Sighting] = {}

    def items(self) -> Iterator[tuple[str, Sighting]]:
        """Name and latest sighting of every receptacle that was seen."""
        return iter(self._latest.items())

    def record(self, step: int, action: str, answer: str) -> None:
        """Take in an admitted action and the game's answer to it."""
        if reported := reported_sighting(answer):
            place, things = reported
            self._latest[place] = Sighting(step, things)
        elif taken := _TAKE.fullmatch(action):
            thing, place = taken.groups()
            before = self._latest.get(place)
            if before is not None and before.things and thing in before.things:
                self._latest[place] = Sighting(before.step, tuple(one for one in before.things if one != thing))
        elif put := _PUT.fullmatch(action):
            thing, place = put.groups()
            before = self._latest.get(place)
            self._latest[place] = Sighting(step, (*((before and before.things) or ()), thing))
        elif closed := _CLOSE.fullmatch(action):
            before = self._latest.get(closed[1])
            self._latest[closed[1]] = Sighting(step, before.things if before else None)


@functools.lru_cache(maxsize=65536)
def reported_sighting(answer: str) -> tuple[str, tuple[str, ...] | None] | None:
    """The receptacle that an answer reports and what is in it (None: closed); None where it reports none."""
    if match := _OPEN.search(answer):
        return match[1] or match[3], tuple(_THING.findall(match[2] or match[4]))
    if match := _CLOSED.search(answer):
        return match[1], None
    return None
