"""Skip or count mini-batches without an advantage in verl's update.

verl makes an optimizer step on every mini-batch. If no row has an advantage, only the entropy bonus
and the KL term have a gradient, which Adam rescales to an update of nearly full size. verl imports
this module when it reads the model's configuration (``actor_rollout_ref.model.external_lib``), in
the workers before their engine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

VARIABLE = "SCPO_SKIP_UPDATES_WITHOUT_ADVANTAGE"
"""Environment variable of a run's processes: 1 skips such updates, 0 makes and counts them."""
MODULE = __name__
BLIND = "update_without_advantage"
"""Metric of verl's update: 1 for a mini-batch without an advantage, 0 for another.

verl reduces a step's values to the minimum if the name contains "min", to the maximum if it
contains "max", else to the mean. ``update_counts`` needs the mean, so the name contains neither.
"""


def environment(skip: bool) -> dict[str, str]:
    """Environment variables for every process of an attempt."""
    return {VARIABLE: str(int(skip))}


def largest_advantage(data: Any, group: Any) -> float:
    """Largest absolute advantage of a mini-batch over all ranks of ``group``; 0 without values.

    Args:
        data: This rank's part, with ``advantages`` as padded rows or as a jagged tensor.
        group: The data-parallel process group; None on one rank.
    """
    import torch

    advantages = data["advantages"]
    values = advantages.values() if advantages.is_nested else advantages
    largest = (
        values.abs().max().float() if values.numel() else torch.zeros((), device=values.device)
    )
    if group is not None:
        torch.distributed.all_reduce(largest, op=torch.distributed.ReduceOp.MAX, group=group)
    return float(largest)


def train_batch(engine: Any, data: Any, loss_function: Callable[..., Any], *, skip: bool) -> Any:
    """Run a mini-batch of the policy's update like verl's engine, but guard the optimizer step.

    A skipped mini-batch still has its forward and backward pass, so that every rank calls the same
    collectives and every mini-batch has the same metrics. Its gradient norm is logged as 0.

    Args:
        engine: verl's policy engine of this rank.
        data: This rank's part of the mini-batch.
        loss_function: verl's loss.
        skip: Skip the optimizer step without an advantage. False: make it, and only count it.

    Returns:
        The outputs of ``forward_backward_batch``, with the metrics of the step.
    """
    from scpo.policies.loss import NO_ADVANTAGE

    largest = largest_advantage(data, engine.get_data_parallel_group())
    without_advantage = largest <= NO_ADVANTAGE
    engine.optimizer_zero_grad()
    outputs = engine.forward_backward_batch(data, loss_function, forward_only=False)
    if without_advantage and skip:
        # Drop the gradient of the entropy bonus and the KL term: it must not enter the next step.
        engine.optimizer_zero_grad()
        grad_norm: Any = 0.0
    else:
        grad_norm = engine.optimizer_step()
    if engine.is_mp_src_rank_with_outputs():
        outputs["metrics"]["grad_norm"] = grad_norm
        # A list, like verl's own metrics of micro-batches.
        outputs["metrics"][BLIND] = [float(without_advantage)]
    return outputs


def update_counts(share_blind: float, mini_batches: int, *, skip: bool) -> dict[str, float]:
    """Metrics as with ``trainer=local``, from verl's mean of ``BLIND``.

    Args:
        share_blind: Mean of ``BLIND`` over the step's mini-batches.
        mini_batches: Number of mini-batches of the step.
        skip: Whether updates without an advantage were skipped.

    Returns:
        ``actor/updates``, ``update/without_advantage`` (those made) and ``update/skipped``.
    """
    # A mean in floating point is inexact, so the product is rounded to a whole count.
    count = float(round(share_blind * mini_batches))
    made, skipped = (0.0, count) if skip else (count, 0.0)
    return {
        "actor/updates": mini_batches - skipped,
        "update/without_advantage": made,
        "update/skipped": skipped,
    }


def guard_updates() -> None:
    """Replace ``train_batch`` of verl's policy engine; the critic's subclass keeps verl's.

    The critic learns from every mini-batch, since its targets differ from its values even where no
    row has an advantage.
    """
    from verl.workers.engine.fsdp.transformer_impl import (
        FSDPEngineWithLMHead,
        FSDPEngineWithValueHead,
    )

    skip = os.environ[VARIABLE] == "1"
    critics_own = FSDPEngineWithValueHead.train_batch

    def guarded(self: Any, data: Any, loss_function: Callable[..., Any]) -> Any:
        return train_batch(self, data, loss_function, skip=skip)

    # The critic's class derives from the policy's, and would inherit the replacement.
    FSDPEngineWithValueHead.train_batch = critics_own
    FSDPEngineWithLMHead.train_batch = guarded


WORKERS = "verl.workers.engine_workers"

# Patch only in verl's workers: these import WORKERS before this module, and the engine later.
# Processes that only play episodes import neither.
if VARIABLE in os.environ and WORKERS in sys.modules:
    guard_updates()
