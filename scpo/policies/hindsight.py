"""Hindsight prompts with the episode's outcome, for HCAPO's second scoring of a success."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from scpo.generation import Ids

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
    """Token ids of an episode's prompts with the hindsight before each.

    What a response answers to stays what it follows. A prompt that was cut in the rollout loses the
    same end here.
    """
    text = template.format(final_observation=final_observation, success="yes" if won else "no")
    head = len(encode([text])[0])
    encoded = encode([f"{text}\n{prompt}" for prompt in prompts])
    return [
        tuple(ids) if len(ids) <= head + max_prompt_tokens else _cut(ids, head, max_prompt_tokens) for ids in encoded
    ]


def _cut(ids: Sequence[int], head: int, most: int) -> Ids:
    return (*ids[:head], *ids[-most:])
