"""Optional StepBatch columns for estimators that require them, computed by rescoring responses.

Each requirement has a function here and a line in ``MEASUREMENTS``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from scpo.advantages.estimator import OPTIONAL_FIELDS
from scpo.generation import Ids
from scpo.policies.base import TrainedPolicy
from scpo.policies.batches import micro_batches, token_pairs
from scpo.policies.encoding import is_success, with_hindsight
from scpo.rollout import Trajectory
from scpo.schema.method import required

if TYPE_CHECKING:
    from scpo.schema.run import RunConfig

FloatArray = NDArray[np.float32]


def measure(
    policy: TrainedPolicy, trajectories: Sequence[Trajectory], config: RunConfig
) -> dict[str, FloatArray]:
    """Compute the columns that ``config.method`` requires.

    Must be called before the update, while the policy is still the one that sampled.

    Args:
        policy: The policy that rescores the responses.
        trajectories: The episodes of the training batch.
        config: The run's configuration, with method, micro-batch size and sampling temperature.

    Returns:
        Columns of ``StepBatch`` by name, rows trajectory by trajectory in time order.
    """
    columns = {}
    for name in sorted(required(config.method) & MEASUREMENTS.keys()):
        columns[OPTIONAL_FIELDS[name]] = MEASUREMENTS[name](policy, trajectories, config)
    return columns


def entropy(
    policy: TrainedPolicy, trajectories: Sequence[Trajectory], config: RunConfig
) -> FloatArray:
    """Mean token entropy of each response in nats, under the sampling policy at its temperature."""
    pairs: list[tuple[Ids, Ids]] = []
    for trajectory in trajectories:
        pairs += token_pairs(trajectory.generations)
    _, entropy_N = _scored(policy, pairs, config)
    return entropy_N


def hindsight_logprob(
    policy: TrainedPolicy, trajectories: Sequence[Trajectory], config: RunConfig
) -> FloatArray:
    """Mean token log-probability (nats) of successful responses, with the outcome in the prompt.

    It is NaN in failures. The hindsight text precedes the prompt, so that the response still
    directly follows its question. A word-level tokenizer maps unknown words of the text to its
    unknown token.
    """
    # Only estimators with this setting require hindsight_logprob.
    template = config.trained.estimator.hindsight_prompt  # type: ignore[attr-defined]
    logprob_N = np.full(sum(map(len, trajectories)), np.nan, dtype=np.float32)
    rows: list[int] = []
    pairs: list[tuple[Ids, Ids]] = []
    start = 0
    for trajectory in trajectories:
        # Only successes: HCAPO's hindsight values of failures are 0 by definition.
        if is_success(trajectory.episode_return, config.env.success_threshold):
            rows += range(start, start + len(trajectory))
            prompts = with_hindsight(
                policy.encode,
                template,
                trajectory.prompts,
                final_observation=trajectory.results[-1].observation,
                won=trajectory.won,
                max_prompt_tokens=policy.max_prompt_tokens,
            )
            responses = [generation.response_ids for generation in trajectory.generations]
            pairs += zip(prompts, responses, strict=True)
        start += len(trajectory)

    if pairs:
        measured, _ = _scored(policy, pairs, config)
        logprob_N[rows] = measured
    return logprob_N


@torch.no_grad()
def _scored(
    policy: TrainedPolicy, pairs: Sequence[tuple[Ids, Ids]], config: RunConfig
) -> tuple[FloatArray, FloatArray]:
    """Mean token log-probability and mean token entropy of each pair's response, in nats.

    Args:
        policy: The model.
        pairs: Token ids of prompts and responses.
        config: Sets the micro-batch size and the sampling temperature of the probabilities.

    Returns:
        ``(logprob_N, entropy_N)``, float32.
    """
    # Turns dropout off, as in rollout and update.
    policy.model.eval()
    logprob_N = np.zeros(len(pairs), dtype=np.float32)
    entropy_N = np.zeros(len(pairs), dtype=np.float32)
    for part in micro_batches(
        pairs, range(len(pairs)), config.trainer.micro_batch_rows, policy.batch_tokens
    ):
        statistics, mask = policy.statistics(
            part.prompts, part.responses, config.trainer.temperature
        )
        tokens = mask.sum(1)
        # Equal pairs are scored once; `pair_of` maps each row to its pair.
        mean_logprob = (statistics.logprob_NL * mask).sum(1) / tokens
        mean_entropy = (statistics.entropy_NL * mask).sum(1) / tokens
        logprob_N[part.rows] = mean_logprob.cpu().numpy()[part.pair_of]
        entropy_N[part.rows] = mean_entropy.cpu().numpy()[part.pair_of]
    return logprob_N, entropy_N


MEASUREMENTS: dict[str, Callable[[TrainedPolicy, Sequence[Trajectory], RunConfig], FloatArray]] = {
    "entropy": entropy,
    "hindsight_logprob": hindsight_logprob,
}
