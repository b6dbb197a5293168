"""What an episode has shown so far: all that a prompt is made from."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from scpo.envs.alfworld.sightings import Sightings

_TASK = "Your task is to: "
_GO_TO = re.compile(r"go to ([a-z]+) (\d+)")
_TREATED = {"heat": "hot", "cool": "cool", "clean": "clean"}
_UNDONE = {"hot": "cool", "cool": "hot"}


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
        sightings: What was seen in which receptacle, and when.
    """

    opening: str
    admissible: tuple[str, ...]
    history: list[tuple[str, str]] = field(default_factory=list)
    observation: str = ""
    location: str = ""
    held: str = ""
    treatments: dict[str, list[str]] = field(default_factory=dict)
    sightings: Sightings = field(default_factory=Sightings)

    def __post_init__(self) -> None:
        self.observation = self.opening
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

    def record(self, action: str, observation: str, admissible: tuple[str, ...], *, executed: bool) -> None:
        """Add a step; ``executed`` says whether the game admitted the action."""
        self.history.append((self.observation, action))
        self.observation, self.admissible = observation, admissible
        if executed:
            self._track(action.strip())
            self.sightings.record(len(self.history) - 1, action.strip(), observation)

    def _track(self, action: str) -> None:
        verb, _, rest = action.partition(" ")
        if action.startswith("go to "):
            self.location = action.removeprefix("go to ")
        elif verb == "take":
            self.held = rest.split(" from ")[0]
        elif verb == "move":
            self.held = ""
        elif verb in _TREATED:
            done = _TREATED[verb]
            states = self.treatments.setdefault(rest.split(" with ")[0], [])
            states[:] = [state for state in states if state not in (done, _UNDONE.get(done))] + [done]
