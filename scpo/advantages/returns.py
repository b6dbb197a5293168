"""Step-level discounted returns."""

import numpy as np

from scpo.advantages.timeline import timeline
from scpo.steps import FloatArray, StepBatch


def step_returns(batch: StepBatch, gamma: float) -> FloatArray:
    """Discounted return of every step: R_t = Σ_{k≥t} γ^{k-t} r_k (GiGPO, arXiv 2505.10978; the paper's section 3.1).

    Each trajectory is one row of a padded matrix that is swept once from its last column; time order comes from
    ``step_N``, whatever the order of the batch. A copy reads its twin's cell. Sums are in float64, the answer is
    float32, in the unit of the rewards.

    Args:
        batch: The steps; rewards of copies are not read.
        gamma: Discount factor in [0, 1].

    Returns:
        ``step_return_N``.

    Raises:
        StepBatchError: A copy whose twin is not in the batch.
    """
    line = timeline(batch)
    reward_KT = np.where(line.row_KT >= 0, batch.reward_N.astype(np.float64)[line.row_KT], 0.0)
    for t in range(reward_KT.shape[1] - 2, -1, -1):
        reward_KT[:, t] += gamma * reward_KT[:, t + 1]
    return reward_KT[line.slot_N, batch.step_N].astype(np.float32)
