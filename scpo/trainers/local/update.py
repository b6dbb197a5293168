"""One policy update: of the model that acts, on advantages of rows or of tokens."""

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
from scpo.policies.base import TrainedPolicy
from scpo.policies.batches import descend, micro_batches, mini_batches, token_pairs
from scpo.policies.loss import has_advantage, policy_loss

if TYPE_CHECKING:
    from scpo.schema.trainer import TrainerSettings


@dataclass(frozen=True)
class UpdateBatch:
    """Inputs of the update.

    Attributes:
        generations: One sampled response for each row.
        advantage: Per row, shape (N,), or per response token, shape (N, L) with L the longest
            response.
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
    ``config.skip_updates_without_advantage``, a mini-batch in which no row has an advantage changes
    neither policy nor optimizer: its gradient comes only from the entropy bonus and the KL term,
    and Adam rescales it to nearly full size (ledger 55).

    Args:
        policy: Changed in place.
        optimizer: The policy's, changed in place.
        batch: Responses and advantages.
        config: Loss, mini-batch size in rows, epochs.
        rng: Shuffles the rows into mini-batches.
        reference: The initial policy, for the KL term; None without one.

    Returns:
        ``actor/*``: means over the response tokens of the mini-batches with an update, absent if
        there was no such mini-batch. ``actor/updates``: optimizer steps;
        ``update/without_advantage``: those on a mini-batch without an advantage;
        ``update/skipped``: such mini-batches that were skipped.
    """
    policy.model.eval()
    sums: dict[str, float] = defaultdict(float)
    tokens = steps = blind = skipped = 0.0
    for _ in range(config.epochs):
        # Shuffled, where verl takes the rows as they were balanced (ledger 48).
        for rows in mini_batches(len(batch.generations), config.mini_batch_rows, rng):
            if not has_advantage(batch.advantage[rows]):
                if config.skip_updates_without_advantage:
                    skipped += 1
                    continue
                blind += 1
            optimizer.zero_grad()
            # The loss is a mean over the mini-batch's response tokens, however it is cut (ledger
            # 47).
            count = sum(len(batch.generations[row].response_ids) for row in rows)
            for name, value in _accumulate(
                policy, batch, rows, config, tokens=count, reference=reference
            ):
                sums[name] += value
            sums["actor/grad_norm"] += descend(
                policy.model, optimizer, config.optimizer.gradient_clip
            )
            tokens, steps = tokens + count, steps + 1

    # The loss of a mini-batch is a mean over tokens already; the other sums are over tokens.
    per_step = {"actor/grad_norm", "actor/loss"}
    means = {
        name: value / (steps if name in per_step else tokens)
        for name, value in sorted(sums.items())
    }
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
    """Add the gradient of one mini-batch, micro-batch by micro-batch, and yield its sums.

    Args:
        policy: Gets the gradient.
        batch: Responses and advantages.
        rows: Rows of the mini-batch.
        config: Loss and micro-batch size.
        tokens: Response tokens of the whole mini-batch, which every part divides by: micro-batches
            only bound memory and change no gradient but by rounding.
        reference: For the KL term.

    Yields:
        Name and value of each metric of each micro-batch.
    """
    for part in micro_batches(batch.pairs, rows, config.micro_batch_rows, policy.batch_tokens):
        statistics, mask = policy.statistics(part.prompts, part.responses, config.temperature)
        reference_logprob = None
        if reference is not None:
            with torch.no_grad():
                reference_logprob = reference.statistics(
                    part.prompts, part.responses, config.temperature
                )[0].logprob_NL
        # Equal pairs of prompt and response were scored once; each row now takes its pair's
        # numbers.
        index = torch.tensor(part.pair_of, device=mask.device)
        loss = policy_loss(
            type(statistics)(statistics.logprob_NL[index], statistics.entropy_NL[index]),
            _old_logprobs([batch.generations[row] for row in part.rows], mask.shape[1]).to(
                mask.device
            ),
            _advantages(batch, part.rows, mask.shape[1]).to(mask.device),
            mask[index],
            config.loss,
            tokens=tokens,
            reference_logprob_NL=None if reference_logprob is None else reference_logprob[index],
        )
        # Frees the graph: only one micro-batch's activations are held at a time.
        loss.total.backward()
        yield "actor/loss", float(loss.total.detach())
        yield "actor/clip_fraction", loss.clipped
        yield "actor/kl_old", loss.kl_old
        yield "actor/kl_reference", loss.kl_reference
        yield "actor/entropy", loss.entropy


def _advantages(batch: UpdateBatch, rows: Sequence[int], length: int) -> torch.Tensor:
    """Shape (rows,), or (rows, length) where every token has its own."""
    advantage = torch.tensor(batch.advantage[rows])
    if advantage.ndim == 1:
        return advantage
    return advantage[:, :length]


def _old_logprobs(generations: Sequence[Generation], length: int) -> torch.Tensor:
    """Log-probabilities at sampling, ``(rows, length)``, 0 after the end of a response.

    Those of the rollout itself: no pass over the old policy is made, as verl makes one.
    """
    rows = [
        generation.logprobs + (0.0,) * (length - len(generation.logprobs))
        for generation in generations
    ]
    return torch.tensor(rows, dtype=torch.float32)
