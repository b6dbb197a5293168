"""Policy loss of all methods: clipped PPO, k3 KL to the reference policy, entropy bonus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from scpo.policies.base import TokenStatistics

if TYPE_CHECKING:
    from scpo.schema.trainer import LossConfig


NO_ADVANTAGE = 1e-6
"""Largest advantage that counts as zero.

Advantages are of order 1; rounding leaves about 1e-7 where all returns of a group are equal.
``trainer.skip_updates_without_advantage`` and the health rule ``moves_without_credit`` use this
bound (ledger 55).
"""


def has_advantage(advantage: NDArray[np.float32]) -> bool:
    """Return True if any advantage, of rows (N,) or tokens (N, L), exceeds rounding errors."""
    return bool((np.abs(advantage) > NO_ADVANTAGE).any())


@dataclass(frozen=True)
class PolicyLoss:
    """Loss of a micro-batch; sums instead of means, so that micro-batches can be added up.

    Attributes:
        total: Differentiable; already divided by the mini-batch's tokens.
        clipped: Number of tokens whose ratio is outside the clip range.
        kl_old: Sum of log(old probability / new probability): the k1 estimate of the KL divergence
            from the policy that sampled, which may be negative.
        kl_reference: Sum of the k3 estimates against the reference policy; 0 without one.
        entropy: Sum of the entropies, in nats.
    """

    total: torch.Tensor
    clipped: float
    kl_old: float
    kl_reference: float
    entropy: float


def token_statistics(
    logits_NLV: torch.Tensor, token_NL: torch.Tensor, temperature: float
) -> TokenStatistics:
    """Log-probability of each response token and entropy of its distribution, both in nats.

    Both are computed at the sampling temperature.
    """
    logprob_NLV = (logits_NLV.float() / temperature).log_softmax(-1)
    logprob_NL = logprob_NLV.gather(-1, token_NL[..., None])[..., 0]
    return TokenStatistics(logprob_NL, -(logprob_NLV.exp() * logprob_NLV).sum(-1))


def k3(logprob_NL: torch.Tensor, reference_NL: torch.Tensor) -> torch.Tensor:
    """k3 estimate of KL(policy || reference), never negative.

    exp(d) - d - 1 with d = log pi_ref - log pi (J. Schulman, "Approximating KL divergence", 2020).
    Both clamps and their bounds are those of verl's ``low_var_kl``: one token that the reference
    finds impossible must not be the whole gradient.
    """
    difference = (reference_NL - logprob_NL).clamp(-20, 20)
    return (difference.exp() - difference - 1).clamp(-10, 10)


def policy_loss(
    statistics: TokenStatistics,
    old_logprob_NL: torch.Tensor,
    advantage: torch.Tensor,
    mask_NL: torch.Tensor,
    config: LossConfig,
    *,
    tokens: float,
    reference_logprob_NL: torch.Tensor | None = None,
) -> PolicyLoss:
    """Sum of the token losses divided by ``tokens``: the mini-batch's token mean.

    L = max(-A r, -A clip(r, 1 - clip_low, 1 + clip_high)), for A < 0 at most -A dual_clip, plus
    kl_coefficient * k3 minus entropy_coefficient * entropy; r = exp(logprob - old logprob) (arXiv
    1707.06347, dual clip: 1912.09729).

    Args:
        statistics: Of the policy in training, with gradient.
        old_logprob_NL: Of the policy that sampled the tokens.
        advantage: One for each row, shared by its tokens, shape (N,); or one for each token, shape
            (N, L).
        mask_NL: 1 on response tokens, 0 on padding.
        config: Clip ranges and coefficients.
        tokens: Divisor, so that micro-batches add up to the mini-batch's token mean.
        reference_logprob_NL: Of the reference policy; needed when ``config.kl_coefficient`` is
            above 0.
    """
    # As in verl: exp(20) is finite in float32, exp of an outlier would not be.
    log_ratio = (statistics.logprob_NL - old_logprob_NL).clamp(-20, 20)
    ratio = log_ratio.exp()

    # Clipped surrogate; the dual clip bounds the loss of tokens with a negative advantage, whose
    # ratio may otherwise grow without limit.
    advantage_NL = advantage if advantage.ndim == 2 else advantage[:, None]
    clipped_ratio = ratio.clamp(1 - config.clip_low, 1 + config.clip_high)
    loss_NL = torch.maximum(-advantage_NL * ratio, -advantage_NL * clipped_ratio)
    loss_NL = torch.where(
        advantage_NL < 0, torch.minimum(loss_NL, -advantage_NL * config.dual_clip), loss_NL
    )

    # A bonus: higher entropy lowers the loss.
    loss_NL = loss_NL - config.entropy_coefficient * statistics.entropy_NL
    kl = torch.zeros(())
    if reference_logprob_NL is not None:
        kl_NL = k3(statistics.logprob_NL, reference_logprob_NL)
        loss_NL = loss_NL + config.kl_coefficient * kl_NL
        kl = (kl_NL.detach() * mask_NL).sum()

    with torch.no_grad():
        clipped = ((ratio != clipped_ratio) * mask_NL).sum()
    return PolicyLoss(
        total=(loss_NL * mask_NL).sum() / tokens,
        clipped=float(clipped),
        kl_old=float((-log_ratio.detach() * mask_NL).sum()),
        kl_reference=float(kl),
        entropy=float((statistics.entropy_NL.detach() * mask_NL).sum()),
    )
