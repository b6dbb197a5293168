"""Features of ALFWorld's states, and of pairs of state and command: names hashed into the rows of a table."""

from __future__ import annotations

import functools
from collections.abc import Mapping

import numpy as np

from scpo.policies.choice.readers import Hashes, Prompt, PromptReader, joined, text_hash
from scpo.policies.choice.reading import MOST_WORDS, NOWHERE, UNSEEN, Place, State, parse_command, read

_STATUS = ("", "new", "closed", "empty", "full")
_SHARED = ("hold", "treated", "placed", "known", *(f"word {n}" for n in range(MOST_WORDS)))
_KINDS = ("verb", "thing", "place")
_HERE, _AGAIN = 1 << 8, 1 << 9


class Reader(PromptReader):
    """Reads ALFWorld's prompts."""

    STATE = (*_SHARED, "location", "seen", "phase")
    COMMAND = (*_KINDS, "at")
    """``at``: what is known of the receptacle, and whether it is here and was given last, in one number."""
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
    """What each feature of a command joins. ``named``, ``there``: the task names its thing, its place; ``status``,
    ``goals``, ``age``: what is known of its place; ``here``, ``again``: the agent is there, or gave it last."""
    PAIR_WORD_FEATURES = (
        ("word", "verb", "place", "empty-handed"),
        ("word", "verb", "hold", "treated", "named", "there"),
        ("word", "verb", "hold", "treated", "object"),
    )
    """The same for each word of the task; ``object``: the command's place or, without one, its thing."""
    STATE_FEATURES = (
        ("hold", "known"),
        ("hold", "treated", "placed"),
        ("location", "hold"),
        ("seen", "hold", "known"),
        ("phase",),
        ("phase", "hold", "known"),
    )
    """What a critic reads. ``seen``: receptacles, at most 12; ``phase``: a third of the steps taken."""
    STATE_WORD_FEATURES = (
        ("word", "hold", "treated", "known"),
        ("word", "hold", "placed"),
        ("word", "seen", "known", "hold"),
    )

    def read(self, text: str) -> Prompt:
        """See :class:`PromptReader`."""
        found, unseen = read(text), _code(UNSEEN)
        codes = {name: _code(place) for name, place in found.places.items()} | {"": _code(NOWHERE)}
        codes[found.location] = codes.get(found.location, unseen) | _HERE
        kind_AW, names = _kinds(found.commands)
        command_AW = kind_AW.copy()
        command_AW[:, -1] = [codes.get(name, unseen) for name in names]
        if found.last in found.commands:
            command_AW[found.commands.index(found.last), -1] |= _AGAIN
        situation = text_hash(found.location.partition(" ")[0]), min(len(found.places), 12), found.step // 3
        state_W = np.empty(len(self.STATE), dtype=np.uint64)
        state_W[: len(_SHARED)] = _state_row(found.state)
        state_W[len(_SHARED) :] = situation
        return Prompt(found.commands, command_AW, state_W)

    def pair_codes(self, columns: Mapping[str, Hashes]) -> Hashes:
        """See :class:`PromptReader`."""
        state_C, kinds_C = (joined([columns[name] for name in names]) for names in (_SHARED, _KINDS))
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
    """Hashes of the kinds that each command names, with 0 for ``at``; and the names of their receptacles."""
    rows, names = zip(*map(_kind_row, commands), strict=True)
    return np.array(rows, dtype=np.uint64), names


@functools.lru_cache(maxsize=65536)
def _kind_row(command: str) -> tuple[tuple[int, ...], str]:
    *kinds, place_name = parse_command(command)
    return (*map(text_hash, kinds), 0), place_name


@functools.lru_cache(maxsize=16384)
def _state_row(state: State) -> Hashes:
    words = [text_hash(word) for word in state.words] + [0] * (MOST_WORDS - len(state.words))
    row = [text_hash(state.hold), text_hash(state.treated), state.placed, int(state.known), *words]
    return np.array(row, dtype=np.uint64)


@functools.cache
def _code(place: Place) -> int:
    return _STATUS.index(place.status) | place.goals << 3 | place.age << 5


def _decoded(at_N: Hashes) -> dict[str, Hashes]:
    """The parts of what ``at`` packs."""
    parts = {"status": (0, 7), "goals": (3, 3), "age": (5, 7), "here": (8, 1), "again": (9, 1)}
    return {name: at_N >> np.uint64(shift) & np.uint64(mask) for name, (shift, mask) in parts.items()}


def _one_of(kind_N: Hashes, columns: Mapping[str, Hashes]) -> Hashes:
    """1 where the task names a kind."""
    named_N = np.zeros(len(kind_N), dtype=np.bool_)
    for place in range(MOST_WORDS):
        named_N |= (kind_N == columns[f"word {place}"]) & (kind_N != 0)
    return named_N.astype(np.uint64)
