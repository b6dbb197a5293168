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

    Both are computed at the sampling temperature, and are undefined outside the mask of response
    tokens.

    Attributes:
        logprob_NL: Log-probability of each token, in nats.
        entropy_NL: Entropy of the distribution from which the token was drawn, in nats.
    """

    logprob_NL: torch.Tensor
    entropy_NL: torch.Tensor


class TrainedPolicy(Protocol):
    """A policy whose weights are those of ``model``, a ``torch.nn.Module``.

    A token is a word piece of a language model or the number of a command of a choice policy. The
    trainer uses tokens only through this interface, so that one update serves both.

    Attributes:
        model: Module with the weights; the trainer copies it as the reference policy and stores its
            weights in checkpoints.
        max_prompt_tokens: Longer prompts lose their beginning.
        max_response_tokens: Maximum length of a response; ``generate`` gets as many columns of
            random numbers.
        batch_tokens: Largest number of tokens of a training micro-batch, with padding; None: no
            bound.
    """

    model: Any
    max_prompt_tokens: int
    max_response_tokens: int
    batch_tokens: int | None

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
            prompts: Token ids as in ``Generation.prompt_ids``, already truncated.
            responses: Token ids of each response, at least one.
            temperature: Sampling temperature, above 0.

        Returns:
            Statistics and the mask of response tokens, both (N, L) with L the longest response.
        """

    def value_model(self) -> ValueModel:
        """New value model; its values are in the unit of the rewards and initially 0."""

    def save(self, folder: Path) -> None:
        """Write the weights to ``folder/model.safetensors``, with the files needed to load them."""


class ValueModel(torch.nn.Module, ABC):
    """Model of a critic: the value of the state before each response token."""

    @abstractmethod
    def forward(
        self, prompts: Sequence[Ids], responses: Sequence[Ids]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Values before the response tokens, and their mask, as in ``TrainedPolicy.statistics``."""
