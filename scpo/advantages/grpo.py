"""GRPO: group-relative advantage of the episode's outcome (arXiv 2402.03300, section 4.1.2)."""

from typing import Literal

import numpy as np

from scpo.advantages.estimator import Estimator, GroupSettings
from scpo.advantages.groups import (
    EPSILON,
    Float64Array,
    Normalisation,
    as_advantage,
    group_ids,
    normalise,
)
from scpo.advantages.outcomes import row_scores, score_moments
from scpo.steps import FloatArray, StepBatch


class GrpoSettings(GroupSettings):
    """Settings of GRPO, and of DAPO, which differs in sampling and clip range only."""

    name: Literal["grpo"]
    normalisation: Normalisation


def grpo(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: GrpoSettings
) -> FloatArray:
    """A = (s - mean(s)) / (std(s) + 1e-6) over the group; ``mean_norm`` leaves the division out.

    s = episode return - penalty * [invalid] is the row's score. Step returns and bonus are not
    read. Equal to verl-agent's ``compute_grpo_outcome_advantage``; with statistics over
    trajectories only if all steps are valid (ledger 30).

    Args:
        batch: The steps.
        step_return_N: Not read.
        bonus_N: Not read, so GRPO cannot host SCPO.
        config: The settings.

    Returns:
        ``advantage_N``, float32: within a trajectory it differs only by the penalty.
    """
    return as_advantage(episode_advantage(batch, config, config.normalisation))


def episode_advantage(
    batch: StepBatch, config: GroupSettings, normalisation: Normalisation
) -> Float64Array:
    """The outcome term A_E that most group-based estimators share.

    A group of one value counts as having mean 0 and deviation 1, as in verl-agent, so its advantage
    is the score itself (up to the 1e-6).

    Args:
        batch: The steps.
        config: ``statistics``, ``std_floor`` and the penalty of invalid actions.
        normalisation: The mode; an argument, because RLOO, HCAPO and ProxMO fix it.

    Returns:
        float64, one for each row. Never shaped: SCPO's credit must not turn a failure into a
        success (paper, section 3.5).
    """
    score_N = row_scores(batch, config)
    id_N = group_ids(batch.group_N)
    stats = score_moments(batch, score_N, id_N, config)
    normalised_N = normalise(score_N, id_N, stats, normalisation, config.std_floor)
    # `normalise` gives 0 to a group of one, which is right for states but not for outcomes.
    single_N = stats.count_G[id_N] == 1
    scale = 1 + EPSILON if normalisation == "mean_std_norm" else 1.0
    return np.where(single_N, score_N / scale, normalised_N)


GRPO = Estimator(GrpoSettings, grpo, requires=frozenset(), labels={"grpo": "GRPO", "dapo": "DAPO"})
