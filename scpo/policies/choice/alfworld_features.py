"""Choice policy's features of ALFWorld prompts.

All features are lexical and are computed from the prompt only: they compare words of the task with
words of the commands and of what was seen. Features are hashed into the rows of an embedding table.
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
"""Number of content words of a task that are used; ALFWorld's tasks have at most four."""
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
# ALFWorld's commands: `go to`, `open` or `close` with a place; or a verb, with a thing and then a
# place or tool if it has them: "look", "use desklamp 1", "heat mug 1 with microwave 1".
_COMMAND = re.compile(
    r"(?P<verb>go to|open|close) (?P<at>[a-z]+ \d+)|"
    r"(?P<act>[a-z]+)(?: (?P<thing>[a-z]+ \d+))?(?: (?:from|to|with) (?P<place>[a-z]+ \d+))?"
)
TASK = "task: "
_HEADS = (TASK, "holding: ", "at: ", "last: ", "step: ")
_SEEN = "seen "
_AGES = {"0": 0, "1": 1, "2": 1, "3": 2, "4": 2, "5": 2, "6": 2}
"""Number of steps since a receptacle was last seen -> ``Place.age``; 3 for any larger number."""


class State(NamedTuple):
    """State shared by all commands of a prompt.

    Attributes:
        words: Content words of the task.
        hold: Held object: ``nothing``, ``goal`` (an object that the task names) or ``other``.
        treated: Treatments of the held object, separated by spaces: hot, cool, clean.
        placed: Number of things that the task names in places that it names, at most 2.
        known: Whether a thing that the task names was seen in another place.
    """

    words: tuple[str, ...]
    hold: str
    treated: str
    placed: int
    known: bool


class Place(NamedTuple):
    """Knowledge about a receptacle.

    Attributes:
        status: ``new`` (never seen), ``closed``, ``empty`` or ``full``; the empty text if the
            command names no receptacle.
        goals: Number of things in it that the task names, at most 2.
        age: Class of the number of steps since it was last seen: 0 for 0 steps, 1 for 1 or 2, 2 for
            3 to 6, 3 for more, 4 if it was never seen.
    """

    status: str
    goals: int
    age: int


# The place of a command that names no receptacle, and a receptacle that was never seen.
NOWHERE, UNSEEN = Place("", 0, 0), Place("new", 0, 4)


class Command(NamedTuple):
    """Parts of a command; a missing part is the empty text.

    Attributes:
        verb: First word.
        thing: Kind of the thing: ``mug`` for ``mug 1``.
        place: Kind of the place or tool.
        place_name: Name of the place or tool, such as ``desk 1``.
    """

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
        last: The last command, followed by " | nothing" if it had no effect.
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
        ConfigError: It is not a prompt with a memory.
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
    # Kinds are compared, because a task names a kind and accepts any object of it.
    hold = "nothing"
    if held:
        hold = "goal" if _kind(held) in words else "other"
    state = State(words, hold, treated, min(placed, 2), known)
    return Read(state, places, location, last, int(step), commands)


@functools.lru_cache(maxsize=65536)
def _content(things: str, words: tuple[str, ...]) -> tuple[str, int]:
    """Status of a receptacle, and how many of the things in it the task names.

    Args:
        things: The prompt's text of its content: ``closed``, or names separated by commas.
        words: Content words of the task.
    """
    if things == "closed":
        return "closed", 0
    goals = sum(_kind(thing) in words for thing in things.split(", "))
    return "full" if things else "empty", goals


@functools.lru_cache(maxsize=65536)
def task_words(task: str) -> tuple[str, ...]:
    """The first ``MOST_WORDS`` distinct content words of a task."""
    words = (word for word in re.findall(r"[a-z]+", task.lower()) if word not in _STOP)
    return tuple(dict.fromkeys(words))[:MOST_WORDS]


def parse_command(text: str) -> Command:
    """Parse a command; if it does not match the grammar, only its first word is used."""
    match = _COMMAND.fullmatch(text)
    if match is None:
        return Command(text.partition(" ")[0], "", "", "")
    if match["verb"]:
        return Command(match["verb"].partition(" ")[0], "", _kind(match["at"]), match["at"])
    thing = match["thing"] or ""
    place = match["place"] or ""
    return Command(match["act"], _kind(thing), _kind(place), place)


def _kind(name: str) -> str:
    """Kind of a numbered name: "mug" for "mug 1"."""
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

    ``named``, ``there``: the task names the command's thing, its place. ``status``, ``goals``,
    ``age``: the :class:`Place` of the command's receptacle; ``any goals``: ``goals`` is not 0.
    ``here``: the agent is at the receptacle; before its first ``go to``, also set for commands that
    name no receptacle. ``again``: the command was the last one and had an effect.
    """
    PAIR_WORD_FEATURES = (
        ("word", "verb", "place", "empty-handed"),
        ("word", "verb", "hold", "treated", "named", "there"),
        ("word", "verb", "hold", "treated", "object"),
    )
    """Columns joined for each word of the task.

    ``object``: the command's place or, if it names none, its thing. ``empty-handed``: the agent
    holds nothing.
    """
    STATE_FEATURES = (
        ("hold", "known"),
        ("hold", "treated", "placed"),
        ("location", "hold"),
        ("seen", "hold", "known"),
        ("phase",),
        ("phase", "hold", "known"),
    )
    """Columns joined for a critic.

    ``seen``: number of receptacles that were seen, at most 12; ``phase``: number of steps // 3.
    """
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
        # The agent's location has no entry if no observation has reported its content.
        codes[found.location] = codes.get(found.location, unseen) | _HERE
        kind_AW, names = _kinds(found.commands)
        # A copy, because equal lists of commands share the cached array.
        command_AW = kind_AW.copy()
        command_AW[:, -1] = [codes.get(name, unseen) for name in names]
        if found.last in found.commands:
            command_AW[found.commands.index(found.last), -1] |= _AGAIN
        # Counts are capped or divided, because each rare value would train its own embedding.
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
        columns["named"] = _in_task(columns["thing"], columns)
        columns["there"] = _in_task(columns["place"], columns)
        columns["any goals"] = (columns["goals"] > 0).astype(np.uint64)
        columns["empty-handed"] = (columns["hold"] == text_hash("nothing")).astype(np.uint64)
        columns["object"] = np.where(columns["place"] != 0, columns["place"], columns["thing"])
        return columns


@functools.lru_cache(maxsize=16384)
def _kinds(commands: tuple[str, ...]) -> tuple[Hashes, tuple[str, ...]]:
    """Columns ``Reader.COMMAND`` of each command, with 0 for ``at``, and its receptacle's name."""
    rows, names = zip(*[_kind_row(command) for command in commands], strict=True)
    return np.array(rows, dtype=np.uint64), names


@functools.lru_cache(maxsize=65536)
def _kind_row(command: str) -> tuple[tuple[int, ...], str]:
    parts = parse_command(command)
    row = (text_hash(parts.verb), text_hash(parts.thing), text_hash(parts.place), 0)
    return row, parts.place_name


@functools.lru_cache(maxsize=16384)
def _state_row(state: State) -> Hashes:
    row = [text_hash(state.hold), text_hash(state.treated), state.placed, int(state.known)]
    row += [text_hash(word) for word in state.words]
    # A task with fewer words gets 0 for the others, the hash of an empty text.
    row += [0] * (MOST_WORDS - len(state.words))
    return np.array(row, dtype=np.uint64)


@functools.cache
def _code(place: Place) -> int:
    """A place as 8 bits; from the lowest: 3 for its status, 2 for its goals, 3 for its age."""
    return _STATUS.index(place.status) | (place.goals << 3) | (place.age << 5)


def _decoded(at_N: Hashes) -> dict[str, Hashes]:
    """The columns that are packed into ``at``."""
    # Name -> shift and mask, which follow from `_code`, _HERE and _AGAIN.
    parts = {"status": (0, 7), "goals": (3, 3), "age": (5, 7), "here": (8, 1), "again": (9, 1)}
    columns = {}
    for name, (shift, mask) in parts.items():
        columns[name] = (at_N >> np.uint64(shift)) & np.uint64(mask)
    return columns


def _in_task(kind_N: Hashes, columns: Mapping[str, Hashes]) -> Hashes:
    """1 where a word of the task is the kind, else 0; 0 also for a missing kind."""
    named_N = np.zeros(len(kind_N), dtype=np.bool_)
    for number in range(MOST_WORDS):
        named_N |= (kind_N == columns[f"word {number}"]) & (kind_N != 0)
    return named_N.astype(np.uint64)
