"""Update of the policy by advantages of rows or of tokens."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from scpo.generation import Generation, Ids
from scpo.policies.base import TokenStatistics, TrainedPolicy
from scpo.policies.batches import descend, micro_batches, mini_batches, token_pairs
from scpo.policies.loss import has_advantage, policy_loss

if TYPE_CHECKING:
    from scpo.schema.trainer import TrainerSettings


@dataclass(frozen=True)
class UpdateBatch:
    """Inputs of the update.

    Attributes:
        generations: One sampled response for each row.
        advantage: One for each row, shape (N,), or for each response token, shape (N, L) with L the
            longest response.
    """

    generations: Sequence[Generation]
    advantage: NDArray[np.float32]

    @cached_property
    def pairs(self) -> list[tuple[Ids, Ids]]:
        """Prompt and response of each row."""
        return token_pairs(self.generations)


def update(
    policy: TrainedPolicy,
    optimizer: torch.optim.Optimizer,
    batch: UpdateBatch,
    config: TrainerSettings,
    *,
    rng: np.random.Generator,
    reference: TrainedPolicy | None = None,
) -> dict[str, float]:
    """Run clipped PPO over ``config.epochs`` passes.

    Dropout is off: the ratio to the sampling policy must start at 1. With
    ``config.skip_updates_without_advantage``, mini-batches in which no row has an advantage are
    skipped: their gradient would come only from the entropy bonus and the KL term, and Adam would
    rescale it to nearly full size (ledger 55).

    Args:
        policy: The policy, changed in place.
        optimizer: Optimizer of the policy, changed in place.
        batch: Responses and advantages.
        config: Loss, mini-batch size in rows, epochs.
        rng: Shuffles the rows into mini-batches.
        reference: The initial policy, for the KL term; None without one.

    Returns:
        ``actor/loss`` and ``actor/grad_norm``, means over the optimizer steps, and the other
        statistics ``actor/*``, means over their response tokens; absent without an optimizer step.
        ``actor/updates``: number of optimizer steps; ``update/without_advantage``: of those on a
        mini-batch without an advantage; ``update/skipped``: number of skipped mini-batches.
    """
    policy.model.eval()
    sums: dict[str, float] = defaultdict(float)
    tokens = steps = blind = skipped = 0.0
    for _ in range(config.epochs):
        # Shuffled; verl takes the rows in the order in which it has balanced them (ledger 48).
        for rows in mini_batches(len(batch.generations), config.mini_batch_rows, rng):
            if not has_advantage(batch.advantage[rows]):
                if config.skip_updates_without_advantage:
                    skipped += 1
                    continue
                blind += 1
            optimizer.zero_grad()
            # The loss is a mean over the mini-batch's tokens, not of micro-batch means (ledger 47).
            count = sum(len(batch.generations[row].response_ids) for row in rows)
            for name, value in _accumulate(
                policy, batch, rows, config, tokens=count, reference=reference
            ):
                sums[name] += value
            sums["actor/grad_norm"] += descend(
                policy.model, optimizer, config.optimizer.gradient_clip
            )
            tokens, steps = tokens + count, steps + 1

    # These two have one value for each step; the other sums are over tokens.
    per_step = {"actor/grad_norm", "actor/loss"}
    means = {}
    for name, value in sorted(sums.items()):
        means[name] = value / (steps if name in per_step else tokens)
    counts = {"actor/updates": steps, "update/without_advantage": blind, "update/skipped": skipped}
    return means | counts


def _accumulate(
    policy: TrainedPolicy,
    batch: UpdateBatch,
    rows: NDArray[np.int64],
    config: TrainerSettings,
    *,
    tokens: int,
    reference: TrainedPolicy | None,
) -> Iterator[tuple[str, float]]:
    """Accumulate the gradient of a mini-batch over its micro-batches, and yield their metrics.

    Args:
        policy: The policy, whose gradient is accumulated.
        batch: Responses and advantages.
        rows: Rows of the mini-batch.
        config: Loss and micro-batch size.
        tokens: Number of response tokens of the mini-batch, the divisor of every micro-batch's
            loss. Micro-batches thus bound the memory and change the gradient only by rounding.
        reference: The initial policy, for the KL term; None without one.

    Yields:
        Name and value of each metric of each micro-batch.
    """
    for part in micro_batches(batch.pairs, rows, config.micro_batch_rows, policy.batch_tokens):
        statistics, mask = policy.statistics(part.prompts, part.responses, config.temperature)
        device, length = mask.device, mask.shape[1]
        # Equal pairs of prompt and response are scored once; `pair` maps each row to its pair.
        pair = torch.tensor(part.pair_of, device=device)
        reference_logprob_NL = None
        if reference is not None:
            with torch.no_grad():
                scored, _ = reference.statistics(part.prompts, part.responses, config.temperature)
            reference_logprob_NL = scored.logprob_NL[pair]
        old_logprob_NL = _old_logprobs([batch.generations[row] for row in part.rows], length)
        loss = policy_loss(
            TokenStatistics(statistics.logprob_NL[pair], statistics.entropy_NL[pair]),
            old_logprob_NL.to(device),
            _advantages(batch, part.rows, length).to(device),
            mask[pair],
            config.loss,
            tokens=tokens,
            reference_logprob_NL=reference_logprob_NL,
        )
        # Also frees the graph, so that only one micro-batch's activations are in memory.
        loss.total.backward()
        yield "actor/loss", float(loss.total.detach())
        yield "actor/clip_fraction", loss.clipped
        yield "actor/kl_old", loss.kl_old
        yield "actor/kl_reference", loss.kl_reference
        yield "actor/entropy", loss.entropy


def _advantages(batch: UpdateBatch, rows: Sequence[int], length: int) -> torch.Tensor:
    """Advantages of rows, shape (rows,), or of their tokens, shape (rows, length)."""
    advantage = torch.tensor(batch.advantage[rows])
    if advantage.ndim == 1:
        return advantage
    return advantage[:, :length]


def _old_logprobs(generations: Sequence[Generation], length: int) -> torch.Tensor:
    """Log-probabilities from the rollout, shape (rows, length), 0 after the end of a response.

    verl instead computes them again, with a forward pass of the old policy.
    """
    padded = []
    for generation in generations:
        padding = length - len(generation.logprobs)
        padded.append([*generation.logprobs, *[0.0] * padding])
    return torch.tensor(padded, dtype=torch.float32)
