"""Policy of the local trainer: a Hugging Face causal LM that samples and scores responses."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import DynamicCache

from scpo.generation import Generation, Ids
from scpo.policies.base import TokenStatistics, ValueModel
from scpo.policies.encoding import decode, encode
from scpo.policies.loss import token_statistics

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


class LocalPolicy:
    """Causal LM with its tokenizer.

    Prompts are padded on the left and responses on the right, so that all responses begin in the
    same column: sampling reads the last column, and the update reads one slice.

    Args:
        model: A causal LM, already on its device.
        tokenizer: Its tokenizer; a chat template, where it has one, wraps each prompt as one user
            message.
        max_prompt_tokens: Longer prompts lose their beginning (counted in ``truncated`` of the
            generation).
        max_response_tokens: Sampling stops here or at the end token.
        batch_rows: Rows sampled at once.

    Attributes:
        batch_tokens: Largest number of tokens of a training micro-batch, with padding; None:
            no bound.
        recomputes: Activations are computed again in the backward pass.
        autocast_dtype: Type in which the model computes, for any type of weights; None: that of its
            weights.
    """

    batch_tokens: int | None = None
    recomputes = False
    autocast_dtype: torch.dtype | None = None

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_prompt_tokens: int,
        max_response_tokens: int,
        batch_rows: int,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.max_prompt_tokens = max_prompt_tokens
        self.max_response_tokens = max_response_tokens
        self.batch_rows = batch_rows
        # A tokenizer may lack a padding token. No result depends on the padding, so the end token
        # replaces it.
        self.end_id: int = tokenizer.eos_token_id
        self.pad_id: int = self.end_id
        if tokenizer.pad_token_id is not None:
            self.pad_id = tokenizer.pad_token_id

    @property
    def device(self) -> torch.device:
        return self.model.device

    def encode(self, prompts: Sequence[str]) -> list[list[int]]:
        """Token ids of each prompt, untruncated."""
        return encode(self.tokenizer, prompts)

    def decode(self, response_ids: Sequence[int]) -> str:
        """Text of a response."""
        return decode(self.tokenizer, response_ids)

    @torch.no_grad()
    def generate(
        self, prompts: Sequence[str], temperature: float, uniforms_NL: NDArray[np.float64]
    ) -> list[Generation]:
        """Sample responses; see :class:`scpo.rollout.Policy`.

        Equal prompts of a pass are processed once; temperature 0 takes the most likely token.
        """
        self.model.eval()
        encoded = self.encode(prompts)
        # The end is kept, because it holds the current observation and the instruction to answer.
        cut = [tuple(ids[-self.max_prompt_tokens :]) for ids in encoded]

        # Similar lengths share a pass, which then needs little padding; ties by row, so that the
        # passes are the same in every process.
        order = sorted(range(len(cut)), key=lambda row: (len(cut[row]), row))
        generations: dict[int, Generation] = {}
        for start in range(0, len(order), self.batch_rows):
            rows = order[start : start + self.batch_rows]
            sampled = self._sample([cut[row] for row in rows], temperature, uniforms_NL[rows])
            for row, (ids, logprobs) in zip(rows, sampled, strict=True):
                truncated = len(encoded[row]) > len(cut[row])
                generations[row] = Generation(self.decode(ids), cut[row], ids, logprobs, truncated)
        return [generations[row] for row in range(len(cut))]

    def _sample(
        self, prompts: list[tuple[int, ...]], temperature: float, uniforms_NL: NDArray[np.float64]
    ) -> list[tuple[tuple[int, ...], tuple[float, ...]]]:
        """Sample the responses of one batch of prompts with a cache of keys and values.

        transformers' ``generate`` is not used: it draws from the global generator, so that a
        response would depend on the other rows and on what was sampled before.

        Returns:
            Token ids, with the end token, and log-probabilities of each row's response.
        """
        # Siblings begin with the same prompt; its cache is computed once and then copied.
        # `dict.fromkeys` keeps the order, unlike a set, so that the pass is the same in every
        # process.
        unique = {prompt: index for index, prompt in enumerate(dict.fromkeys(prompts))}
        owner = torch.tensor([unique[prompt] for prompt in prompts], device=self.device)
        ids, mask = self.left_padded(list(unique))
        cache = DynamicCache(config=self.model.config)
        cached = {_cache_argument(self.model): cache, "use_cache": True}
        output = self.forward(ids, mask, logits_to_keep=1, **cached)
        cache.batch_select_indices(owner)
        mask = mask[owner]
        # With left padding the last column is the last token of every prompt.
        logits = output.logits[owner, -1]
        uniforms = torch.from_numpy(uniforms_NL).to(self.device)
        tokens = []
        logprobs = []
        alive = torch.ones(len(prompts), dtype=torch.bool, device=self.device)
        for step in range(self.max_response_tokens):
            token, logprob = _draw(logits, temperature, uniforms[:, step])
            # Rows that have ended are padded until all rows have ended.
            tokens.append(torch.where(alive, token, self.pad_id))
            logprobs.append(torch.where(alive, logprob, torch.nan))
            alive = alive & (token != self.end_id)
            if not alive.any() or step == self.max_response_tokens - 1:
                break
            # Padding of finished rows is not masked: nothing reads these rows again.
            mask = torch.cat([mask, torch.ones_like(mask[:, :1])], 1)
            output = self.forward(token[:, None], mask, **cached)
            logits = output.logits[:, -1]

        return list(_rows(torch.stack(tokens, 1), torch.stack(logprobs, 1)))

    def statistics(
        self,
        prompts: Sequence[Sequence[int]],
        responses: Sequence[Sequence[int]],
        temperature: float,
    ) -> tuple[TokenStatistics, torch.Tensor]:
        """Score responses under the policy, with gradient where it is enabled.

        Returns:
            Statistics of shape (N, L), L the longest response, and the mask of response tokens.
        """
        logits, response_ids, mask = self.response_logits(prompts, responses)
        return token_statistics(logits, response_ids, temperature), mask

    def response_logits(
        self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Logits of the response tokens (N, L, V), the tokens and their mask (N, L)."""
        ids, mask, response_mask = self.joined(prompts, responses)
        length = response_mask.shape[1]
        # transformers recomputes activations only in training mode; dropout is off for such models.
        self.model.train(self.recomputes and torch.is_grad_enabled())
        output = self.forward(ids, mask, logits_to_keep=length + 1)
        # The logits at a position predict the next token, so those at the last one are not needed.
        return output.logits[:, :-1], ids[:, -length:], response_mask

    def joined(
        self, prompts: Sequence[Sequence[int]], responses: Sequence[Sequence[int]]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Concatenate padded prompts and responses.

        Returns:
            Token ids (N, width), attention mask (N, width), and response mask (N, L), L the longest
            response.
        """
        length = max(len(response) for response in responses)
        padded = []
        is_response = []
        for response in responses:
            padding = length - len(response)
            padded.append([*response, *[self.pad_id] * padding])
            # Floats, because losses are multiplied by the mask.
            is_response.append([1.0] * len(response) + [0.0] * padding)
        response_ids = torch.tensor(padded, device=self.device)
        response_mask = torch.tensor(is_response, device=self.device)

        prompt_ids, prompt_mask = self.left_padded(prompts)
        ids = torch.cat([prompt_ids, response_ids], 1)
        mask = torch.cat([prompt_mask, response_mask.long()], 1)
        return ids, mask, response_mask

    def left_padded(self, prompts: Sequence[Sequence[int]]) -> tuple[torch.Tensor, torch.Tensor]:
        """Token ids and attention mask, both (N, longest), padding on the left."""
        width = max(len(prompt) for prompt in prompts)
        ids = []
        mask = []
        for prompt in prompts:
            padding = width - len(prompt)
            ids.append([*[self.pad_id] * padding, *prompt])
            mask.append([0] * padding + [1] * len(prompt))
        return torch.tensor(ids, device=self.device), torch.tensor(mask, device=self.device)

    def value_model(self) -> ValueModel:
        """Copy of the model's base with a scalar head."""
        return LanguageValue(self)

    def save(self, folder: Path) -> None:
        """Write a Hugging Face model folder."""
        self.model.save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)

    def forward(self, ids: torch.Tensor, mask: torch.Tensor, **options: Any) -> Any:
        """Output of the model.

        Positions are computed from ``mask``. Without positions a model counts from the first
        column, and the result of a prompt would depend on its padding.

        Args:
            ids: Token ids (N, width), without those in the cache.
            mask: Attention mask (N, width of the cache + width).
            options: Further arguments of the model.
        """
        with torch.autocast(
            self.device.type, self.autocast_dtype, enabled=self.autocast_dtype is not None
        ):
            return self.model(
                input_ids=ids,
                attention_mask=mask,
                position_ids=positions(mask)[:, -ids.shape[1] :],
                **options,
            )


class LanguageValue(ValueModel):
    """Copy of the policy's base with a scalar head.

    The head starts at zero, so that the first values are 0 and not random (the paper is silent;
    ledger 25).

    Args:
        policy: Provides the base and the padding.
    """

    def __init__(self, policy: LocalPolicy) -> None:
        super().__init__()
        # A copy, because critic and policy are updated with different losses.
        self.base = copy.deepcopy(policy.model.base_model)
        self.head = torch.nn.Linear(policy.model.config.hidden_size, 1, device=policy.device)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self._joined = policy.joined

    def forward(
        self, prompts: Sequence[Ids], responses: Sequence[Ids]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :class:`scpo.policies.base.ValueModel`."""
        ids, mask, response_mask = self._joined(prompts, responses)
        output = self.base(input_ids=ids, attention_mask=mask, position_ids=positions(mask))
        # The value before a token is read at the position that predicts the token. The head is in
        # float32, even if the base is in bfloat16.
        before = output.last_hidden_state[:, -response_mask.shape[1] - 1 : -1]
        return self.head(before.float())[..., 0], response_mask


def _cache_argument(model: PreTrainedModel) -> str:
    """Name of the argument for the cache of keys and values.

    transformers 5.24 renamed it, and removes the former name in 5.40.
    """
    names = inspect.signature(model.forward).parameters
    return "cache" if "cache" in names else "past_key_values"


def positions(mask: torch.Tensor) -> torch.Tensor:
    """Position of each token among those of the attention mask; on padding any valid position."""
    # Left padding, with a cumulative sum of 0, would get position -1.
    return (mask.cumsum(1) - 1).clamp(min=0)


def _draw(
    logits_NV: torch.Tensor, temperature: float, uniform_N: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Inverse-CDF sampling: first token whose cumulative probability exceeds the uniform number.

    Args:
        logits_NV: Logits of the next token.
        temperature: 0 takes the most likely token.
        uniform_N: Numbers in [0, 1).

    Returns:
        Token ids (N,) and their log-probabilities (N,) at the temperature; at 0, those of
        temperature 1.
    """
    # In float32 for any type of weights: the update compares these log-probabilities.
    logprob_NV = (logits_NV.float() / (temperature or 1.0)).log_softmax(-1)
    if temperature == 0:
        token_N = logprob_NV.argmax(-1)
    else:
        # In double precision: in float32 a sum over 150,000 probabilities would have an error
        # larger than the probability of a rare token.
        cumulative_NV = logprob_NV.double().exp().cumsum(-1)
        # Scaled by the total, which rounding keeps from being exactly 1.
        threshold_N1 = uniform_N[:, None] * cumulative_NV[:, -1:]
        found_N1 = torch.searchsorted(cumulative_NV, threshold_N1, right=True)
        token_N = found_N1[:, 0].clamp(max=logits_NV.shape[-1] - 1)
    return token_N, logprob_NV.gather(-1, token_N[:, None])[:, 0]


def _rows(
    token_NL: torch.Tensor, logprob_NL: torch.Tensor
) -> Iterator[tuple[tuple[int, ...], tuple[float, ...]]]:
    """Yield the sampled tokens and log-probabilities of each row, without those after its end."""
    # `_sample` marks columns after a row's end with NaN.
    length_N = (~logprob_NL.isnan()).sum(1)
    for tokens, logprobs, length in zip(
        token_NL.tolist(), logprob_NL.tolist(), length_N.tolist(), strict=True
    ):
        yield tuple(tokens[:length]), tuple(logprobs[:length])
