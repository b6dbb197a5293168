"""Differences of two rows, paired by seed: Student's interval and test, Holm's correction, and how many seeds it takes.

Runs of one seed share tasks, panels and uniform random numbers, so what a difference is uncertain by is the spread of
the differences, which is smaller than that of the rows themselves.
"""

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from scpo.intervals import Summary, summarise

LEVEL = 0.95  # of every interval, and 1 - LEVEL of every test
POWER = 0.8  # of the seeds that are asked for: the chance that their interval excludes 0
MOST_SEEDS = 1000  # more are not counted: nobody runs them


Values = Mapping[int, float | None]  # of a row, by seed; None for a run that does not have it


def paired(first: Values, second: Values) -> dict[int, float]:
    """``first - second`` by seed; a seed that one of them lacks makes no pair."""
    pairs = ((seed, value, second.get(seed)) for seed, value in sorted(first.items()))
    return {seed: a - b for seed, a, b in pairs if a is not None and b is not None}


def difference(first: Values, second: Values) -> Summary:
    """The paired difference of two rows over the seeds that have both, in the measure's own unit."""
    return summarise(paired(first, second).values())


def p_value(difference: Summary) -> float:
    """Two-sided paired t-test against no difference; 1 where the rows are equal.

    NaN below two pairs, and where all pairs differ by the same: a few seeds of coarse rates do, which is no proof.
    """
    n, mean, std = difference.n, difference.mean, difference.std
    if n < 2 or (std == 0 and mean != 0):
        return math.nan
    if std == 0:
        return 1.0
    from scipy.stats import t

    return float(2 * t.sf(abs(mean) / (std / math.sqrt(n)), n - 1))


def holm(p_values: Sequence[float]) -> list[float]:
    """Holm's step-down correction (Scand. J. Statist. 6, 1979): p-values for which 1 - LEVEL is the error of them all.

    ``p̃_(k) = max_{i<=k} min(1, (m - i + 1)·p_(i))`` over the m sorted values; NaN, a test that could not be made,
    stays NaN and does not count in m.
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    adjusted, highest = list(map(float, p_values)), 0.0
    for rank, (p, place) in enumerate(order):
        highest = max(highest, min(1.0, (len(order) - rank) * p))
        adjusted[place] = highest
    return adjusted


def power(effect: float, std: float, n: int) -> float:
    """The chance that a paired two-sided t-test of n pairs finds a true difference ``effect`` (noncentral t)."""
    from scipy.stats import nct, t

    shift = abs(effect) / std * math.sqrt(n)
    critical = float(t.ppf((1 + LEVEL) / 2, n - 1))
    found = float(nct.sf(critical, n - 1, shift)) + float(nct.cdf(-critical, n - 1, shift))
    return found if math.isfinite(found) else 1.0  # so far from the noncentral t's middle that it cannot be computed


def seeds_needed(effect: float, std: float) -> int | None:
    """The fewest pairs with which a true difference of this size is found with probability ``POWER``.

    None: more than ``MOST_SEEDS``, or nothing to find. The spread is an estimate, so the answer is one too.
    """
    if not (math.isfinite(effect) and math.isfinite(std)) or effect == 0:
        return None
    if std == 0:
        return 2
    fewest = bisect_left(range(MOST_SEEDS + 1), POWER, lo=2, key=lambda n: power(effect, std, n))
    return fewest if fewest <= MOST_SEEDS else None


def resolvable(std: float, n: int) -> float:
    """The least true difference that n pairs find with probability ``POWER``; NaN below two pairs."""
    if n < 2 or not math.isfinite(std):
        return math.nan
    if std == 0:
        return 0.0
    from scipy.optimize import brentq

    return std * float(brentq(lambda effect: power(effect, 1.0, n) - POWER, 0.0, 100.0, xtol=1e-6))
