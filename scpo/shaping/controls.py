"""Controls: the matcher's credit, in the same amount, on steps that it did not choose.

Does it matter *which* steps of a failure are credited, or would any bonus of that size do? Each
control keeps the credit mass of every failed trajectory and moves it over the steps that survived
the filter.
"""

from typing import Literal

import numpy as np

from scpo.shaping.order import Seed, generator
from scpo.steps import FloatArray

Allocation = Literal["matched", "random_match", "uniform_bonus", "graph"]
"""``graph`` moves credit within the group along its state graph: ``scpo.credit.other_steps``."""


def allocate(
    matched_l: FloatArray, allocation: Allocation, seed: Seed, trajectory: int
) -> FloatArray:
    """Credit of one failed trajectory's surviving steps, whose sum is that of the matcher's.

    ``matched``: as the matcher gave it. ``random_match``: the same values, each on a step of its
    own drawn at random. ``uniform_bonus``: c_v = Σ c / l on each of the l steps. ``graph``: not
    moved yet.

    Args:
        matched_l: The matcher's credit in [0, 1], of at least one step.
        allocation: Which of them.
        seed: Run seed and training step.
        trajectory: Trajectory id: with ``seed``, all that the draw depends on.
    """
    if allocation == "random_match":
        return generator(seed, "control", trajectory).permutation(matched_l)
    if allocation == "uniform_bonus":
        return np.full_like(matched_l, matched_l.mean(dtype=np.float64))
    return matched_l
