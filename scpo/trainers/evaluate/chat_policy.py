"""A chat endpoint as a policy: all prompts of a turn are asked at once, in threads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from scpo.agents.chat import ChatClient
from scpo.generation import Generation
from scpo.trainers.evaluate.play import BilledGeneration


class ChatPolicy:
    """See :class:`scpo.rollout.Policy`. The first uniform number of a row is its sampling seed, where there is one."""

    def __init__(self, client: ChatClient, max_response_tokens: int) -> None:
        self.client = client
        self.max_response_tokens = max_response_tokens
        self._threads = ThreadPoolExecutor(client.limits.concurrency, thread_name_prefix="chat")

    def generate(
        self, prompts: Sequence[str], temperature: float, uniforms_NL: NDArray[np.float64]
    ) -> list[Generation]:
        """One answer for each prompt; the first that fails for good stops the turn."""

        def ask(prompt: str, uniform: float) -> Generation:
            answer = self.client.complete(
                prompt,
                temperature=temperature,
                max_tokens=self.max_response_tokens,
                seed=int(uniform * 2**31),
            )
            return BilledGeneration(
                text=answer.text, prompt_ids=(), response_ids=(), logprobs=(), prompt_tokens=answer.prompt_tokens,
                response_tokens=answer.response_tokens, cost_usd=answer.cost_usd(self.client.model.prices),
            )  # fmt: skip

        return list(self._threads.map(ask, prompts, uniforms_NL[:, 0].tolist()))

    def close(self) -> None:
        """Drop what is queued and under way: nobody waits for an endpoint that does not end."""
        self.client.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
