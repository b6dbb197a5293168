"""Response of a policy to a prompt."""

from __future__ import annotations

from dataclasses import dataclass

Ids = tuple[int, ...] | bytes
"""Token ids of a prompt or a response; hashable and ordered.

Bytes if a prompt's tokens are its characters (choice policies): a tuple of integers would take
eight times the memory.
"""


@dataclass(frozen=True)
class Generation:
    """Sampled response to one prompt.

    Attributes:
        text: The response as text, which the environment parses.
        prompt_ids: Tokens that the model read, after truncation.
        response_ids: Tokens that it sampled, the end token included.
        logprobs: Log-probability of each of ``response_ids`` at the sampling temperature.
        truncated: The prompt was too long and lost its beginning.
    """

    text: str
    prompt_ids: Ids
    response_ids: tuple[int, ...]
    logprobs: tuple[float, ...]
    truncated: bool = False

    @property
    def tokens(self) -> int:
        """Number of tokens of prompt and response."""
        return len(self.prompt_ids) + len(self.response_ids)
