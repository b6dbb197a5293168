"""Transcript of an episode: everything that its prompts are made from.

It is derived from the game's observations and never from the simulator. Objects that the agent took
or put down are tracked; all others are assumed to be where they were last observed.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field

_TASK = "Your task is to: "
_GO_TO = re.compile(r"go to ([a-z]+) (\d+)")
# Verb -> what it does to a thing, and what that undoes.
_TREATED = {"heat": "hot", "cool": "cool", "clean": "clean"}
_UNDONE = {"hot": "cool", "cool": "hot"}

# The forms of the game's sentences about things and receptacles.
_THING = re.compile(r"\ba ([a-z]+ \d+)")
_OPEN = re.compile(
    r"(?:On|In) the ([a-z]+ \d+), you see ([^.]*)\.|The ([a-z]+ \d+) is open\. In it, you see "
    r"([^.]*)\."
)
_CLOSED = re.compile(r"The ([a-z]+ \d+) is closed\.")


@dataclass(frozen=True)
class Sighting:
    """A receptacle as it was last seen.

    Attributes:
        step: Index of the step that showed it.
        things: Names of what was in it; None: it was closed, and its content is unknown.
    """

    step: int
    things: tuple[str, ...] | None


@dataclass
class Transcript:
    """The course of one episode as text.

    Attributes:
        opening: First observation.
        admissible: Commands that the game admits now.
        history: (observation, action) of every step taken.
        observation: Latest observation.
        location: Receptacle that the agent went to last; empty at the start.
        held: Name of the object in hand; empty if none.
        treatments: What was done to each object: "hot", "cool", "clean".
        sightings: Latest sighting of each receptacle, in the order of the first sightings.
        origins: Receptacle that each object was first taken from.
        places: Receptacle that each object was put into last, without the object in hand.
        moved: Objects that were put into another receptacle than their first one, or were treated;
            without the object in hand.
        receptacle_counts: Number of receptacles of each kind.
    """

    opening: str
    admissible: tuple[str, ...]
    history: list[tuple[str, str]] = field(default_factory=list)
    observation: str = ""
    location: str = ""
    held: str = ""
    treatments: dict[str, list[str]] = field(default_factory=dict)
    sightings: dict[str, Sighting] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    moved: str = ""

    def __post_init__(self) -> None:
        self.observation = self.opening
        # The highest number of a kind that "go to" offers: at the start it offers all receptacles,
        # since the agent is at none of them.
        counts: dict[str, int] = {}
        for command in self.admissible:
            match = _GO_TO.fullmatch(command)
            if match:
                counts[match[1]] = max(counts.get(match[1], 0), int(match[2]))
        self.receptacle_counts = counts

    @property
    def task(self) -> str:
        """The task's sentence with its final period."""
        return self.opening[self.opening.find(_TASK) + len(_TASK) :].strip()

    @property
    def state_text(self) -> str:
        """Observation, location, held object, moved or treated objects, sorted admissible commands.

        These are the fields that GraphGPO's code (arXiv 2605.26684) keys an ALFWorld state by,
        taken from what the agent saw and did.
        """
        return f"{self.observation} | {self.facts} | {_sorted_commands(self.admissible)}"

    @property
    def facts(self) -> str:
        """Location, held object, and moved or treated objects."""
        return f"at: {self.location} | holding: {self.held_text} | moved: {self.moved}"

    @property
    def held_text(self) -> str:
        """Object in hand with its treatments; empty if nothing is held."""
        return self._treated(self.held)

    @property
    def commands(self) -> str:
        """Sorted admissible commands."""
        return _sorted_commands(self.admissible)

    def _treated(self, thing: str) -> str:
        return " ".join([thing, *sorted(self.treatments.get(thing, ()))])

    def _moved(self) -> str:
        """Text of ``moved``, sorted, so that equal states give equal texts."""
        texts = []
        for thing, place in sorted(self.places.items()):
            origin = self.origins[thing]
            if place != origin or self.treatments.get(thing):
                texts.append(f"{self._treated(thing)} from {origin} to {place}")
        return ", ".join(texts)

    def record(
        self, action: str, observation: str, admissible: tuple[str, ...], *, executed: bool
    ) -> None:
        """Add a step; ``executed`` is True if the game admitted the action."""
        self.history.append((self.observation, action))
        self.observation = observation
        self.admissible = admissible
        # An action that the game refused changed nothing, even if it names an object.
        if executed:
            self._track(action.strip())
            self._see(len(self.history) - 1, action.strip(), observation)

    def _track(self, action: str) -> None:
        """Update place, hand and treatments by an action that the game executed."""
        verb, _, rest = action.partition(" ")
        if action.startswith("go to "):
            self.location = action.removeprefix("go to ")
        elif verb == "take":
            self.held, _, place = rest.partition(" from ")
            # Only the first place counts: a thing that is put back has not moved.
            self.origins.setdefault(self.held, place)
            self.places.pop(self.held, None)
            self.moved = self._moved()
        elif verb == "move":
            self.held = ""
            thing, _, place = rest.partition(" to ")
            self.places[thing] = place
            self.moved = self._moved()
        elif verb in _TREATED:
            done = _TREATED[verb]
            states = self.treatments.setdefault(rest.split(" with ")[0], [])
            # Hot and cool exclude each other; clean is independent of both.
            undone = _UNDONE.get(done)
            states[:] = [*[state for state in states if state not in (done, undone)], done]
            self.moved = self._moved()

    def _see(self, step: int, action: str, answer: str) -> None:
        """Update what is known of receptacles: by what the answer reports or the action implies."""
        verb, _, rest = action.partition(" ")
        if reported := reported_sighting(answer):
            place, things = reported
            self.sightings[place] = Sighting(step, things)
        elif verb == "take":
            thing, _, place = rest.partition(" from ")
            before = self.sightings.get(place)
            # The receptacle was not looked at again, so the sighting keeps its step.
            if before is not None and before.things and thing in before.things:
                others = tuple(other for other in before.things if other != thing)
                self.sightings[place] = Sighting(before.step, others)
        elif verb == "move":
            thing, _, place = rest.partition(" to ")
            before = self.sightings.get(place)
            known = (before.things or ()) if before else ()
            self.sightings[place] = Sighting(step, (*known, thing))
        elif verb == "close":
            before = self.sightings.get(rest)
            self.sightings[rest] = Sighting(step, before.things if before else None)


@functools.lru_cache(maxsize=65536)
def reported_sighting(answer: str) -> tuple[str, tuple[str, ...] | None] | None:
    """Receptacle that an observation reports, with its content (None: closed).

    None if the observation reports no receptacle.
    """
    if match := _OPEN.search(answer):
        return match[1] or match[3], tuple(_THING.findall(match[2] or match[4]))
    if match := _CLOSED.search(answer):
        return match[1], None
    return None


@functools.lru_cache(maxsize=16384)
def _sorted_commands(admissible: tuple[str, ...]) -> str:
    return ", ".join(sorted(admissible))
