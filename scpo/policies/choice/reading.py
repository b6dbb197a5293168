"""From the text of a prompt with a memory to what the features of its commands depend on.

All of it is lexical: words of the task against words of the commands and of what was seen. Nothing but the prompt's
text is read.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import NamedTuple

from scpo.policies.choice.memory_prompt import split_prompt

MOST_WORDS = 4
"""Words of a task that are read; ALFWorld's tasks have no more that say something."""
_STOP = frozenset(
    ["a", "an", "the", "some", "it", "them", "then", "and", "in", "on", "with", "put", "to", "of", "find", "at"]
)
_COMMAND = re.compile(
    r"(?P<verb>go to|open|close) (?P<at>[a-z]+ \d+)|"
    r"(?P<act>[a-z]+)(?: (?P<thing>[a-z]+ \d+))?(?: (?:from|to|with) (?P<place>[a-z]+ \d+))?"
)
TASK = "task: "
_HEADS = (TASK, "holding: ", "at: ", "last: ", "step: ")
_SEEN = "seen "
_AGES = {"0": 0, "1": 1, "2": 1, "3": 2, "4": 2, "5": 2, "6": 2}
"""``Place.age`` by how many steps ago it was looked into; 3 of all others."""


class State(NamedTuple):
    """What every command of a prompt shares.

    Attributes:
        words: Of the task, those that say something.
        hold: What is in hand: ``nothing``, ``goal`` (a thing that the task names) or ``other``.
        treated: What was done to it.
        placed: Things that the task names lying in places that it names, at most 2.
        known: Whether a thing that the task names was seen elsewhere.
    """

    words: tuple[str, ...]
    hold: str
    treated: str
    placed: int
    known: bool


class Place(NamedTuple):
    """What is known of a receptacle.

    Attributes:
        status: ``new`` (not looked into), ``closed``, ``empty`` or ``full``; empty of a command that names none.
        goals: Things that the task names lying there, at most 2.
        age: Since it was looked into: 0 steps, up to 2, up to 6, more, never.
    """

    status: str
    goals: int
    age: int


NOWHERE, UNSEEN = Place("", 0, 0), Place("new", 0, 4)


class Command(NamedTuple):
    """A command's parts: verb, kinds of thing and place, and the place's full name; empty where it has none."""

    verb: str
    thing: str
    place: str
    place_name: str


@dataclass(frozen=True)
class Read:
    """A prompt's content; ``places`` are the receptacles that were seen."""

    state: State
    places: dict[str, Place]
    location: str
    last: str
    step: int
    commands: tuple[str, ...]


def read(prompt: str) -> Read:
    """Read a prompt with a memory (``env.prompt=memory``).

    Raises:
        ConfigError: It is another prompt.
    """
    headed, notes, commands = split_prompt(prompt, _HEADS)
    task, holding, location, last, step = headed
    words = task_words(task)
    placed, known = 0, False
    places: dict[str, Place] = {}
    for line in notes:
        head, _, things = line.removeprefix(_SEEN).partition(": ")
        name, _, ago = head.partition(" | ")
        status, goals = _content(things, words)
        places[name] = Place(status, min(goals, 2), _AGES.get(ago, 3))
        if goals and _kind(name) in words:
            placed += goals
        elif goals:
            known = True
    held, _, treated = holding.partition(" | ")
    hold = "nothing" if not held else "goal" if held.partition(" ")[0] in words else "other"
    state = State(words, hold, treated, min(placed, 2), known)
    return Read(state, places, location, last, int(step), commands)


@functools.lru_cache(maxsize=65536)
def _content(things: str, words: tuple[str, ...]) -> tuple[str, int]:
    """Status of a receptacle with these things in it, and how many of them the task names."""
    if things == "closed":
        return "closed", 0
    return "full" if things else "empty", sum(thing.partition(" ")[0] in words for thing in things.split(", "))


@functools.lru_cache(maxsize=65536)
def task_words(task: str) -> tuple[str, ...]:
    """The first words of a task that say something."""
    words = (word for word in re.findall(r"[a-z]+", task.lower()) if word not in _STOP)
    return tuple(dict.fromkeys(words))[:MOST_WORDS]


def parse_command(text: str) -> Command:
    """The parts of a command; of one that has another form, its first word."""
    match = _COMMAND.fullmatch(text)
    if match is None:
        return Command(text.partition(" ")[0], "", "", "")
    if match["verb"]:
        return Command(match["verb"].partition(" ")[0], "", _kind(match["at"]), match["at"])
    return Command(match["act"], _kind(match["thing"] or ""), _kind(match["place"] or ""), match["place"] or "")


def _kind(name: str) -> str:
    return name.partition(" ")[0]
