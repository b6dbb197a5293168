"""Features of states, and of pairs of state and command: names hashed into the rows of a table, many at a time.

What a pair depends on is held as numbers that follow from contents alone: hashes of words, and small counts. So equal
pairs of a batch are found and scored once, and their order is one of their contents: sums of floats must not depend on
what a process read before.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scpo.policies.choice.hashing import Hashes, Names, bucket, joined, plain_features, text_hash
from scpo.policies.choice.reading import MOST_WORDS, NOWHERE, UNSEEN, Place, Read, State, parse_command, read

PAIR_FEATURES: tuple[Names, ...] = (
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
PAIR_WORD_FEATURES: tuple[Names, ...] = (
    ("word", "verb", "place", "empty-handed"),
    ("word", "verb", "hold", "treated", "named", "there"),
    ("word", "verb", "hold", "treated", "object"),
)
"""The same for each word of the task; ``object``: the command's place or, without one, its thing."""
STATE_FEATURES: tuple[Names, ...] = (
    ("hold", "known"),
    ("hold", "treated", "placed"),
    ("location", "hold"),
    ("seen", "hold", "known"),
    ("phase",),
    ("phase", "hold", "known"),
)
"""What a critic reads. ``seen``: receptacles, at most 12; ``phase``: a third of the steps taken."""
STATE_WORD_FEATURES: tuple[Names, ...] = (
    ("word", "hold", "treated", "known"),
    ("word", "hold", "placed"),
    ("word", "seen", "known", "hold"),
)

_STATUS = ("", "new", "closed", "empty", "full")
_STATE = ("hold", "treated", "placed", "known", *(f"word {n}" for n in range(MOST_WORDS)))
_COMMAND = ("verb", "thing", "place")
_SITUATION = ("location", "seen", "phase")


class Rows:
    """Keys that were met, numbered in that order, each with a row of numbers that follow from its content.

    Args:
        width: Of a row.
    """

    def __init__(self, width: int) -> None:
        self._number: dict[object, int] = {}
        self._row_KW = np.zeros((1024, width), dtype=np.uint64)

    def __len__(self) -> int:
        return len(self._number)

    def number(self, key: object) -> int | None:
        """The number of a key; None if it was not met."""
        return self._number.get(key)

    def add(self, key: object, row: Sequence[int]) -> int:
        """Number a key that was not met."""
        number = self._number[key] = len(self._number)
        if number == len(self._row_KW):
            self._row_KW = np.concatenate([self._row_KW, np.zeros_like(self._row_KW)])
        self._row_KW[number] = row
        return number

    def columns(self, names: Sequence[str], number_N: NDArray[np.int64]) -> dict[str, Hashes]:
        """The rows of these keys, by the names of their columns."""
        return dict(zip(names, self._row_KW[number_N].T, strict=True))


@dataclass(frozen=True)
class Prompt:
    """What is kept of a prompt.

    Attributes:
        commands: Their texts.
        command_A: Number of each.
        at_A: What is known of each one's receptacle, and whether it is here and was given last, in one number.
        state: Number of its state.
        situation: Number of its situation, for a critic.
    """

    commands: tuple[str, ...]
    command_A: NDArray[np.int64]
    at_A: NDArray[np.uint64]
    state: int
    situation: int


class Reader:
    """Reads prompts and keeps what it has met: states, commands, lists of commands and situations.

    Args:
        buckets: Rows of the table that features are hashed into; 0 stands for none.
    """

    def __init__(self, buckets: int) -> None:
        self._buckets = buckets
        self._states = Rows(len(_STATE))
        self._commands = Rows(len(_COMMAND))
        self._situations = Rows(len(_STATE) + len(_SITUATION))
        self._texts: dict[str, tuple[int, str]] = {}
        self._lists: dict[tuple[str, ...], tuple[NDArray[np.int64], list[str], dict[str, int]]] = {}

    def read(self, text: str) -> Prompt:
        """Read a prompt and number its parts.

        Raises:
            ConfigError: It is another prompt.
        """
        return self.prompt(read(text))

    def prompt(self, read: Read) -> Prompt:
        """Number the parts of a prompt."""
        command_A, names, place_of = self._list(read.commands)
        codes = {name: _code(place) for name, place in read.places.items()}
        codes[""] = _code(NOWHERE)
        codes[read.location] = codes.get(read.location, _code(UNSEEN)) | _HERE
        unseen = _code(UNSEEN)
        at_A = np.array([codes.get(name, unseen) for name in names], dtype=np.uint64)
        again = place_of.get(read.last)
        if again is not None:
            at_A[again] |= _AGAIN
        return Prompt(read.commands, command_A, at_A, self._state(read.state), self._situation(read))

    def pair_features(self, prompts: Sequence[Prompt]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Features of the distinct pairs of all commands of these prompts, and which pair each command is.

        Returns:
            ``feature_KF``, 0 where a pair has fewer, in an order of their contents; and the place in it of every
            command, prompt after prompt.
        """
        state_C = np.repeat([prompt.state for prompt in prompts], [len(prompt.commands) for prompt in prompts])
        command_C = np.concatenate([prompt.command_A for prompt in prompts])
        at_C = np.concatenate([prompt.at_A for prompt in prompts])
        code_C = joined([self._state_code(state_C), self._command_code(command_C), at_C])
        _, first_K, place_C = np.unique(code_C, return_index=True, return_inverse=True)
        columns = self._states.columns(_STATE, state_C[first_K])
        columns |= self._commands.columns(_COMMAND, command_C[first_K])
        columns |= _decoded(at_C[first_K])
        columns["named"] = _one_of(columns["thing"], columns)
        columns["there"] = _one_of(columns["place"], columns)
        columns["any goals"] = (columns["goals"] > 0).astype(np.uint64)
        columns["empty-handed"] = (columns["hold"] == text_hash("nothing")).astype(np.uint64)
        columns["object"] = np.where(columns["place"] != 0, columns["place"], columns["thing"])
        return self._hashed(columns, PAIR_FEATURES, PAIR_WORD_FEATURES), place_C

    def state_features(self, prompts: Sequence[Prompt]) -> NDArray[np.int64]:
        """Features of each prompt's state, for a critic, 0 where one has fewer: (N, F)."""
        number_N = np.array([prompt.situation for prompt in prompts], dtype=np.int64)
        columns = self._situations.columns((*_STATE, *_SITUATION), number_N)
        return self._hashed(columns, STATE_FEATURES, STATE_WORD_FEATURES)

    def _hashed(
        self, columns: Mapping[str, Hashes], plain: Iterable[Names], of_words: Iterable[Names]
    ) -> NDArray[np.int64]:
        """Table rows (K, F) of features that join these columns; those of a word are 0 where a task has fewer words."""
        feature_FK = plain_features(columns, plain, self._buckets)
        first = len(feature_FK) + 1
        for place in range(MOST_WORDS):
            mine = {**columns, "word": columns[f"word {place}"]}
            for number, names in enumerate(of_words, first):  # the same feature wherever the word stands
                feature_FK.append(np.where(mine["word"] != 0, bucket(mine, names, number, self._buckets), 0))
        return np.stack(feature_FK, axis=1)

    def _state(self, state: State) -> int:
        number = self._states.number(state)
        return self._states.add(state, _state_row(state)) if number is None else number

    def _situation(self, read: Read) -> int:
        key = (read.state, read.location.partition(" ")[0], min(len(read.places), 12), read.step // 3)
        number = self._situations.number(key)
        if number is None:
            number = self._situations.add(key, [*_state_row(key[0]), text_hash(key[1]), key[2], key[3]])
        return number

    def _list(self, commands: tuple[str, ...]) -> tuple[NDArray[np.int64], list[str], dict[str, int]]:
        """Numbers of commands, the names of their receptacles, and the place of each text."""
        known = self._lists.get(commands)
        if known is None:
            parts = [self._texts.get(text) or self._command(text) for text in commands]
            numbers = np.array([number for number, _ in parts], dtype=np.int64)
            names = [name for _, name in parts]
            known = self._lists[commands] = (numbers, names, {text: place for place, text in enumerate(commands)})
        return known

    def _command(self, text: str) -> tuple[int, str]:
        """Number of a command that was not met, and the name of its receptacle."""
        *kinds, place_name = parse_command(text)
        key = tuple(kinds)
        number = self._commands.number(key)
        if number is None:
            number = self._commands.add(key, [text_hash(kind) for kind in kinds])
        self._texts[text] = number, place_name
        return self._texts[text]

    def _state_code(self, number_N: NDArray[np.int64]) -> Hashes:
        return joined(list(self._states.columns(_STATE, number_N).values()))

    def _command_code(self, number_N: NDArray[np.int64]) -> Hashes:
        return joined(list(self._commands.columns(_COMMAND, number_N).values()))


def _state_row(state: State) -> list[int]:
    words = [text_hash(word) for word in state.words] + [0] * (MOST_WORDS - len(state.words))
    return [text_hash(state.hold), text_hash(state.treated), state.placed, int(state.known), *words]


_HERE, _AGAIN = 1 << 8, 1 << 9


@functools.cache
def _code(place: Place) -> int:
    return _STATUS.index(place.status) | place.goals << 3 | place.age << 5


def _decoded(at_N: Hashes) -> dict[str, Hashes]:
    """The parts of what ``Prompt.at_A`` packs."""
    parts = {"status": (0, 7), "goals": (3, 3), "age": (5, 7), "here": (8, 1), "again": (9, 1)}
    return {name: at_N >> np.uint64(shift) & np.uint64(mask) for name, (shift, mask) in parts.items()}


def _one_of(kind_N: Hashes, columns: Mapping[str, Hashes]) -> Hashes:
    """1 where the task names a kind."""
    named_N = np.zeros(len(kind_N), dtype=np.bool_)
    for place in range(MOST_WORDS):
        named_N |= (kind_N == columns[f"word {place}"]) & (kind_N != 0)
    return named_N.astype(np.uint64)
