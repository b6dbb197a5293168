"""Outcome of a row: its score, and the discounted return of its step."""

import numpy as np

from scpo.advantages.estimator import EstimatorSettings, GroupSettings
from scpo.advantages.groups import Float64Array, Moments, moments
from scpo.steps import FloatArray, IntArray, StepBatch


def step_returns(batch: StepBatch, gamma: float) -> FloatArray:
    """Discounted return of each step: R_t = Σ_{k≥t} γ^{k-t} r_k.

    GiGPO, arXiv 2505.10978; section 3.1 of the paper. Time order comes from ``step_N``, not from
    the order of the batch; a copy gets its original's return. Sums are in float64, the result is
    float32, in the unit of the rewards.

    Args:
        batch: The steps; rewards of copies are not read.
        gamma: Discount factor in [0, 1].

    Returns:
        ``step_return_N``, float32, as verl-agent's ``compute_step_discounted_returns``: without
        penalty and without credit, which are added afterwards.
    """
    # Rewards, which one backward sweep over time turns into returns, for all trajectories at once.
    return_KT = batch.timeline.table(batch.reward_N.astype(np.float64))
    for t in range(return_KT.shape[1] - 2, -1, -1):
        return_KT[:, t] += gamma * return_KT[:, t + 1]
    step_return_N: FloatArray = batch.timeline.column(return_KT).astype(np.float32)
    return step_return_N


def row_scores(batch: StepBatch, config: EstimatorSettings) -> Float64Array:
    """Score of each row, s = episode return - penalty * [invalid], in the unit of the rewards.

    As in verl-agent, where the return is the reward of the row's last token, from which the penalty
    is subtracted: the penalty of a step lowers only that step's score, not its trajectory's return.
    """
    return batch.episode_return_N - config.invalid_penalty * ~batch.valid_N


def score_moments(
    batch: StepBatch, score_N: Float64Array, id_N: IntArray, config: GroupSettings
) -> Moments:
    """Statistics of the scores over step rows (verl-agent) or over trajectories (the papers).

    Over rows, long trajectories weigh more. A trajectory's value is the mean score of its rows
    without copies: its return minus the penalty times the share of invalid steps. The papers have
    no penalty; verl-agent takes the score of the trajectory's first row in the batch, which depends
    on the order of the batch (ledger 30).

    Args:
        batch: The steps.
        score_N: Score of each row.
        id_N: Dense id of each row's rollout group.
        config: ``statistics`` selects rows or trajectories.

    Returns:
        The statistics of each group; ``count_G`` counts rows or trajectories.
    """
    if config.statistics == "rows":
        return moments(score_N, id_N)
    # Copies would weigh their step twice in a trajectory's mean.
    rows = np.flatnonzero(batch.original_N)
    line = batch.timeline
    mean_K = moments(score_N[rows], line.slot_N[rows]).mean_G
    group_K = id_N[line.row_KT[:, 0]]
    return moments(mean_K, group_K)
