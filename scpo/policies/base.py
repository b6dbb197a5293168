"""Policy interface of the trainers, for language models and choice policies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from scpo.generation import Generation, Ids


@dataclass(frozen=True)
class TokenStatistics:
    """Statistics of response tokens from a forward pass, all of shape (N, L).

    Both are of the distribution at the sampling temperature, and mean nothing outside the mask that
    comes with them.

    Attributes:
        logprob_NL: Log-probability of each token, in nats.
        entropy_NL: Entropy of the distribution that it was drawn from, in nats.
    """

    logprob_NL: torch.Tensor
    entropy_NL: torch.Tensor


class TrainedPolicy(Protocol):
    """A policy whose weights are those of ``model``, a ``torch.nn.Module``.

    The trainer sees tokens only through this interface: a "token" is a word piece of a language
    model or the number of a command, and one update serves both.

    Attributes:
        model: Its weights; the trainer copies it as reference and puts it into checkpoints.
        max_prompt_tokens: Longer prompts lose their beginning.
        max_response_tokens: Columns of the random numbers that ``generate`` is given.
    """

    model: Any
    max_prompt_tokens: int
    max_response_tokens: int

    batch_tokens: int | None
    """Tokens of a micro-batch that is learned from, at most; None: any number."""

    @property
    def device(self) -> torch.device:
        """Device of the weights."""

    def encode(self, prompts: Sequence[str]) -> Sequence[Sequence[int]]:
        """Token ids of each prompt, untruncated."""

    def generate(
        self, prompts: Sequence[str], temperature: float, uniforms_NL: NDArray[np.float64]
    ) -> list[Generation]:
        """See ``scpo.rollout.Policy``."""

    def statistics(
        self, prompts: Sequence[Ids], responses: Sequence[Ids], temperature: float
    ) -> tuple[TokenStatistics, torch.Tensor]:
        """Score responses under the policy, with gradient where it is enabled.

        Args:
            prompts: As in ``Generation.prompt_ids``: truncated already.
            responses: Tokens of each response, at least one.
            temperature: That of the sampling, above 0.

        Returns:
            Statistics of shape (N, L), L the longest response, and the mask of response tokens.
        """

    def value_model(self) -> ValueModel:
        """New value model of the states before response tokens.

        In the unit of the rewards; its initial values are 0.
        """

    def save(self, folder: Path) -> None:
        """Write the weights to ``folder/model.safetensors``, with the files needed to load them."""


class ValueModel(torch.nn.Module, ABC):
    """A critic's model; called with prompts and responses."""

    @abstractmethod
    def forward(
        self, prompts: Sequence[Ids], responses: Sequence[Ids]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Values before the response tokens and their mask, both (N, L), L the longest response."""
