"""Choice policy: a score for each listed command, a softmax, and one number as response."""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from scpo.envs.projection import respond
from scpo.generation import Generation, Ids
from scpo.policies.base import TokenStatistics, ValueModel
from scpo.policies.choice.alfworld_features import TASK, Reader
from scpo.policies.choice.readers import Prompt, PromptReader, not_a_memory
from scpo.policies.choice.webshop_features import WISH, ShopReader

if TYPE_CHECKING:
    from scpo.schema.model import ChoiceModel

# Score that pads the commands of a prompt to the largest number of commands.
_NO_COMMAND = -1e9

# Size of the cache of prompts, about 3 kB each: more than a training step and a validation read.
_MOST_PROMPTS = 20_000


class ScoreNet(torch.nn.Module):
    """Network that scores rows of features.

    One hidden layer over the sum of the features' embeddings, plus a linear weight per feature.

    Attributes:
        table: (rows, width + 1): each feature's embedding, and in the last column its weight.
        bias: (width,), added to the sum of embeddings.
        hidden: Width -> hidden size.
        out: Hidden size -> the score.

    Args:
        config: Shape of the network, and the seed of its first weights.
    """

    def __init__(self, config: ChoiceModel) -> None:
        super().__init__()
        # A generator of its own, so that the first weights do not depend on earlier draws.
        generator = torch.Generator().manual_seed(config.init_seed)
        table = (
            torch.randn(config.table_rows, config.width + 1, generator=generator)
            * config.init_scale
        )
        # Feature 0 pads rows and must not add to a score.
        table[0] = 0
        # The linear weights, in the last column, start at 0.
        table[:, -1] = 0
        self.table = torch.nn.Parameter(table)
        self.bias = torch.nn.Parameter(torch.zeros(config.width))
        self.hidden = _layer(config.width, config.hidden_size, generator)
        self.out = _layer(config.hidden_size, 1, generator)

    def forward(self, feature_NF: torch.Tensor) -> torch.Tensor:
        """Scores (N,) of rows of features (N, F); feature 0 pads rows with fewer features."""
        summed = torch.nn.functional.embedding_bag(
            feature_NF, self.table, mode="sum", padding_idx=0
        )
        deep = torch.relu(self.hidden(torch.relu(summed[:, :-1] + self.bias)))
        score_N: torch.Tensor = self.out(deep)[:, 0] + summed[:, -1]
        return score_N


def _layer(inputs: int, outputs: int, generator: torch.Generator) -> torch.nn.Linear:
    """Linear layer with uniform weights in ±1/√inputs, torch's own range, and a bias of 0.

    torch's initialisation would draw from the global generator.
    """
    layer = torch.nn.Linear(inputs, outputs)
    with torch.no_grad():
        layer.weight.copy_(
            (torch.rand(outputs, inputs, generator=generator) * 2 - 1) * inputs**-0.5
        )
        layer.bias.zero_()
    return layer


READERS: dict[str, type[PromptReader]] = {TASK: Reader, WISH: ShopReader}
"""Parser of each environment's prompts, by the beginning of these prompts."""


class PromptCache:
    """Bounded cache of parsed prompts, by their token ids.

    A prompt is read when the policy answers it, in every epoch of the update, and by the reference
    policy; it is parsed once. The cache does not change results.

    Args:
        config: The net's shape.
    """

    def __init__(self, config: ChoiceModel) -> None:
        self._config = config
        self._reader: PromptReader | None = None
        self._read = functools.lru_cache(_MOST_PROMPTS)(_read)

    def __call__(self, prompts: Sequence[Ids]) -> tuple[PromptReader, list[Prompt]]:
        """Parse these prompts, which must be of one environment.

        Returns:
            The environment's reader, and the parsed prompts.

        Raises:
            ConfigError: They are not prompts with a memory, or of several environments.
        """
        # All prompts of a run come from one environment, whose reader is kept.
        if self._reader is None:
            self._reader = self._reader_of(bytes(prompts[0]).decode())
        reader = self._reader
        return reader, [self._read(reader, prompt) for prompt in prompts]

    def _reader_of(self, prompt: str) -> PromptReader:
        for head, reader in READERS.items():
            if prompt.startswith(head):
                return reader(self._config.table_rows)
        raise not_a_memory(prompt, tuple(READERS))


def _read(reader: PromptReader, ids: Ids) -> Prompt:
    return reader.read(bytes(ids).decode())


class ChoicePolicy:
    """Network that scores the listed commands; see :class:`scpo.policies.base.TrainedPolicy`.

    A prompt's token ids are its bytes, so the length of a row, by which rows are balanced, is the
    number of bytes of its prompt.

    Args:
        model: The network, already on its device.
        config: Shape of the network.
    """

    # A response is one token, the number of the command.
    max_response_tokens = 1
    # Prompts are never truncated.
    max_prompt_tokens = 1 << 30
    # No bound is needed, because a row takes little memory.
    batch_tokens: int | None = None

    def __init__(self, model: ScoreNet, config: ChoiceModel) -> None:
        self.model: torch.nn.Module = model
        self.config = config
        self._prompts = PromptCache(config)

    @property
    def device(self) -> torch.device:
        """Device of the network."""
        return next(self.model.parameters()).device

    def to(self, device: torch.device) -> ChoicePolicy:
        """Move the network to a device and return the policy."""
        self.model.to(device)
        return self

    def encode(self, prompts: Sequence[str]) -> list[bytes]:
        """The bytes of each prompt."""
        return [prompt.encode() for prompt in prompts]

    @torch.no_grad()
    def generate(
        self, prompts: Sequence[str], temperature: float, uniforms_NL: NDArray[np.float64]
    ) -> list[Generation]:
        """See :class:`scpo.rollout.Policy`. Temperature 0 takes the likeliest command."""
        self.model.eval()
        ids = self.encode(prompts)
        # N prompts, P of them distinct, with up to A commands.
        distinct, row_N = _distinct(ids)
        reader, read_P = self._prompts(distinct)
        # At temperature 0 the log-probabilities are those of temperature 1.
        logprob_PA = self._logprobs(reader, read_P, temperature or 1.0)
        count_P = torch.tensor([len(prompt.commands) for prompt in read_P], device=self.device)
        uniform_N = None if temperature == 0 else uniforms_NL[:, 0]
        choice_N = _draw(logprob_PA, count_P, row_N, uniform_N)
        logprob_N = logprob_PA[row_N, choice_N].tolist()

        generations = []
        columns = (ids, row_N.tolist(), choice_N.tolist(), logprob_N)
        for prompt, place, choice, logprob in zip(*columns, strict=True):
            command = read_P[place].commands[choice]
            generations.append(Generation(respond(command), prompt, (choice,), (logprob,)))
        return generations

    def statistics(
        self, prompts: Sequence[Ids], responses: Sequence[Ids], temperature: float
    ) -> tuple[TokenStatistics, torch.Tensor]:
        """See :class:`scpo.policies.base.TrainedPolicy`.

        All are of shape (N, 1), and the mask is 1, since every response is one token.
        """
        distinct, row_N = _distinct(prompts)
        logprob_PA = self._logprobs(*self._prompts(distinct), temperature)
        entropy_P = -(logprob_PA.exp() * logprob_PA).sum(-1)
        choice_N = torch.tensor([response[0] for response in responses], device=self.device)
        statistics = TokenStatistics(
            logprob_PA[row_N, choice_N][:, None], entropy_P[row_N][:, None]
        )
        return statistics, torch.ones(len(prompts), 1, device=self.device)

    def value_model(self) -> ValueModel:
        """Network with weights of its own over the features of the prompts' states."""
        return ChoiceValue(self.config).to(self.device)

    def save(self, folder: Path) -> None:
        """See :class:`scpo.policies.base.TrainedPolicy`."""
        from safetensors.torch import save_model

        save_model(self.model, str(folder / "model.safetensors"))
        (folder / "choice.json").write_text(json.dumps(self.config.model_dump(mode="json")))

    def _logprobs(
        self, reader: PromptReader, prompts: Sequence[Prompt], temperature: float
    ) -> torch.Tensor:
        """Log-probabilities (P, A) of the prompts' commands, A the largest number of commands.

        Each of the K distinct (state, command) pairs is scored once. Cells without a command have a
        probability of 0.

        Args:
            reader: Computes the features.
            prompts: P distinct prompts.
            temperature: Sampling temperature, above 0.
        """
        count_P = np.array([len(prompt.commands) for prompt in prompts])
        # place_C: for every command, prompt after prompt, the index of its pair.
        feature_KF, place_C = reader.pair_features(prompts)
        score_K = self.model(torch.from_numpy(feature_KF).to(self.device))
        # One further score, at index K, for cells without a command.
        scores = torch.cat([score_K, score_K.new_full((1,), _NO_COMMAND)])
        has_command_PA = np.arange(count_P.max()) < count_P[:, None]
        place_PA = np.full(has_command_PA.shape, len(score_K), dtype=np.int64)
        # The mask selects cells row by row, which is the order of place_C.
        place_PA[has_command_PA] = place_C
        score_PA = scores[torch.from_numpy(place_PA).to(self.device)]
        return (score_PA / temperature).log_softmax(-1)


class ChoiceValue(ValueModel):
    """Value of a prompt's state, with a cache of parsed prompts as in the policy.

    Args:
        config: Shape of the policy's network, which the value network shares.
    """

    def __init__(self, config: ChoiceModel) -> None:
        super().__init__()
        # Another seed, so that the critic does not start with the policy's weights.
        self.net = ScoreNet(config.model_copy(update={"init_seed": config.init_seed + 1}))
        # Initial values of 0, so that the first advantages are those without a critic. The linear
        # weights and the last layer's bias are 0 already.
        torch.nn.init.zeros_(self.net.out.weight)
        self._prompts = PromptCache(config)

    def forward(
        self, prompts: Sequence[Ids], responses: Sequence[Ids]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :class:`scpo.policies.base.ValueModel`."""
        reader, read_N = self._prompts(prompts)
        device = self.net.table.device
        value_N = self.net(torch.from_numpy(reader.state_features(read_N)).to(device))
        return value_N[:, None], torch.ones(len(responses), 1, device=device)


def _distinct(prompts: Sequence[Ids]) -> tuple[list[Ids], torch.Tensor]:
    """Distinct prompts in order of appearance, and the index of each prompt among them."""
    place = {prompt: number for number, prompt in enumerate(dict.fromkeys(prompts))}
    return list(place), torch.tensor([place[prompt] for prompt in prompts])


def _draw(
    logprob_PA: torch.Tensor,
    count_P: torch.Tensor,
    row_N: torch.Tensor,
    uniform_N: NDArray[np.float64] | None,
) -> torch.Tensor:
    """Inverse-CDF sampling: first command whose cumulative probability exceeds the uniform number.

    Args:
        logprob_PA: Log-probabilities of the distinct prompts' commands.
        count_P: Number of commands of each.
        row_N: Distinct prompt of each row.
        uniform_N: One number in [0, 1) for each row; None: take the most likely command.

    Returns:
        Index (N,) of the command of each row.
    """
    if uniform_N is None:
        return logprob_PA.argmax(-1)[row_N]
    # In double precision: sums of many float32 probabilities drift from 1.
    cumulative_NA = logprob_PA.double().exp().cumsum(-1)[row_N]
    # Scaled by the total, which rounding keeps from being exactly 1.
    threshold_N1 = (
        torch.from_numpy(uniform_N).to(cumulative_NA.device)[:, None] * cumulative_NA[:, -1:]
    )
    choice_N = torch.searchsorted(cumulative_NA, threshold_N1, right=True)[:, 0]
    # Rounding may raise the threshold to the total; padding must not be drawn.
    return torch.minimum(choice_N, count_P[row_N] - 1)
