"""Response of a policy to a prompt."""

from __future__ import annotations

from dataclasses import dataclass

Ids = tuple[int, ...] | bytes
"""Token ids of a prompt or a response; hashable and ordered."""


@dataclass(frozen=True)
class Generation:
    """Sampled response: text, token ids of prompt and response, log-probability of each token."""

    text: str
    prompt_ids: Ids
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    truncated: bool = False

    @property
    def tokens(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)
