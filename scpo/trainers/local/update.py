"""One policy update: mini-batches by rows, micro-batches for memory, equal rows computed once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from scpo.rollout import Generation
from scpo.trainers.local.loss import policy_loss
from scpo.trainers.local.policy import LocalPolicy

if TYPE_CHECKING:
    from scpo.schema import LocalTrainer

Key = tuple[tuple[int, ...], tuple[int, ...]]


@dataclass(frozen=True)
class UpdateBatch:
    """What the update reads: one sampled response for each row and its advantage."""

    generations: Sequence[Generation]
    advantage_N: NDArray[np.float32]


def update(
    policy: LocalPolicy,
    optimizer: torch.optim.Optimizer,
    batch: UpdateBatch,
    config: LocalTrainer,
    *,
    rng: np.random.Generator,
    reference: LocalPolicy | None = None,
) -> dict[str, float]:
    """Clipped PPO over ``config.epochs`` passes; returns ``actor/*`` metrics, means over response tokens.

    Rows are shuffled and cut into equal mini-batches of about ``mini_batch_rows`` (a short last one would take a full
    optimiser step on little evidence). Dropout is off: the ratio to the sampling policy must start at 1.
    """
    policy.model.eval()
    sums: dict[str, float] = defaultdict(float)
    tokens = steps = 0.0
    for _ in range(config.epochs):
        order = rng.permutation(len(batch.generations))
        for rows in np.array_split(order, max(1, round(len(order) / config.mini_batch_rows))):
            optimizer.zero_grad()
            count = sum(len(batch.generations[row].response_ids) for row in rows)
            for name, value in _accumulate(policy, batch, rows, config, tokens=count, reference=reference):
                sums[name] += value
            norm = torch.nn.utils.clip_grad_norm_(policy.model.parameters(), config.optimizer.gradient_clip)
            optimizer.step()
            sums["actor/grad_norm"] += float(norm)
            tokens, steps = tokens + count, steps + 1
    per_step = {"actor/grad_norm", "actor/loss"}
    means = {name: value / (steps if name in per_step else tokens) for name, value in sorted(sums.items())}
    return {**means, "actor/updates": steps}


def _accumulate(
    policy: LocalPolicy,
    batch: UpdateBatch,
    rows: NDArray[np.int64],
    config: LocalTrainer,
    *,
    tokens: int,
    reference: LocalPolicy | None,
) -> Iterator[tuple[str, float]]:
    """Add the gradient of one mini-batch, micro-batch by micro-batch, and yield its sums."""
    members: dict[Key, list[int]] = defaultdict(list)
    for row in rows:
        generation = batch.generations[row]
        members[generation.prompt_ids, generation.response_ids].append(int(row))
    keys = sorted(members, key=lambda key: (len(key[0]) + len(key[1]), key))
    for start in range(0, len(keys), config.micro_batch_rows):
        part = keys[start : start + config.micro_batch_rows]
        prompts, responses = [key[0] for key in part], [key[1] for key in part]
        statistics, mask = policy.statistics(prompts, responses, config.temperature)
        reference_logprob = None
        if reference is not None:
            with torch.no_grad():
                reference_logprob = reference.statistics(prompts, responses, config.temperature)[0].logprob_NL
        pairs = [(index, row) for index, key in enumerate(part) for row in members[key]]
        index = torch.tensor([index for index, _ in pairs], device=mask.device)
        loss = policy_loss(
            type(statistics)(statistics.logprob_NL[index], statistics.entropy_NL[index]),
            _old_logprobs([batch.generations[row] for _, row in pairs], mask.shape[1]).to(mask.device),
            torch.tensor(batch.advantage_N[[row for _, row in pairs]], device=mask.device),
            mask[index],
            config.loss,
            tokens=tokens,
            reference_logprob_NL=None if reference_logprob is None else reference_logprob[index],
        )
        loss.total.backward()
        yield "actor/loss", float(loss.total.detach())
        yield "actor/clip_fraction", loss.clipped
        yield "actor/kl_old", loss.kl_old
        yield "actor/kl_reference", loss.kl_reference
        yield "actor/entropy", loss.entropy


def _old_logprobs(generations: Sequence[Generation], length: int) -> torch.Tensor:
    old_NL = torch.zeros(len(generations), length)
    for row, generation in enumerate(generations):
        old_NL[row, : len(generation.logprobs)] = torch.tensor(generation.logprobs)
    return old_NL
