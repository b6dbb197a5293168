"""Parts shared by the choice policies' features: prompt lines, hashed words, sparse rows."""

from __future__ import annotations

import functools
import hashlib
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ConfigError

# Beginning of each line with an admissible command.
OFFER = "> "


class MemoryPrompt(NamedTuple):
    """Parts of a prompt with a memory (``env.prompt=memory``).

    Attributes:
        headed: Text after each head, in the order of the heads.
        notes: Lines between the heads and the commands: what was seen or chosen so far.
        commands: Admissible commands, in the prompt's order.
    """

    headed: tuple[str, ...]
    notes: list[str]
    commands: tuple[str, ...]


def split_prompt(prompt: str, heads: tuple[str, ...]) -> MemoryPrompt:
    """Cut a prompt into its parts.

    Args:
        prompt: The prompt's text.
        heads: Beginnings of the first lines, such as ``"task: "``.

    Raises:
        ConfigError: It is not a prompt with a memory.
    """
    above, offered, below = prompt.partition(f"\n{OFFER}")
    headed = _head_lines(heads).match(above)
    if not offered or headed is None:
        raise not_a_memory(prompt, heads[:1])
    # The match ends with the last head's line; each note begins with a line break.
    notes = above[headed.end() :].split("\n")[1:]
    return MemoryPrompt(headed.groups(), notes, _listed(below))


@functools.cache
def _head_lines(heads: tuple[str, ...]) -> re.Pattern[str]:
    """Pattern of the first lines: a group for the text after each head."""
    return re.compile("\n".join(f"{re.escape(head)}(.*)" for head in heads))


def not_a_memory(prompt: str, first_heads: tuple[str, ...]) -> ConfigError:
    """Error for a prompt that begins with none of these heads, or lists no commands."""
    heads = " or ".join(map(repr, first_heads))
    return ConfigError(
        f"model=choice reads only env.prompt=memory, which begins with {heads} and lists commands "
        f"after {OFFER!r}; got a prompt that begins with {prompt[:40]!r}"
    )


@functools.lru_cache(maxsize=16384)
def _listed(below: str) -> tuple[str, ...]:
    """Commands of a prompt; equal lists are the same tuple, a key of the caches of features."""
    return tuple(below.split(f"\n{OFFER}"))


Hashes = NDArray[np.uint64]
Names = tuple[str, ...]
"""The columns that a feature joins."""

# Multiplier of Fibonacci hashing; it is odd, so the multiplication loses no bit.
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
# Brings high bits, which a multiplication mixes best, into the low ones.
_SHIFT = np.uint64(29)


@dataclass(frozen=True)
class Prompt:
    """Parsed prompt.

    Attributes:
        commands: Texts of the commands (A).
        command_AW: Columns ``PromptReader.COMMAND`` of each command.
        state_W: Columns ``PromptReader.STATE`` of the state.
    """

    commands: tuple[str, ...]
    command_AW: Hashes
    state_W: Hashes


class PromptReader(ABC):
    """Parser of one environment's prompts, with the features of states and commands; stateless.

    The columns of a state or command are numbers that depend only on its content: hashes of words,
    and small counts. Equal pairs of state and command in a batch are therefore found and scored
    once. The distinct pairs are ordered by content, because sums of floats must not depend on what
    a process parsed before.

    Attributes:
        STATE: Names of the columns of ``Prompt.state_W``.
        COMMAND: Names of the columns of ``Prompt.command_AW``.
        PAIR_FEATURES: For each feature of a pair of state and command, the columns that it joins.
        PAIR_WORD_FEATURES: The same for features that are repeated for each word of the task; the
            column ``word`` is each of the state's columns ``word <n>`` in turn.
        STATE_FEATURES: For each feature of a state, read by a critic, the columns that it joins.
        STATE_WORD_FEATURES: The same for features that are repeated for each word of the task.

    Args:
        buckets: Rows of the table that features are hashed into; row 0 means no feature.
    """

    STATE: ClassVar[Names]
    COMMAND: ClassVar[Names]
    PAIR_FEATURES: ClassVar[tuple[Names, ...]]
    PAIR_WORD_FEATURES: ClassVar[tuple[Names, ...]] = ()
    STATE_FEATURES: ClassVar[tuple[Names, ...]]
    STATE_WORD_FEATURES: ClassVar[tuple[Names, ...]] = ()

    def __init__(self, buckets: int) -> None:
        self.buckets = buckets

    @abstractmethod
    def read(self, text: str) -> Prompt:
        """Read a prompt.

        Raises:
            ConfigError: It is not a prompt of this environment with a memory.
        """

    @abstractmethod
    def pair_codes(self, columns: Mapping[str, Hashes]) -> Hashes:
        """Hash of each pair's content, equal for equal pairs; pairs are ordered by it.

        Leave out columns that no feature of a pair reads: pairs that differ only in them have the
        same score.
        """

    def joinable(self, columns: dict[str, Hashes]) -> dict[str, Hashes]:
        """The given columns of pairs, with derived columns that features join.

        Called with distinct pairs only, so that derived columns are not computed for equal pairs.
        """
        return columns

    def pair_features(
        self, prompts: Sequence[Prompt]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Features of the distinct (state, command) pairs of these prompts.

        Returns:
            ``feature_KF``, F table rows for each of K pairs, ordered by content; and for every
            command, prompt after prompt, its pair's row in ``feature_KF``.
        """
        # C: all commands of all prompts; W: columns of a state, a command or both.
        state_CW = np.repeat(_states(prompts), [len(prompt.commands) for prompt in prompts], axis=0)
        command_CW = np.concatenate([prompt.command_AW for prompt in prompts])
        row_WC = np.concatenate([state_CW.T, command_CW.T])
        names = (*self.STATE, *self.COMMAND)
        code_C = self.pair_codes(dict(zip(names, row_WC, strict=True)))
        # `unique` sorts by content, so the order of sums does not depend on the order of prompts.
        _, first_K, place_C = np.unique(code_C, return_index=True, return_inverse=True)
        columns = self.joinable(dict(zip(names, row_WC[:, first_K], strict=True)))
        return self._hashed(columns, self.PAIR_FEATURES, self.PAIR_WORD_FEATURES), place_C

    def state_features(self, prompts: Sequence[Prompt]) -> NDArray[np.int64]:
        """Features of each prompt's state, for a critic: (N, F)."""
        columns = dict(zip(self.STATE, _states(prompts).T, strict=True))
        return self._hashed(columns, self.STATE_FEATURES, self.STATE_WORD_FEATURES)

    def _hashed(
        self, columns: Mapping[str, Hashes], plain: Sequence[Names], of_words: Sequence[Names]
    ) -> NDArray[np.int64]:
        """Table rows (K, F) of the features that join these columns.

        Features of a word are 0 for tasks with fewer words.
        """
        feature_FK = [self._bucket(columns, names, number) for number, names in enumerate(plain, 1)]
        for name, word_K in columns.items():
            if not name.startswith("word "):
                continue
            with_word = {**columns, "word": word_K}
            # All words use the same feature numbers: a word's position in the task does not matter.
            for number, names in enumerate(of_words, len(plain) + 1):
                feature_FK.append(np.where(word_K != 0, self._bucket(with_word, names, number), 0))
        return np.stack(feature_FK, axis=1)

    def _bucket(
        self, columns: Mapping[str, Hashes], names: Names, number: int
    ) -> NDArray[np.int64]:
        """Rows of the table, from 1 on, for feature ``number``, which joins these columns."""
        # The number distinguishes features that join equal values. Hashes may collide, as in all
        # feature hashing; the default table has more rows than a run has features.
        hash_K = joined([columns[name] for name in names], number)
        most = np.uint64(self.buckets - 1)
        # hash_K % most, written so because NumPy's % is slower.
        return (hash_K - hash_K // most * most).astype(np.int64) + 1


def _states(prompts: Sequence[Prompt]) -> Hashes:
    """Columns of the states, (prompts, W)."""
    return np.stack([prompt.state_W for prompt in prompts])


@functools.lru_cache(maxsize=65536)
def text_hash(text: str) -> int:
    """Hash of a text, 64 bits; 0 for an empty text.

    Not Python's ``hash``, which differs from process to process: a policy must find the same
    features again after a restart and in a cached supervised start.
    """
    if not text:
        return 0
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def joined(columns: Sequence[Hashes], start: int = 0) -> Hashes:
    """Hash several columns of numbers to one, row by row; multiplications wrap around.

    Args:
        columns: Arrays of equal length; their order matters.
        start: First value; another one gives other hashes of equal columns.
    """
    mixed: Hashes | np.uint64 = np.uint64(start)
    for column in columns:
        mixed = (mixed ^ column) * _MULTIPLIER
        mixed ^= mixed >> _SHIFT
    return np.asarray((mixed * _MULTIPLIER) ^ (mixed >> _SHIFT))
