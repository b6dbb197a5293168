"""GAGPO: generalised advantage estimation with a group's mean returns as values (arXiv 2605.13217).

No code was published, and the equations are known to us only through other papers: the form is
ours.
"""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from scpo.advantages.anchors import StateSettings, state_groups
from scpo.advantages.estimator import Estimator
from scpo.advantages.groups import Float64Array, as_advantage, group_ids, moments
from scpo.steps import FloatArray, StepBatch


class GagpoSettings(StateSettings):
    """Settings of GAGPO.

    Attributes:
        gae_lambda: With 0, A_t is the one-step difference δ_t; with 1 and without a bonus, it is
            R_t - V(s_t) before it is normalised. The paper's value is not known to us (ledger 45).
    """

    name: Literal["gagpo"]
    gae_lambda: Annotated[float, Field(ge=0, le=1)]


def gagpo(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: GagpoSettings
) -> FloatArray:
    """A_t = δ_t + γλ A_{t+1}, normalised over the rows of the group; no outcome term.

    δ_t = r_t + bonus + γ V(s_{t+1}) - V(s_t), where V(s) is the mean discounted return of the
    group's visits of s and 0 after a trajectory's end. The bonus, with the penalty of an invalid
    action in it, is part of the step's reward: it also reaches the steps before.

    Args:
        batch: The steps; copies take part in V and in the normalisation.
        step_return_N: Unshaped discounted returns, of which V is the mean.
        bonus_N: Added to the rewards.
        config: The settings.

    Returns:
        ``advantage_N``, float32.
    """
    return as_advantage(step_term(batch, step_return_N, bonus_N, config))


def step_term(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: GagpoSettings
) -> Float64Array:
    """Return the whole advantage: it has no part that is equal in all steps of a trajectory."""
    advantage_N = accumulated(batch, step_return_N, bonus_N, config)
    return config.normalised(advantage_N, group_ids(batch.group_N))


def accumulated(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: GagpoSettings
) -> Float64Array:
    """A_t before it is normalised, in the unit of the rewards; a copy has its original's."""
    line = batch.timeline
    state_N = state_groups(batch, config)
    # Without the bonus: V is the return that the environment pays, and credit comes on top of it.
    value_N = moments(step_return_N, state_N).mean_G[state_N]
    next_N = line.neighbours(1)
    next_value_N = np.where(next_N >= 0, value_N[next_N], 0.0)
    delta_N = batch.reward_N + bonus_N.astype(np.float64) + config.gamma * next_value_N - value_N
    sum_KT = line.table(delta_N)
    # Backwards in time; cells after a trajectory's end are 0 and add nothing.
    for t in range(sum_KT.shape[1] - 2, -1, -1):
        sum_KT[:, t] += config.gamma * config.gae_lambda * sum_KT[:, t + 1]
    advantage_N: Float64Array = line.column(sum_KT)
    return advantage_N


GAGPO = Estimator(
    GagpoSettings,
    gagpo,
    requires=frozenset({"step_bonus"}),
    labels={"gagpo": "GAGPO"},
    step_term=step_term,
)
