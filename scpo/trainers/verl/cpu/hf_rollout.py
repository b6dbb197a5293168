"""The rollout engine ``hf`` for verl: Hugging Face generate in a Ray actor.

verl imports this module as ``actor_rollout_ref.model.external_lib`` in every process that looks up
an engine.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import ray
import torch
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.rollout import base
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, RolloutReplicaRegistry, TokenOutput

# Other engines import this module through verl's external_lib instead.
from scpo.trainers.verl import update_guard  # noqa: F401

NAME = "hf"
GATHER_S = 0.005
"""Requests that arrive within this time are sampled together."""


@dataclass(frozen=True)
class Request:
    """A prompt with its sampling parameters, and the future of its answer.

    Attributes:
        prompt: Token ids.
        sampling: verl's sampling parameters, such as ``temperature`` and ``max_tokens``.
        answer: Future that the call of ``generate`` awaits.
    """

    prompt: list[int]
    sampling: dict[str, Any]
    answer: asyncio.Future[TokenOutput]

    @property
    def temperature(self) -> float:
        return float(self.sampling.get("temperature", 1.0))


class HfServer:
    """A model that samples queued requests in batches; a Ray actor.

    Args:
        path: Folder or hub name of the model.
        end_id: Token that ends a response.
        pad_id: Token that fills shorter prompts on the left.
        max_tokens: Largest number of response tokens, for requests without a limit.
        rows: Largest number of requests that are sampled together.
    """

    def __init__(self, path: str, end_id: int, pad_id: int, max_tokens: int, rows: int) -> None:
        from transformers import AutoModelForCausalLM

        self.model = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="sdpa"
        ).eval()
        self.end_id, self.pad_id, self.max_tokens, self.rows = end_id, pad_id, max_tokens, rows
        self.version: int | None = None
        self.waiting: list[Request] = []
        self.worker: asyncio.Task[None] | None = None

    async def generate(
        self, prompt_ids: Iterable[int], sampling_params: dict[str, Any], request_id: str, **_: Any
    ) -> TokenOutput:
        """Sample one response; concurrent requests are sampled together."""
        answer: asyncio.Future[TokenOutput] = asyncio.get_running_loop().create_future()
        self.waiting.append(Request(list(prompt_ids), sampling_params, answer))
        if self.worker is None:
            self.worker = asyncio.create_task(self._work())
        return await answer

    async def _work(self) -> None:
        """Sample the waiting requests, batch by batch, until none is left."""
        while self.waiting:
            await asyncio.sleep(GATHER_S)
            # A batch has one temperature, because transformers' `generate` takes only one.
            temperature = self.waiting[0].temperature
            alike = [request for request in self.waiting if request.temperature == temperature]
            batch = alike[: self.rows]
            taken = set(map(id, batch))
            self.waiting = [request for request in self.waiting if id(request) not in taken]
            try:
                # In a thread, so that further requests can arrive meanwhile.
                outputs = await asyncio.to_thread(self._sample, batch, temperature)
            except Exception as error:  # noqa: BLE001 (the callers raise it; the queue goes on)
                for request in batch:
                    request.answer.set_exception(error)
                continue
            for request, output in zip(batch, outputs, strict=True):
                request.answer.set_result(output)

        # The next request starts a new worker.
        self.worker = None

    @torch.no_grad()
    def _sample(self, batch: list[Request], temperature: float) -> list[TokenOutput]:
        """Sample a response to each request; temperature 0 is greedy."""
        # Padded on the left, because generation continues from the last column of all rows.
        width = max(len(request.prompt) for request in batch)
        padded = []
        attended = []
        for request in batch:
            padding = width - len(request.prompt)
            padded.append([self.pad_id] * padding + request.prompt)
            attended.append([0] * padding + [1] * len(request.prompt))
        ids = torch.tensor(padded)
        mask = torch.tensor(attended)

        # Up to the largest limit; `_output` cuts the rows that have a smaller one.
        limits = [int(request.sampling.get("max_tokens", self.max_tokens)) for request in batch]
        how: dict[str, Any] = {"do_sample": False}
        if temperature:
            # top_k=0 and top_p=1: the model's own defaults would cut the distribution.
            how = {"do_sample": True, "temperature": temperature, "top_k": 0, "top_p": 1.0}
        output = self.model.generate(
            ids, attention_mask=mask, max_new_tokens=max(limits), output_logits=True,
            return_dict_in_generate=True,
            eos_token_id=self.end_id, pad_token_id=self.pad_id, **how,
        )  # fmt: skip

        # Log-probabilities at the sampling temperature, to which the update's ratio refers.
        logprob_NLV = torch.stack(output.logits, 1).div(temperature or 1.0).log_softmax(-1)
        token_NL = output.sequences[:, width:]
        logprob_NL = logprob_NLV.gather(-1, token_NL[..., None])[..., 0]
        rows = zip(token_NL.tolist(), logprob_NL.tolist(), limits, strict=True)
        return [self._output(*row) for row in rows]

    def _output(self, tokens: list[int], logprobs: list[float], limit: int) -> TokenOutput:
        """One response, up to and including its end token, or up to its limit."""
        end = tokens.index(self.end_id) + 1 if self.end_id in tokens else len(tokens)
        length = min(end, limit)
        version = dict.fromkeys(
            ("global_steps", "min_global_steps", "max_global_steps"), self.version
        )
        return TokenOutput(
            token_ids=tokens[:length],
            log_probs=logprobs[:length],
            stop_reason="completed",
            extra_fields=version,
        )

    async def load(self, state: dict[str, torch.Tensor], version: int | None) -> None:
        """Load the weights of the update.

        Raises:
            ValueError: A weight is not one of this model.
        """
        # Not strict, because tied weights arrive under one name only.
        unknown = self.model.load_state_dict(state, strict=False).unexpected_keys
        if unknown:
            raise ValueError(f"weights of another model arrived: {unknown[:3]}")
        self.version = version

    async def nothing(self, *_args: Any, **_options: Any) -> None:
        """Ignore a call that only other engines need."""

    sleep = wake_up = abort_all_requests = resume_generation = clear_kv_cache = start_profile = (
        stop_profile
    ) = nothing


class HfReplica(RolloutReplica):  # type: ignore[misc]  # verl is untyped
    """One server for each data-parallel rank."""

    async def launch_servers(self) -> None:
        # max_concurrency: every running episode waits in a call of its own.
        tokenizer = omega_conf_to_dataclass(self.model_config).tokenizer
        server = (
            ray.remote(HfServer)
            .options(name=_server_name(self.replica_rank), max_concurrency=1000)
            .remote(
                self.model_config.path,
                tokenizer.eos_token_id,
                tokenizer.pad_token_id,
                self.config.response_length,
                self.config.max_num_seqs,
            )
        )
        self.servers = [server]
        self._server_handle = server
        self._server_address = f"hf:{self.replica_rank}"


class HfAdapter(BaseRollout):  # type: ignore[misc]  # verl is untyped
    """Part of the update's process: sends the weights of its rank to the server of this rank."""

    async def resume(self, tags: list[str]) -> None:
        """Nothing was released."""

    async def release(self) -> None:
        """Nothing to release: the server has memory of its own."""

    async def update_weights(
        self, weights: Iterable[tuple[str, torch.Tensor]], global_steps: int | None = None, **_: Any
    ) -> None:
        # verl reuses the buffers that it yields.
        state = {name: tensor.detach().clone() for name, tensor in weights}
        server = ray.get_actor(_server_name(torch.distributed.get_rank()))
        await server.load.remote(state, global_steps)


def _server_name(rank: int) -> str:
    """Name of a server's Ray actor, by which the update finds it."""
    return f"hf_server_{rank}"


RolloutReplicaRegistry.register(NAME, lambda: HfReplica)
base._ROLLOUT_REGISTRY[(NAME, "async")] = f"{__name__}.HfAdapter"
