"""Conversion between text and token ids, the same for every trainer.

Includes the hindsight prompts with the episode's outcome, for HCAPO's second scoring of a success.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from scpo.envs.projection import CLOSE_TAG
from scpo.generation import Ids

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def encode(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str]) -> list[list[int]]:
    """Token ids of each prompt, untruncated; a chat template wraps it as a user message."""
    if tokenizer.chat_template:
        prompts = [_as_user_message(tokenizer, prompt) for prompt in prompts]
    return tokenizer(list(prompts), add_special_tokens=False)["input_ids"]


def _as_user_message(tokenizer: PreTrainedTokenizerBase, prompt: str) -> str:
    """Text of a chat in which the prompt is the only message and the assistant is to answer."""
    message = [{"role": "user", "content": prompt}]
    return str(tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False))


def decode(tokenizer: PreTrainedTokenizerBase, response_ids: Sequence[int]) -> str:
    """Text of a response, without special tokens.

    Tiny policies end a response with the action's closing tag: as their end token it is kept,
    because the projection of the action looks for it.
    """
    keep_end = tokenizer.eos_token == CLOSE_TAG
    return str(tokenizer.decode(list(response_ids), skip_special_tokens=not keep_end))


Encode = Callable[[Sequence[str]], Sequence[Sequence[int]]]


def is_success(episode_return: float, threshold: float) -> bool:
    """Success as in ``StepBatch.success_N``, compared in float32."""
    return bool(np.float32(episode_return) > np.float32(threshold))


def with_hindsight(
    encode: Encode,
    template: str,
    prompts: Sequence[str],
    *,
    final_observation: str,
    won: bool,
    max_prompt_tokens: int,
) -> list[Ids]:
    """Token ids of an episode's prompts, each preceded by the hindsight.

    The prompt itself stays directly before the response (ledger 24). A prompt that was truncated in
    the rollout loses the same beginning here.

    Args:
        encode: The policy's ``encode``.
        template: ``method.estimator.hindsight_prompt``, with the fields ``final_observation`` and
            ``success``.
        prompts: Prompts of the episode's steps.
        final_observation: The environment's last response.
        won: The episode's outcome.
        max_prompt_tokens: Tokens that the rollout left of a prompt; the hindsight comes on top.
    """
    text = template.format(final_observation=final_observation, success="yes" if won else "no")
    # With a chat template the head holds the template's closing tokens too, and a truncated prompt
    # keeps as many tokens of its beginning.
    head = len(encode([text])[0])
    cut: list[Ids] = []
    for ids in encode([f"{text}\n{prompt}" for prompt in prompts]):
        if len(ids) <= head + max_prompt_tokens:
            cut.append(tuple(ids))
        else:
            cut.append((*ids[:head], *ids[-max_prompt_tokens:]))
    return cut
