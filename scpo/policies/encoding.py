"""Conversion between text and token ids, the same for every trainer.

It also makes the hindsight prompts with which HCAPO scores the responses of a success again.
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
    """Text of a chat with the prompt as its only message, up to the start of the assistant's."""
    message = [{"role": "user", "content": prompt}]
    return str(tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False))


def decode(tokenizer: PreTrainedTokenizerBase, response_ids: Sequence[int]) -> str:
    """Text of a response, without special tokens.

    The end token of tiny policies is the action's closing tag, which is kept, because the
    projection of the action looks for it.
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
    """Token ids of an episode's prompts, each preceded by the hindsight text.

    The prompt stays directly before the response (ledger 24). A prompt that was truncated in the
    rollout loses its beginning here too.

    Args:
        encode: The policy's ``encode``.
        template: ``method.estimator.hindsight_prompt``, with the fields ``final_observation`` and
            ``success``.
        prompts: Prompts of the episode's steps.
        final_observation: The environment's last response.
        won: The episode's outcome.
        max_prompt_tokens: Limit of a prompt in the rollout; the hindsight is not counted.
    """
    text = template.format(final_observation=final_observation, success="yes" if won else "no")
    # A chat template also closes the message after the text. The head counts these tokens, so a
    # truncated prompt keeps as many tokens of its beginning.
    head = len(encode([text])[0])
    truncated: list[Ids] = []
    for ids in encode([f"{text}\n{prompt}" for prompt in prompts]):
        if len(ids) <= head + max_prompt_tokens:
            truncated.append(tuple(ids))
        else:
            truncated.append((*ids[:head], *ids[-max_prompt_tokens:]))
    return truncated
