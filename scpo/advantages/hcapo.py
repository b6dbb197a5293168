"""HCAPO: hindsight credit from scoring responses given the outcome (arXiv 2603.08754)."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat

from scpo.advantages.estimator import Estimator, GroupSettings, measured
from scpo.advantages.groups import Float64Array, as_advantage, group_ids, moments, normalise
from scpo.advantages.grpo import episode_advantage
from scpo.steps import FloatArray, StepBatch


class HcapoSettings(GroupSettings):
    """Settings of HCAPO.

    Attributes:
        omega: Weight of the step term.
        temperature: Divides the mean token log-probability of a response, in nats. The larger, the
            closer p of a trajectory's steps and the fewer clipped ratios; 5 in the paper.
        ratio_low: Lower clip of the hindsight ratio ρ.
        ratio_high: Upper clip of ρ.
        smoothing: Weight of the next step's hindsight value; the paper's option is 0.5.
        hindsight_prompt: Text that the trainer puts before a step's prompt, with both fields filled
            in, when it scores the response again. The paper's text is unpublished (ledger 17).
    """

    name: Literal["hcapo"]
    omega: NonNegativeFloat
    temperature: PositiveFloat
    ratio_low: Annotated[float, Field(gt=0, le=1)]
    ratio_high: Annotated[float, Field(ge=1)]
    smoothing: Annotated[float, Field(ge=0, lt=1)]
    hindsight_prompt: Annotated[str, Field(pattern=r"\{final_observation\}(.|\n)*\{success\}")]


def hcapo(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: HcapoSettings
) -> FloatArray:
    """A = z(s) + ω z(Q), where a negative z(Q) in a success counts as 0.

    z(x) = (x - mean) / (std + 1e-6). For the row's score s, mean and std are those of the group's
    trajectories or rows, as ``statistics`` selects; for the step's hindsight value Q, those of all
    rows of the group, failures included. No code was published.

    Args:
        batch: The steps, with ``hindsight_logprob_N`` of the successes.
        step_return_N: Not read.
        bonus_N: Not read.
        config: The settings.

    Returns:
        ``advantage_N``, float32.

    Raises:
        StepBatchError: A step of a success has no finite ``hindsight_logprob_N``.
    """
    q_N = hindsight_values(batch, config)
    id_N = group_ids(batch.group_N)
    step_N = normalise(q_N, id_N, moments(q_N, id_N), "mean_std_norm", config.std_floor)
    # In a success no step is punished.
    step_N = np.where(batch.success_N, np.maximum(step_N, 0.0), step_N)
    episode_N = episode_advantage(batch, config, "mean_std_norm")
    return as_advantage(episode_N + config.omega * step_N)


def hindsight_values(batch: StepBatch, config: HcapoSettings) -> Float64Array:
    """Q_t = ρ_t γ^(T-1-t) * episode return in successes, 0 in failures, in the unit of the rewards.

    T is the trajectory's number of steps. ``smoothing`` w > 0: (1 - w) Q_t + w Q_{t+1}. The paper
    does not define Q_{t+1} for the last step, which keeps its own Q (ledger 17): 0 in its place
    would lower the step that reached the success.
    """
    line = batch.timeline
    discount_N = config.gamma ** (line.length_N - 1 - line.step_N)
    value_N = hindsight_ratios(batch, config) * discount_N * batch.episode_return_N
    q_N = np.where(batch.success_N, value_N, 0.0)
    next_N = line.neighbours(1)
    next_q_N = np.where(next_N >= 0, q_N[next_N], q_N)
    return (1 - config.smoothing) * q_N + config.smoothing * next_q_N


def hindsight_ratios(batch: StepBatch, config: HcapoSettings) -> Float64Array:
    """ρ = clip(p / mean of p over the trajectory's steps, low, high).

    p = exp(hindsight log-prob / temperature). The log-probability is the mean over the response's
    tokens, in nats. ρ is 1 in failures, which are not scored again.
    """
    logprob_N = measured(
        batch, "hindsight_logprob_N", batch.success_N, "estimator 'hcapo' in a success"
    )
    # A failure's log-probability is NaN; 0 makes its p, and so its ratio, 1.
    p_N = np.exp(np.where(batch.success_N, logprob_N, 0.0) / config.temperature)
    # Copies are left out: they would count their step twice in the mean.
    rows = np.flatnonzero(batch.original_N)
    slot_N = batch.timeline.slot_N
    mean_N = moments(p_N[rows], slot_N[rows]).mean_G[slot_N]
    return np.clip(p_N / mean_N, config.ratio_low, config.ratio_high)


HCAPO = Estimator(
    HcapoSettings, hcapo, requires=frozenset({"hindsight_logprob"}), labels={"hcapo": "HCAPO"}
)
