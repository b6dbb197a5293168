"""Conversion between text and token ids, the same for every trainer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scpo.envs.projection import CLOSE_TAG

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def encode(tokenizer: PreTrainedTokenizerBase, prompts: Sequence[str]) -> list[list[int]]:
    """Token ids of each prompt, untruncated; a chat template wraps it as a user message."""
    if tokenizer.chat_template:
        prompts = [_as_user_message(tokenizer, prompt) for prompt in prompts]
    return tokenizer(list(prompts), add_special_tokens=False)["input_ids"]


def _as_user_message(tokenizer: PreTrainedTokenizerBase, prompt: str) -> str:
    message = [{"role": "user", "content": prompt}]
    return str(tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False))


def decode(tokenizer: PreTrainedTokenizerBase, response_ids: Sequence[int]) -> str:
    """Text of a response; the end token is kept where it is the action's closing tag."""
    keep_end = tokenizer.eos_token == CLOSE_TAG
    return str(tokenizer.decode(list(response_ids), skip_special_tokens=not keep_end))
