"""What every reader of prompts does: it keeps of a prompt rows of numbers, and finds and hashes the distinct pairs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from scpo.policies.choice.hashing import Hashes


@dataclass(frozen=True)
class Prompt:
    """What is kept of a prompt.

    Attributes:
        commands: The texts that can be chosen.
        command_AW: What the features of each one depend on besides the state.
        state_W: What the features of the state depend on.
    """

    commands: tuple[str, ...]
    command_AW: Hashes
    state_W: Hashes


class PromptReader(ABC):
    """Reads the prompts of one environment and knows the features of what they list; it keeps nothing.

    What a pair of state and command depends on is held as numbers that follow from contents alone: hashes of words, and
    small counts. So equal pairs of a batch are found and scored once, and their order is one of their contents: sums of
    floats must not depend on what a process read before.

    Attributes:
        STATE: Names of the columns of ``Prompt.state_W``.
        COMMAND: Names of those of ``Prompt.command_AW``.

    Args:
        buckets: Rows of the table that features are hashed into; 0 stands for none.
    """

    STATE: ClassVar[tuple[str, ...]]
    COMMAND: ClassVar[tuple[str, ...]]

    def __init__(self, buckets: int) -> None:
        self.buckets = buckets

    @abstractmethod
    def read(self, text: str) -> Prompt:
        """Read a prompt.

        Raises:
            ConfigError: It is another prompt.
        """

    @abstractmethod
    def pair_codes(self, columns: Mapping[str, Hashes]) -> Hashes:
        """A number of each pair's content, equal for equal pairs; pairs are ordered by it."""

    @abstractmethod
    def hashed_pairs(self, columns: dict[str, Hashes]) -> NDArray[np.int64]:
        """Table rows (K, F) of the features of pairs, 0 where one has fewer."""

    @abstractmethod
    def hashed_states(self, columns: dict[str, Hashes]) -> NDArray[np.int64]:
        """Table rows (N, F) of the features of states, for a critic; 0 where one has fewer."""

    def pair_features(self, prompts: Sequence[Prompt]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Features of the distinct pairs of all commands of these prompts, and which pair each command is.

        Returns:
            ``feature_KF`` in an order of their contents; and the place in it of every command, prompt after prompt.
        """
        state_CW = np.repeat(_states(prompts), [len(prompt.commands) for prompt in prompts], axis=0)
        row_WC = np.hstack([state_CW, np.concatenate([prompt.command_AW for prompt in prompts])]).T
        names = (*self.STATE, *self.COMMAND)
        code_C = self.pair_codes(dict(zip(names, row_WC, strict=True)))
        _, first_K, place_C = np.unique(code_C, return_index=True, return_inverse=True)
        return self.hashed_pairs(dict(zip(names, row_WC[:, first_K], strict=True))), place_C

    def state_features(self, prompts: Sequence[Prompt]) -> NDArray[np.int64]:
        """Features of each prompt's state, for a critic: (N, F)."""
        return self.hashed_states(dict(zip(self.STATE, _states(prompts).T, strict=True)))


def _states(prompts: Sequence[Prompt]) -> Hashes:
    return np.stack([prompt.state_W for prompt in prompts])
