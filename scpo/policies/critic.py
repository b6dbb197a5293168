"""The value model of PPO: the policy's base with a scalar head, its own optimiser and a clipped value loss."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from scpo.generation import Generation
from scpo.policies.batches import MicroBatch, micro_batches, mini_batches, response_mask, token_pairs
from scpo.policies.descent import descend
from scpo.policies.language_policy import LocalPolicy, positions

if TYPE_CHECKING:
    from scpo.advantages.gae import CriticSettings
    from scpo.schema import TrainerSettings

FloatArray = NDArray[np.float32]


class ValueModel(torch.nn.Module):
    """Value before each response token, in the unit of the rewards.

    The head starts at zero, so that the first values are 0 and nothing about them is random (paper silent).

    Args:
        policy: Gives the base, which is copied, and the padding.
    """

    def __init__(self, policy: LocalPolicy) -> None:
        super().__init__()
        self.base = copy.deepcopy(policy.model.base_model)
        self.head = torch.nn.Linear(policy.model.config.hidden_size, 1, device=policy.device)
        torch.nn.init.zeros_(self.head.weight)
        torch.nn.init.zeros_(self.head.bias)
        self._joined = policy.joined

    def forward(self, part: MicroBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Values of the pairs' response tokens and the mask of those, both (pairs, L), L the longest response."""
        ids, mask, response_mask = self._joined(part.prompts, part.responses)
        output = self.base(input_ids=ids, attention_mask=mask, position_ids=positions(mask))
        before = output.last_hidden_state[:, -response_mask.shape[1] - 1 : -1]
        return self.head(before.float())[..., 0], response_mask


@dataclass
class Critic:
    """A value model with its optimiser and settings."""

    model: ValueModel
    optimizer: torch.optim.Optimizer
    value_clip: float


@dataclass(frozen=True)
class Targets:
    """What a critic said before its update and what it should have said, both (N, L), L the longest response."""

    value_NL: FloatArray
    return_NL: FloatArray


def make_critic(policy: LocalPolicy, config: CriticSettings, weight_decay: float) -> Critic:
    """A critic with the policy's present weights, learning at its own constant rate."""
    model = ValueModel(policy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, weight_decay=weight_decay, fused=True)
    return Critic(model, optimizer, config.value_clip)


@torch.no_grad()
def values(critic: Critic, generations: Sequence[Generation], batch_rows: int) -> FloatArray:
    """Value before each response token, shape (N, L); 0 outside the responses."""
    critic.model.eval()
    mask_NL = response_mask(generations)
    value_NL = np.zeros(mask_NL.shape, dtype=np.float32)
    for part in micro_batches(token_pairs(generations), range(len(generations)), batch_rows):
        value, _ = critic.model(part)
        value_NL[part.rows, : value.shape[1]] = value.cpu().numpy()[part.pair_of]
    return np.where(mask_NL, value_NL, np.float32(0))


def value_loss(
    value_NL: torch.Tensor, old_NL: torch.Tensor, return_NL: torch.Tensor, mask_NL: torch.Tensor, clip: float
) -> torch.Tensor:
    """Sum over tokens of 0.5 max((V - R)², (clip(V, V_old ± clip) - R)²) (arXiv 1707.06347's code; verl's factor)."""
    clipped_NL = torch.minimum(torch.maximum(value_NL, old_NL - clip), old_NL + clip)
    loss_NL = torch.maximum((value_NL - return_NL).square(), (clipped_NL - return_NL).square())
    return 0.5 * (loss_NL * mask_NL).sum()


def update_critic(
    critic: Critic,
    generations: Sequence[Generation],
    targets: Targets,
    config: TrainerSettings,
    *,
    rng: np.random.Generator,
) -> dict[str, float]:
    """Regress the values to ``targets`` over ``config.epochs`` passes; token means as ``critic/*`` metrics.

    ``critic/value`` and ``critic/return`` are means before the update, ``critic/loss`` is one over its mini-batches.
    """
    critic.model.eval()
    sums: dict[str, float] = defaultdict(float)
    steps = 0
    for _ in range(config.epochs):
        for rows in mini_batches(len(generations), config.mini_batch_rows, rng):
            critic.optimizer.zero_grad()
            sums["critic/loss"] += _accumulate(critic, generations, rows, targets, config)
            sums["critic/grad_norm"] += descend(critic.model, critic.optimizer, config.optimizer.gradient_clip)
            steps += 1
    mask_NL = response_mask(generations)
    means = {"critic/value": targets.value_NL[mask_NL].mean(), "critic/return": targets.return_NL[mask_NL].mean()}
    return {name: float(value) for name, value in means.items()} | {name: value / steps for name, value in sums.items()}


def _accumulate(
    critic: Critic,
    generations: Sequence[Generation],
    rows: NDArray[np.int64],
    targets: Targets,
    config: TrainerSettings,
) -> float:
    """Add the gradient of one mini-batch's token mean and return that."""
    tokens = sum(len(generations[row].response_ids) for row in rows)
    total = 0.0
    for part in micro_batches(token_pairs(generations), rows, config.micro_batch_rows):
        value, mask = critic.model(part)
        length, index = value.shape[1], torch.tensor(part.pair_of, device=value.device)
        old = torch.from_numpy(targets.value_NL[part.rows, :length]).to(value.device)
        target = torch.from_numpy(targets.return_NL[part.rows, :length]).to(value.device)
        loss = value_loss(value[index], old, target, mask[index], critic.value_clip) / tokens
        loss.backward()
        total += float(loss.detach())
    return total
