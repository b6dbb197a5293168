"""ECPO: step credit of actions, shrunk where evidence is scarce (arXiv 2606.05885).

No code was published. The equations are known to us only from published summaries of the paper; tau
and the normalisation are ours.
"""

from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat

from scpo.advantages.anchors import StateSettings, state_groups
from scpo.advantages.estimator import Estimator
from scpo.advantages.groups import Float64Array, as_advantage, group_ids, moments
from scpo.advantages.grpo import episode_advantage
from scpo.states.identity import key_ids
from scpo.steps import FloatArray, StepBatch


class EcpoSettings(StateSettings):
    """Settings of ECPO.

    Attributes:
        omega: Weight of the step term.
        kappa: Pseudo-counts: an action's mean return is averaged with ``kappa`` visits at the
            state's mean; 0: no shrinkage.
        tau: Scale of the trust in a state by its number of visits: tanh(n_s / τ) is 0.76 at τ
            visits. The paper's value is not known to us (ledger 58).
    """

    name: Literal["ecpo"]
    omega: NonNegativeFloat
    kappa: NonNegativeFloat
    tau: PositiveFloat


def ecpo(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: EcpoSettings
) -> FloatArray:
    """A = A_E + ω ρ(s) A_act(s, a).

    With q = R + bonus, n and q̄ the number and mean of the visits of s with action a, n_s and μ
    those of all visits of s:

    - μ~(s, a) = (n q̄ + κ μ) / (n + κ), and A_act normalises μ~ among the rows that leave s, with
      the method's ``normalisation``;
    - ρ(s) = tanh(n_s / τ) B / (B + W + 1e-6), with B = Σ_a n (q̄ - μ)² / n_s between actions and
      W = Σ (q - q̄)² / n_s within them.

    A_E is GRPO's outcome term. Actions are compared by their text without surrounding white space.

    Args:
        batch: The steps; copies take part in all counts.
        step_return_N: R, discounted step returns.
        bonus_N: Added to the step returns; includes the penalty of invalid actions.
        config: The settings.

    Returns:
        ``advantage_N``, float32.
    """
    episode_N = episode_advantage(batch, config, config.normalisation)
    return as_advantage(episode_N + step_term(batch, step_return_N, bonus_N, config))


def step_term(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: EcpoSettings
) -> Float64Array:
    """ω ρ(s) A_act, float64."""
    q_N = step_return_N.astype(np.float64) + bonus_N
    state_N = state_groups(batch, config)
    action_N = group_ids(state_N, key_ids(action.strip() for action in batch.action_N))

    # Means of q by state and by action; the mean of an action is shrunk towards that of its state.
    at_state = moments(q_N, state_N)
    with_action = moments(q_N, action_N)
    mean_N = at_state.mean_G[state_N]
    action_mean_N = with_action.mean_G[action_N]
    count_N = with_action.count_G[action_N]
    shrunk_N = (count_N * action_mean_N + config.kappa * mean_N) / (count_N + config.kappa)

    # Means over the rows of a state: an action counts n times, which is the n / n_s of B and W.
    between_N = moments((action_mean_N - mean_N) ** 2, state_N).mean_G[state_N]
    within_N = moments((q_N - action_mean_N) ** 2, state_N).mean_G[state_N]
    evidence_N = np.tanh(at_state.count_G[state_N] / config.tau)
    # 1e-6: a state whose returns are all equal has B = W = 0, and gets 0 instead of NaN.
    trust_N = evidence_N * between_N / (between_N + within_N + 1e-6)
    step_N: Float64Array = config.omega * trust_N * config.normalised(shrunk_N, state_N)
    return step_N


ECPO = Estimator(
    EcpoSettings,
    ecpo,
    requires=frozenset({"step_bonus"}),
    labels={"ecpo": "ECPO"},
    step_term=step_term,
)
