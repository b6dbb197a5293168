"""The outcome as rows see it: their score, and its statistics inside a rollout group."""

import numpy as np

from scpo.advantages.groups import Float64Array, Moments, group_ids, moments
from scpo.schema.method import EstimatorSettings, GroupSettings
from scpo.steps import IntArray, StepBatch


def row_scores(batch: StepBatch, config: EstimatorSettings) -> Float64Array:
    """Score of every row, s = episode return - penalty * [invalid], in the unit of the rewards (as in verl-agent)."""
    return batch.episode_return_N - config.invalid_penalty * ~batch.valid_N


def score_moments(batch: StepBatch, score_N: Float64Array, id_N: IntArray, config: GroupSettings) -> Moments:
    """Statistics over step rows (verl-agent; long trajectories weigh more) or over trajectories (the papers).

    A trajectory's value is the mean score of its own rows without copies: its return, less the penalty times the share
    of invalid steps. The papers have no penalty, so they are silent here.
    """
    if config.statistics == "rows":
        return moments(score_N, id_N)
    rows = np.flatnonzero(batch.original_N)
    slot_N = group_ids(batch.trajectory_N[rows])
    first_K = np.unique(slot_N, return_index=True)[1]
    return moments(moments(score_N[rows], slot_N).mean_G, id_N[rows[first_K]])
