"""PACE, the action side of BiPACE: local Q(s, a) - V(s) without a critic (arXiv 2606.25556).

No code was published, and the equations are known to us only through other publications. BiPACE
clusters states by the cosine distance of the actor's hidden states (eps 0.05 or 0.10); here any
identity of ``scpo.states`` finds the states.
"""

from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat

from scpo.advantages.anchors import StateSettings, state_groups
from scpo.advantages.estimator import Estimator
from scpo.advantages.groups import Float64Array, as_advantage, group_ids, moments
from scpo.advantages.grpo import episode_advantage
from scpo.states.identity import key_ids
from scpo.steps import FloatArray, StepBatch


class PaceSettings(StateSettings):
    """Settings of PACE.

    Attributes:
        omega: Weight of the step term.
        scale: Divisor of Q - V: ``none``, which leaves it in the unit of the rewards, or
            ``deviation``, the standard deviation of the state's returns, so that states whose
            returns spread little weigh as much as others (ours, ledger 59).
    """

    name: Literal["pace"]
    omega: NonNegativeFloat
    scale: Literal["none", "deviation"]


def pace(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: PaceSettings
) -> FloatArray:
    """A = A_E + ω (Q(s, a) - V(s)); with ``scale: deviation`` Q - V is divided by σ(s) + 1e-6.

    V and Q are the means of q = R + bonus over the visits of s, and over those with action a; σ is
    the standard deviation of q over the visits of s. The step term is 0 in a state whose σ is 0, as
    with one visit, or below ``std_floor``. A_E is GRPO's outcome term. Copies take part in all
    statistics. Unlike in GiGPO's A_S, all visits with the same action share one value: what
    followed them by chance is averaged out.

    Args:
        batch: The steps.
        step_return_N: R, discounted step returns.
        bonus_N: Added to the step returns; includes the penalty of invalid actions.
        config: The settings.

    Returns:
        ``advantage_N``, float32.
    """
    episode_N = episode_advantage(batch, config, config.normalisation)
    return as_advantage(episode_N + step_term(batch, step_return_N, bonus_N, config))


def step_term(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: PaceSettings
) -> Float64Array:
    """ω (Q - V), scaled; float64."""
    q_N = step_return_N.astype(np.float64) + bonus_N
    state_N = state_groups(batch, config)
    # Ids of pairs of state and action: the same action in another state is another pair.
    action_N = group_ids(state_N, key_ids(action.strip() for action in batch.action_N))
    at_state = moments(q_N, state_N)
    gain_N = moments(q_N, action_N).mean_G[action_N] - at_state.mean_G[state_N]
    if config.scale == "deviation":
        # 1e-6 also for flat states, which are set to 0 below.
        gain_N = gain_N / (at_state.std_G[state_N] + 1e-6)
    flat_N = at_state.flat(config.std_floor)[state_N]
    return config.omega * np.where(flat_N, 0.0, gain_N)


PACE = Estimator(
    PaceSettings,
    pace,
    requires=frozenset({"step_bonus"}),
    labels={"pace": "PACE"},
    step_term=step_term,
)
