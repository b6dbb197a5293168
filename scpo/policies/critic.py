"""PPO's critic: the policy's value model with its own optimiser and a clipped value loss."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from scpo.generation import Generation
from scpo.policies.base import TrainedPolicy, ValueModel
from scpo.policies.batches import descend, micro_batches, mini_batches, response_mask, token_pairs
from scpo.steps import FloatArray

if TYPE_CHECKING:
    from scpo.advantages.gae import CriticSettings
    from scpo.schema.trainer import TrainerSettings


@dataclass
class Critic:
    """Value model with its optimiser and settings.

    Attributes:
        model: The value model, which shares no weights with the policy.
        optimizer: AdamW at the critic's learning rate.
        value_clip: Distance from the old value beyond which the loss no longer moves a value
            towards its target, in the unit of the returns.
        epochs: Passes over a training step's rows; None: as many as in the policy's update.
    """

    model: ValueModel
    optimizer: torch.optim.Optimizer
    value_clip: float
    epochs: int | None


@dataclass(frozen=True)
class Targets:
    """Old values and regression targets of the critic, both (N, L), L the longest response.

    Attributes:
        value_NL: Values before the update, the centre of the clip range.
        return_NL: Advantages plus old values: GAE's estimate of the return.
    """

    value_NL: FloatArray
    return_NL: FloatArray


def make_critic(policy: TrainedPolicy, config: CriticSettings, weight_decay: float) -> Critic:
    """Critic with a constant learning rate of its own, and the policy's ``weight_decay``."""
    model = policy.value_model()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=config.learning_rate, weight_decay=weight_decay, fused=True
    )
    return Critic(model, optimizer, config.value_clip, config.epochs)


@torch.no_grad()
def values(critic: Critic, generations: Sequence[Generation], batch_rows: int) -> FloatArray:
    """Value before each response token, shape (N, L); 0 outside the responses.

    ``batch_rows``: largest number of distinct (prompt, response) pairs of a forward pass.
    """
    critic.model.eval()
    mask_NL = response_mask(generations)
    value_NL = np.zeros(mask_NL.shape, dtype=np.float32)
    for part in micro_batches(token_pairs(generations), range(len(generations)), batch_rows):
        value, _ = critic.model(part.prompts, part.responses)
        value_NL[part.rows, : value.shape[1]] = value.cpu().numpy()[part.pair_of]
    return np.where(mask_NL, value_NL, np.float32(0))


def value_loss(
    value_NL: torch.Tensor,
    old_NL: torch.Tensor,
    return_NL: torch.Tensor,
    mask_NL: torch.Tensor,
    clip: float,
) -> torch.Tensor:
    """Sum over tokens of 0.5 max((V - R)², (clip(V, V_old ± clip) - R)²).

    As in the code of arXiv 1707.06347, with verl's factor 0.5. A value that has moved further than
    ``clip`` towards its target has no gradient; a value that has moved away from it has the
    gradient of the unclipped loss.

    Args:
        value_NL: V, the values.
        old_NL: V_old, the values before the update.
        return_NL: R, the targets.
        mask_NL: 1 on response tokens, 0 elsewhere.
        clip: Half the width of the clip range, in the unit of the returns.
    """
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
    """Regress the values to ``targets``.

    Returns:
        ``critic/value`` and ``critic/return``, means over the tokens before the update;
        ``critic/loss`` and ``critic/grad_norm``, means over the mini-batches of the update.
    """
    # No dropout, as in `values`: old and new values must differ only by the change of the weights.
    critic.model.eval()
    sums: dict[str, float] = defaultdict(float)
    steps = 0
    for _ in range(critic.epochs or config.epochs):
        # Rows with an advantage of 0 are kept, since their values may still be wrong.
        for rows in mini_batches(len(generations), config.mini_batch_rows, rng):
            critic.optimizer.zero_grad()
            sums["critic/loss"] += _accumulate(critic, generations, rows, targets, config)
            sums["critic/grad_norm"] += descend(
                critic.model, critic.optimizer, config.optimizer.gradient_clip
            )
            steps += 1

    mask_NL = response_mask(generations)
    metrics = {
        "critic/value": float(targets.value_NL[mask_NL].mean()),
        "critic/return": float(targets.return_NL[mask_NL].mean()),
    }
    for name, total in sums.items():
        metrics[name] = total / steps
    return metrics


def _accumulate(
    critic: Critic,
    generations: Sequence[Generation],
    rows: NDArray[np.int64],
    targets: Targets,
    config: TrainerSettings,
) -> float:
    """Accumulate the gradient of the loss of one mini-batch; returns the loss, a token mean."""
    tokens = sum(len(generations[row].response_ids) for row in rows)
    total = 0.0
    for part in micro_batches(token_pairs(generations), rows, config.micro_batch_rows):
        value, mask = critic.model(part.prompts, part.responses)
        length = value.shape[1]
        index = torch.tensor(part.pair_of, device=value.device)
        old = torch.from_numpy(targets.value_NL[part.rows, :length]).to(value.device)
        target = torch.from_numpy(targets.return_NL[part.rows, :length]).to(value.device)
        # The mean is over the mini-batch's tokens, however they are cut into micro-batches.
        loss = value_loss(value[index], old, target, mask[index], critic.value_clip) / tokens
        loss.backward()
        total += float(loss.detach())
    return total
