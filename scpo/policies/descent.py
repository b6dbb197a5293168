"""One step of an optimiser, of the policy or of its critic."""

from __future__ import annotations

import logging
import math

import torch

logger = logging.getLogger(__name__)


def descend(model: torch.nn.Module, optimizer: torch.optim.Optimizer, gradient_clip: float) -> float:
    """Clip the gradient that was accumulated, take one step and return the gradient's norm before the clipping.

    A gradient that is not finite is dropped, as in verl: one step along it would make every weight NaN.
    """
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), gradient_clip))
    if math.isfinite(norm):
        optimizer.step()
    else:
        logger.warning("the gradient's norm is %s: this mini-batch changes no weight", norm)
    return norm
