"""Step-level discounted returns."""

import numpy as np

from scpo.errors import StepBatchError
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
    trajectory_K, slot_N = np.unique(batch.trajectory_N, return_inverse=True)
    rows = np.flatnonzero(batch.original_N)
    length = int(batch.step_N.max(initial=-1)) + 1
    reward_KT = np.zeros((len(trajectory_K), length))
    reward_KT[slot_N[rows], batch.step_N[rows]] = batch.reward_N[rows]
    present_KT = np.zeros(reward_KT.shape, dtype=bool)
    present_KT[slot_N[rows], batch.step_N[rows]] = True
    orphans = np.flatnonzero(~present_KT[slot_N, batch.step_N])
    if len(orphans):
        row = orphans[0]
        raise StepBatchError(
            f"row {row} (trajectory {batch.trajectory_N[row]}, step {batch.step_N[row]}) is a copy, but the step it "
            "copies is not in the batch: pass the original row as well, or clear is_copy_N"
        )
    for t in range(length - 2, -1, -1):
        reward_KT[:, t] += gamma * reward_KT[:, t + 1]
    return reward_KT[slot_N, batch.step_N].astype(np.float32)
