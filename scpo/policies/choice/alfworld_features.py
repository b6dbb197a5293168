"""Choice policy's features of ALFWorld prompts.

All features are lexical and read nothing but the prompt: words of the task are compared with words
of the commands and of what was seen. Their names are hashed into the rows of an embedding table.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from scpo.policies.choice.readers import (
    Hashes,
    Prompt,
    PromptReader,
    joined,
    split_prompt,
    text_hash,
)

MOST_WORDS = 4
"""Content words of a task that are used; ALFWorld's tasks have at most four."""
# Words of the task templates that name no thing, place or treatment.
_STOP = frozenset(
    [
        "a",
        "an",
        "the",
        "some",
        "it",
        "them",
        "then",
        "and",
        "in",
        "on",
        "with",
        "put",
        "to",
        "of",
        "find",
        "at",
    ]
)
# The commands of ALFWorld's grammar: a place alone, or a thing and, for most, a place or tool.
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
    """State shared by all commands of a prompt.

    Attributes:
        words: Content words of the task.
        hold: Held object: ``nothing``, ``goal`` (an object that the task names) or ``other``.
        treated: Its treatment: hot, cool, clean.
        placed: Things that the task names lying in places that it names, at most 2.
        known: Whether a thing that the task names was seen elsewhere.
    """

    words: tuple[str, ...]
    hold: str
    treated: str
    placed: int
    known: bool


class Place(NamedTuple):
    """Knowledge about a receptacle.

    Attributes:
        status: ``new`` (not searched), ``closed``, ``empty`` or ``full``; empty for a command
            without one.
        goals: Things that the task names lying there, at most 2.
        age: Steps since it was searched: 0, up to 2, up to 6, more, never.
    """

    status: str
    goals: int
    age: int


# The place of a command that names none, and one that was never looked into.
NOWHERE, UNSEEN = Place("", 0, 0), Place("new", 0, 4)


class Command(NamedTuple):
    """Parts of a command: verb, kinds of thing and place, the place's name; empty if missing."""

    verb: str
    thing: str
    place: str
    place_name: str


@dataclass(frozen=True)
class Read:
    """A prompt's content.

    Attributes:
        state: Parts shared by all commands.
        places: Receptacles that were seen, by name.
        location: Receptacle that the agent went to last; empty at the start.
        last: The last command, with a mark if nothing happened.
        step: Steps taken.
        commands: Admissible commands, in the prompt's order.
    """

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
        # A thing that lies where the task wants it must not be taken away again.
        if goals and _kind(name) in words:
            placed += goals
        elif goals:
            known = True

    held, _, treated = holding.partition(" | ")
    # The object's kind is enough: a task names kinds, and every instance of one is as good.
    hold = "nothing"
    if held:
        hold = "goal" if _kind(held) in words else "other"
    state = State(words, hold, treated, min(placed, 2), known)
    return Read(state, places, location, last, int(step), commands)


@functools.lru_cache(maxsize=65536)
def _content(things: str, words: tuple[str, ...]) -> tuple[str, int]:
    """Status of a receptacle with these things in it, and how many of them the task names."""
    if things == "closed":
        return "closed", 0
    goals = sum(_kind(thing) in words for thing in things.split(", "))
    return "full" if things else "empty", goals


@functools.lru_cache(maxsize=65536)
def task_words(task: str) -> tuple[str, ...]:
    """First content words of a task."""
    words = (word for word in re.findall(r"[a-z]+", task.lower()) if word not in _STOP)
    return tuple(dict.fromkeys(words))[:MOST_WORDS]


def parse_command(text: str) -> Command:
    """Parse a command; of one that has another form, only its first word is used."""
    match = _COMMAND.fullmatch(text)
    if match is None:
        return Command(text.partition(" ")[0], "", "", "")
    if match["verb"]:
        return Command(match["verb"].partition(" ")[0], "", _kind(match["at"]), match["at"])
    thing = match["thing"] or ""
    place = match["place"] or ""
    return Command(match["act"], _kind(thing), _kind(place), place)


def _kind(name: str) -> str:
    """Kind of a numbered name: "mug" of "mug 1"."""
    return name.partition(" ")[0]


_STATUS = ("", "new", "closed", "empty", "full")
_SHARED = ("hold", "treated", "placed", "known", *(f"word {n}" for n in range(MOST_WORDS)))
_KINDS = ("verb", "thing", "place")

# Flags of the column `at`, above the bits of `_code`.
_HERE, _AGAIN = 1 << 8, 1 << 9


class Reader(PromptReader):
    """Reads ALFWorld's prompts."""

    STATE = (*_SHARED, "location", "seen", "phase")
    COMMAND = (*_KINDS, "at")
    """``at`` packs the receptacle's :class:`Place` and the flags ``here`` and ``again``."""
    PAIR_FEATURES = (
        ("verb",),
        ("verb", "hold", "named", "there"),
        ("verb", "status", "goals", "hold"),
        ("verb", "hold", "any goals", "known"),
        ("verb", "status", "age"),
        ("verb", "here", "again"),
        ("verb", "place"),
        ("verb", "place", "hold", "treated"),
        ("verb", "thing"),
        ("verb", "placed", "hold", "named", "there"),
        ("verb", "there", "goals", "named", "hold"),
        ("verb", "status", "hold", "known", "there"),
    )
    """Columns joined by each feature of a command.

    ``named``, ``there``: the task names its thing, its place. ``status``, ``goals``, ``age``: its
    :class:`Place`. ``here``: the agent is at the place. ``again``: the command was the last one.
    """
    PAIR_WORD_FEATURES = (
        ("word", "verb", "place", "empty-handed"),
        ("word", "verb", "hold", "treated", "named", "there"),
        ("word", "verb", "hold", "treated", "object"),
    )
    """Columns joined for each word of the task; ``object``: the command's place or its thing."""
    STATE_FEATURES = (
        ("hold", "known"),
        ("hold", "treated", "placed"),
        ("location", "hold"),
        ("seen", "hold", "known"),
        ("phase",),
        ("phase", "hold", "known"),
    )
    """Columns joined for a critic. ``seen``: receptacles, at most 12; ``phase``: steps // 3."""
    STATE_WORD_FEATURES = (
        ("word", "hold", "treated", "known"),
        ("word", "hold", "placed"),
        ("word", "seen", "known", "hold"),
    )

    def read(self, text: str) -> Prompt:
        """See :class:`PromptReader`."""
        found = read(text)
        unseen = _code(UNSEEN)
        codes = {name: _code(place) for name, place in found.places.items()} | {"": _code(NOWHERE)}
        # The place where the agent is may be one that it has not looked into yet.
        codes[found.location] = codes.get(found.location, unseen) | _HERE
        kind_AW, names = _kinds(found.commands)
        # A copy, because equal lists of commands share the cached array.
        command_AW = kind_AW.copy()
        command_AW[:, -1] = [codes.get(name, unseen) for name in names]
        if found.last in found.commands:
            command_AW[found.commands.index(found.last), -1] |= _AGAIN
        # Capped, and steps in threes: rarely seen values would each train an embedding of their
        # own.
        situation = (
            text_hash(found.location.partition(" ")[0]),
            min(len(found.places), 12),
            found.step // 3,
        )
        state_W = np.empty(len(self.STATE), dtype=np.uint64)
        state_W[: len(_SHARED)] = _state_row(found.state)
        state_W[len(_SHARED) :] = situation
        return Prompt(found.commands, command_AW, state_W)

    def pair_codes(self, columns: Mapping[str, Hashes]) -> Hashes:
        """See :class:`PromptReader`."""
        state_C = joined([columns[name] for name in _SHARED])
        kinds_C = joined([columns[name] for name in _KINDS])
        return joined([state_C, kinds_C, columns["at"]])

    def joinable(self, columns: dict[str, Hashes]) -> dict[str, Hashes]:
        """See :class:`PromptReader`."""
        columns |= _decoded(columns["at"])
        columns["named"] = _one_of(columns["thing"], columns)
        columns["there"] = _one_of(columns["place"], columns)
        columns["any goals"] = (columns["goals"] > 0).astype(np.uint64)
        columns["empty-handed"] = (columns["hold"] == text_hash("nothing")).astype(np.uint64)
        columns["object"] = np.where(columns["place"] != 0, columns["place"], columns["thing"])
        return columns


@functools.lru_cache(maxsize=16384)
def _kinds(commands: tuple[str, ...]) -> tuple[Hashes, tuple[str, ...]]:
    """Hashes of the kinds that each command names, 0 for ``at``, and its receptacle's name."""
    rows, names = zip(*map(_kind_row, commands), strict=True)
    return np.array(rows, dtype=np.uint64), names


@functools.lru_cache(maxsize=65536)
def _kind_row(command: str) -> tuple[tuple[int, ...], str]:
    *kinds, place_name = parse_command(command)
    return (*map(text_hash, kinds), 0), place_name


@functools.lru_cache(maxsize=16384)
def _state_row(state: State) -> Hashes:
    row = [text_hash(state.hold), text_hash(state.treated), state.placed, int(state.known)]
    row += [text_hash(word) for word in state.words]
    # Tasks differ in their number of words; 0 is the hash of none.
    row += [0] * (MOST_WORDS - len(state.words))
    return np.array(row, dtype=np.uint64)


@functools.cache
def _code(place: Place) -> int:
    """A place in 8 bits: 3 of its status, 2 of its goals, 3 of its age."""
    return _STATUS.index(place.status) | place.goals << 3 | place.age << 5


def _decoded(at_N: Hashes) -> dict[str, Hashes]:
    """The parts of what ``at`` packs."""
    # Shift and mask of each, as `_code` and the flags above pack them.
    parts = {"status": (0, 7), "goals": (3, 3), "age": (5, 7), "here": (8, 1), "again": (9, 1)}
    columns = {}
    for name, (shift, mask) in parts.items():
        columns[name] = at_N >> np.uint64(shift) & np.uint64(mask)
    return columns


def _one_of(kind_N: Hashes, columns: Mapping[str, Hashes]) -> Hashes:
    """1 where the task names a kind."""
    named_N = np.zeros(len(kind_N), dtype=np.bool_)
    for place in range(MOST_WORDS):
        named_N |= (kind_N == columns[f"word {place}"]) & (kind_N != 0)
    return named_N.astype(np.uint64)
