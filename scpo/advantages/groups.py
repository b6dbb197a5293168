"""Vectorised group-by: dense group ids and order-independent group statistics.

Everything is float64. verl-agent computes in float32, where the rounding of a value x, divided by
the group's standard deviation s, becomes an error of about 6e-8 |x| / s in the advantage: 0.06 for
a reward of 10 and s at the floor of 1e-5.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from scpo.steps import BoolArray, FloatArray, IntArray

Float64Array = NDArray[np.float64]
Normalisation = Literal["mean_std_norm", "mean_norm"]

EPSILON = 1e-6
"""Added to a standard deviation before it divides, as in verl-agent's GRPO and GiGPO."""


def group_ids(*keys_N: NDArray[Any]) -> IntArray:
    """Dense ids ``0..G-1`` of rows that agree in all integer keys.

    Ids ascend with the keys, first key first: they depend on the keys only, not on the order of
    the rows.

    Args:
        *keys_N: Integer columns of equal length, at least one.

    Returns:
        ``id_N``, int64; every id below the largest occurs, as :func:`moments` requires.
    """
    id_N = np.zeros(len(keys_N[0]), dtype=np.int64)
    for key_N in keys_N:
        value_K, code_N = np.unique(key_N, return_inverse=True)
        # Dense again after each key, so that the next product cannot overflow.
        id_N = np.unique(id_N * len(value_K) + code_N, return_inverse=True)[1]
    return id_N


@dataclass(frozen=True)
class Moments:
    """Size, mean and Bessel-corrected standard deviation of each group; 0 for a single value.

    Attributes:
        count_G: Number of values.
        mean_G: Their mean.
        std_G: With Bessel's correction, as ``torch.std``, which verl-agent calls.
    """

    count_G: IntArray
    mean_G: Float64Array
    std_G: Float64Array

    def flat(self, std_floor: float) -> BoolArray:
        """Groups whose deviation is 0 or below ``std_floor``: their differences are rounding.

        A deviation of 0 is flat with any floor: HGPO leaves such a level out of its mean, and PACE
        has no σ to divide by.
        """
        return np.less(self.std_G, std_floor) | np.equal(self.std_G, 0)

    def population(self) -> "Moments":
        """Moments with the population's standard deviation, without Bessel's correction (HGPO)."""
        correction_G = np.sqrt((self.count_G - 1) / np.maximum(self.count_G, 1))
        return replace(self, std_G=self.std_G * correction_G)


def moments(value_N: NDArray[Any], id_N: IntArray) -> Moments:
    """Group statistics in float64, for dense ids.

    Values are taken relative to the least of their group and summed in ascending order, so that
    equal values have a standard deviation of exactly 0, and permuting the rows changes no bit.
    Trainers and numbers of GPUs order a batch differently: if a last bit depended on the order, two
    runs of one seed would diverge.

    Args:
        value_N: Finite numbers.
        id_N: Dense ids ``0..G-1``: ``reduceat`` would give an id without values the first value of
            the next group.
    """
    # Sorted by value too: float sums must not depend on the order of the batch.
    order = np.lexsort((value_N, id_N))
    count_G = np.bincount(id_N)
    starts = np.cumsum(count_G) - count_G
    if not len(order):
        return Moments(count_G, np.zeros(0), np.zeros(0))
    sorted_N = np.asarray(value_N, np.float64)[order]
    sorted_id_N = id_N[order]

    # Excess over the least value: equal values then have a deviation of exactly 0.
    least_G = sorted_N[starts]
    excess_N = sorted_N - least_G[sorted_id_N]
    mean_excess_G = np.add.reduceat(excess_N, starts) / count_G
    square_G = np.add.reduceat((excess_N - mean_excess_G[sorted_id_N]) ** 2, starts)
    # Bessel's correction; a group of one value has squares of 0 and needs no divisor.
    std_G = np.sqrt(square_G / np.maximum(count_G - 1, 1))
    return Moments(count_G, least_G + mean_excess_G, std_G)


def normalise(
    value_N: NDArray[Any],
    id_N: IntArray,
    stats: Moments,
    normalisation: Normalisation,
    std_floor: float,
) -> Float64Array:
    """Normalise each value by the statistics of its group.

    ``mean_std_norm``: (x - mean) / (std + 1e-6); ``mean_norm``: x - mean. A flat group
    (``Moments.flat``) gets exactly 0 in both. Groups of one value have std 0, hence 0.

    Args:
        value_N: The values.
        id_N: Dense ids of their groups.
        stats: Statistics of the groups, also of other values: those of trajectory means normalise
            the scores of rows.
        normalisation: The mode.
        std_floor: Standard deviation below which a group is flat, in the unit of the values.

    Returns:
        float64, one for each value.
    """
    deviation_N = np.asarray(value_N, np.float64) - stats.mean_G[id_N]
    scale_G = np.ones_like(stats.std_G)
    if normalisation == "mean_std_norm":
        scale_G = stats.std_G + EPSILON
    return np.where(stats.flat(std_floor)[id_N], 0.0, deviation_N / scale_G[id_N])


def as_advantage(value_N: NDArray[Any]) -> FloatArray:
    """Cast an estimator's float64 result to float32, which trainers read."""
    return value_N.astype(np.float32)
