"""HGPO: step advantages over groups that share more and more history (arXiv 2602.22817)."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat, NonNegativeInt

from scpo.advantages.anchors import StateSettings, state_groups
from scpo.advantages.estimator import Estimator
from scpo.advantages.groups import (
    EPSILON,
    Float64Array,
    as_advantage,
    group_ids,
    moments,
    normalise,
)
from scpo.advantages.grpo import episode_advantage
from scpo.steps import FloatArray, IntArray, StepBatch


class HgpoSettings(StateSettings):
    """Settings of HGPO.

    Attributes:
        context: K: a step is compared with those that share up to K states before it. The recipe
            ties it to the number of turns in the prompt.
        weights: Weights of levels 0, 1, 2, ... if a = 1: ``paper``: 1, 2, 3, ...; ``code``: 2, 3,
            4, ... (ledger 16).
        exponent: a; 0 weighs all levels alike.
        base_group: Add the outcome term, which the paper's advantage and the recipe's scripts lack.
    """

    name: Literal["hgpo"]
    context: NonNegativeInt
    weights: Literal["paper", "code"]
    exponent: NonNegativeFloat
    base_group: bool


def hgpo(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: HgpoSettings
) -> FloatArray:
    """A = Σ_k w_k A_k / Σ_k w_k over the levels k = 0..K that count for a row; 0 if none does.

    Level k compares a row with the rows of its group that have the same anchor state and the same k
    anchor states before it. A_k is (q - mean) / (population std + 1e-6) or q - mean over these
    rows, with q = R + bonus. The level counts if their deviation is neither 0 nor below
    ``std_floor``; a row with no other to compare has deviation 0.

    With ``weights: paper``, w_k = (k+1)^a. With ``code``, as in the authors' recipe in verl-agent,
    w_k = (k+2)^a, and 1e-6 is added to the sum of weights. ``base_group`` adds a level of weight 1
    whose advantage is GRPO's outcome term, and which counts for rows where that term is not 0; the
    recipe has this option, the paper does not.

    Equal to verl-agent's ``compute_hgpo_outcome_advantage`` with ``weights: code`` on batches
    without copies. Here copies take part in all statistics, with the history of their original; the
    recipe estimates before rows are copied.

    Args:
        batch: The steps.
        step_return_N: R, discounted step returns.
        bonus_N: Added to the step returns; includes the penalty of invalid actions.
        config: The settings.

    Returns:
        ``advantage_N``, float32.
    """
    q_N = step_return_N.astype(np.float64) + bonus_N
    sum_N = np.zeros(len(batch))
    weight_N = np.zeros(len(batch))

    # The outcome term is a level of weight 1; as in the recipe, a row whose term is 0 lacks it.
    if config.base_group:
        sum_N = episode_advantage(batch, config, config.normalisation)
        weight_N = (sum_N != 0).astype(np.float64)

    # w_k = (k+1)^a or (k+2)^a.
    offset = 1 if config.weights == "paper" else 2
    levels = history_groups(batch, state_groups(batch, config), config.context)
    for level, id_N in enumerate(levels):
        # At step t only the levels up to t have a history.
        rows = np.flatnonzero(id_N >= 0)
        stats = moments(q_N[rows], id_N[rows]).population()
        weight = float(level + offset) ** config.exponent
        sum_N[rows] += weight * normalise(
            q_N[rows], id_N[rows], stats, config.normalisation, config.std_floor
        )
        # A group without differences adds 0 to the sum, so its weight must not be in the divisor.
        counts = ~stats.flat(config.std_floor)[id_N[rows]]
        weight_N[rows] += weight * counts

    # The recipe divides by the sum plus 1e-6; without it the paper's weights sum to exactly 1.
    slack = EPSILON if config.weights == "code" else 0.0
    mean_N = np.zeros_like(sum_N)
    np.divide(sum_N, weight_N + slack, out=mean_N, where=weight_N > 0)
    return as_advantage(mean_N)


def history_groups(batch: StepBatch, anchor_N: IntArray, context: int) -> Iterator[IntArray]:
    """Dense ids of rows with equal last k+1 anchors, k = 0..context; -1 at steps t < k.

    A level-k id numbers the pairs of a row's anchor and the level k-1 id of the step before it, so
    that lists of anchors need not be compared.

    Args:
        batch: The steps.
        anchor_N: Dense id of each row's anchor group. Rollout groups share no anchor group, so
            histories of different rollout groups never coincide.
        context: K, the last level.

    Yields:
        ``id_N`` of level 0, 1, ..., K.
    """
    id_N = anchor_N
    previous_N = batch.timeline.neighbours(-1)
    yield id_N
    for _ in range(context):
        before_N = np.where(previous_N >= 0, id_N[previous_N], -1)
        rows = np.flatnonzero(before_N >= 0)
        id_N = np.full(len(batch), -1, dtype=np.int64)
        id_N[rows] = group_ids(anchor_N[rows], before_N[rows])
        yield id_N


def step_term(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: HgpoSettings
) -> Float64Array:
    """Advantage without the outcome of ``base_group``.

    The advantage is an average over the levels, not a sum, so the outcome cannot be subtracted from
    it: the advantage is computed again with ``base_group`` off.
    """
    without_outcome = config.model_copy(update={"base_group": False})
    return hgpo(batch, step_return_N, bonus_N, without_outcome).astype(np.float64)


HGPO = Estimator(
    HgpoSettings,
    hgpo,
    requires=frozenset({"step_bonus"}),
    labels={"hgpo": "HGPO"},
    step_term=step_term,
)
