"""Which reader of prompts serves which environment: each knows its own by its first words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from scpo.policies.choice.features import Reader
from scpo.policies.choice.memory_prompt import not_a_memory
from scpo.policies.choice.reading import TASK
from scpo.policies.choice.shop_features import ShopReader
from scpo.policies.choice.shop_reading import WISH


class ReadPrompt(Protocol):
    """What is kept of a prompt; the rest is its reader's own."""

    @property
    def commands(self) -> tuple[str, ...]:
        """The texts that can be chosen."""


class PromptReader(Protocol):
    """Reads the prompts of one environment and knows the features of what they list."""

    def read(self, text: str) -> ReadPrompt:
        """Read a prompt.

        Raises:
            ConfigError: It is another prompt.
        """

    def pair_features(self, prompts: Sequence[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Features (K, F) of the distinct pairs of state and command, and which pair each command is."""

    def state_features(self, prompts: Sequence[Any]) -> NDArray[np.int64]:
        """Features (N, F) of each prompt's state, for a critic."""


READERS: dict[str, Callable[[int], PromptReader]] = {TASK: Reader, WISH: ShopReader}
"""By what a prompt of the environment begins with."""


def make_reader(prompt: str, buckets: int) -> PromptReader:
    """The reader of this prompt's environment.

    Args:
        prompt: The first that is to be read.
        buckets: Rows of the table that features are hashed into.

    Raises:
        ConfigError: It is no prompt with a memory.
    """
    for head, reader in READERS.items():
        if prompt.startswith(head):
            return reader(buckets)
    raise not_a_memory(prompt, tuple(READERS))
