"""RLOO: each score against the mean of the others in its group (arXiv 2402.14740, section 3.3)."""

from typing import Literal

import numpy as np

from scpo.advantages.estimator import Estimator, GroupSettings
from scpo.advantages.groups import as_advantage, group_ids
from scpo.advantages.grpo import episode_advantage
from scpo.advantages.outcomes import row_scores, score_moments
from scpo.steps import FloatArray, StepBatch


class RlooSettings(GroupSettings):
    """Settings of RLOO; it always subtracts the mean and never divides."""

    name: Literal["rloo"]


def rloo(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: RlooSettings
) -> FloatArray:
    """A_i = s_i - (Σ_{j≠i} s_j) / (n - 1) = n / (n - 1) * (s_i - mean(s)) over a group's n values.

    s = episode return - penalty * [invalid], in the unit of the rewards. In the paper the n values
    are the responses to one prompt; in verl-agent they are the *step rows* of the group, so that a
    row is also compared with the other rows of its own trajectory (``statistics: rows``). A
    group of one value keeps its score. Step returns and bonus are not read. Equal to verl-agent's
    ``compute_rloo_outcome_advantage``; with statistics over trajectories only if all steps are
    valid (ledger 30).

    Args:
        batch: The steps.
        step_return_N: Not read.
        bonus_N: Not read.
        config: The settings.

    Returns:
        ``advantage_N``, float32.
    """
    id_N = group_ids(batch.group_N)
    count_N = score_moments(batch, row_scores(batch, config), id_N, config).count_G[id_N]
    # n / (n - 1); 1 for a group of one, whose advantage is already its score.
    factor_N = count_N / np.maximum(count_N - 1, 1)
    return as_advantage(episode_advantage(batch, config, "mean_norm") * factor_N)


RLOO = Estimator(RlooSettings, rloo, requires=frozenset(), labels={"rloo": "RLOO"})
