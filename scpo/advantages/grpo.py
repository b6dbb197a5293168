"""GRPO: group-relative advantage of the episode's outcome (DeepSeekMath, arXiv 2402.03300, section 4.1.2)."""

import numpy as np

from scpo.advantages.groups import EPSILON, Float64Array, Moments, as_advantage, group_ids, moments, normalise
from scpo.schema.method import EstimatorSettings, GrpoSettings, Normalisation
from scpo.steps import FloatArray, IntArray, StepBatch


def grpo(batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: GrpoSettings) -> FloatArray:
    """A = (s - mean(s)) / (std(s) + 1e-6) over the group; ``mean_norm`` leaves the division out.

    s = episode return - penalty * [invalid] is the row's score. Step returns and bonus are not read.
    """
    return as_advantage(episode_advantage(batch, config, config.normalisation))


def episode_advantage(batch: StepBatch, config: EstimatorSettings, normalisation: Normalisation) -> Float64Array:
    """The outcome term that GRPO and GiGPO share.

    A group of one value has mean 0 and deviation 1, so its advantage is the score itself (up to the 1e-6), as in
    verl-agent.
    """
    score_N = batch.episode_return_N - config.invalid_penalty * ~batch.valid_N
    id_N = group_ids(batch.group_N)
    stats = _score_moments(batch, score_N, id_N, config)
    single_N = stats.count_G[id_N] == 1
    scale = 1 + EPSILON if normalisation == "mean_std_norm" else 1.0
    return np.where(single_N, score_N / scale, normalise(score_N, id_N, stats, normalisation, config.std_floor))


def _score_moments(batch: StepBatch, score_N: Float64Array, id_N: IntArray, config: EstimatorSettings) -> Moments:
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
