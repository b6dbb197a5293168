"""Statistics over seeds: paired differences, Student's interval and test, Holm's correction.

Runs with equal seeds share tasks, panels, initial weights and uniform random numbers. Differences
are therefore paired by seed: their spread is smaller than that of the rows.

Comparisons use each run's last checkpoint. The best checkpoint is biased upwards, as the largest of
many noisy measurements (``best_of_bias``).
"""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from analysis.sources.series import Series
from scpo.intervals import Summary, summarise

# Confidence level of every interval; tests use the significance level 1 - LEVEL.
LEVEL = 0.95

# Power at which a difference counts as resolvable: the usual choice in planning experiments.
POWER = 0.8

# Values of a row by seed; None for a run without the value.
Values: TypeAlias = Mapping[int, float | None]


def paired(first: Values, second: Values) -> dict[int, float]:
    """``first - second`` by seed, over the seeds with both values."""
    differences = {}
    for seed, value in sorted(first.items()):
        other = second.get(seed)
        if value is not None and other is not None:
            differences[seed] = value - other
    return differences


def difference(first: Values, second: Values) -> Summary:
    """Summary of the paired differences of two rows, in the measure's unit."""
    return summarise(paired(first, second).values())


def unpaired_interval(first: Summary, second: Summary) -> tuple[float, float]:
    """Welch's interval for the difference of two means that are not paired.

    NaN if either has fewer than two values.
    """
    if min(first.n, second.n) < 2:
        return math.nan, math.nan
    from scipy.stats import t

    parts = [summary.std**2 / summary.n for summary in (first, second)]
    variance = sum(parts)
    mean = first.mean - second.mean
    if variance == 0:
        return mean, mean
    degrees = variance**2 / (parts[0] ** 2 / (first.n - 1) + parts[1] ** 2 / (second.n - 1))
    half = float(t.ppf((1 + LEVEL) / 2, degrees)) * math.sqrt(variance)
    return mean - half, mean + half


def fewer_seeds(numbers: Mapping[str, Summary], finished: int) -> str:
    """Name the numbers of a row that lack some of its finished seeds; empty if none does.

    A row prints one count of seeds, so a mean over fewer of them would look like a mean over all.

    Args:
        numbers: Name of each number in print -> its summary over seeds or pairs.
        finished: Number of the row's finished seeds.

    Returns:
        For example ``over 2 of 3 finished seeds: Precision, Recall``.
    """
    counts: dict[int, list[str]] = {}
    for name, summary in numbers.items():
        # A number without any seed is not printed.
        if 0 < summary.n < finished:
            counts.setdefault(summary.n, []).append(name)
    if not counts:
        return ""
    parts = []
    for n, names in sorted(counts.items(), reverse=True):
        parts.append(f"over {n} of {finished} finished seeds: {', '.join(names)}")
    return "; ".join(parts)


def p_value(difference: Summary) -> float:
    """p-value of the two-sided paired t-test against no difference; 1 if all pairs are equal.

    NaN for fewer than two pairs, and if all pairs have the same difference other than 0, which
    happens by chance with few seeds and coarse rates.
    """
    n = difference.n
    mean = difference.mean
    std = difference.std
    if n < 2 or (std == 0 and mean != 0):
        return math.nan
    if std == 0:
        return 1.0
    from scipy.stats import t

    return float(2 * t.sf(abs(mean) / (std / math.sqrt(n)), n - 1))


def p_text(value: float) -> str:
    """A p-value for print; – for NaN."""
    if not math.isfinite(value):
        return "–"
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def holm(p_values: Sequence[float], tests: int | None = None) -> list[float]:
    """Holm's step-down correction of the family-wise error rate (Scand. J. Statist. 6, 1979).

    ``p̃_(k) = max_{i<=k} min(1, (m - i + 1)·p_(i))`` over the sorted values.

    Args:
        p_values: One for each test; NaN, the value of an impossible test, stays NaN.
        tests: Number of tests m; None: those of ``p_values`` that are not NaN. A larger number
            counts the tests without a p-value as p = 1, so that the correction does not depend on
            which of the planned tests are possible yet.
    """
    order = sorted((p, place) for place, p in enumerate(p_values) if not math.isnan(p))
    if tests is None:
        tests = len(order)
    adjusted = [float(p) for p in p_values]
    highest = 0.0
    for rank, (p, place) in enumerate(order):
        highest = max(highest, min(1.0, (tests - rank) * p))
        adjusted[place] = highest
    return adjusted


def untested_text(count: int) -> str:
    """How tests that are not possible yet enter ``holm``, for captions."""
    return f"{count} of them, with fewer than two pairs here or without spread, counted as p = 1"


def power(effect: float, std: float, n: int) -> float:
    """Power of a two-sided paired t-test of n pairs at a true ``effect``.

    Given the sample's standard deviation the mean is normal, so ``P(|t| > c)`` is an integral over
    the chi distribution of ``n - 1`` degrees of freedom. SciPy's noncentral t has the same value,
    but some versions return NaN for few degrees, already where the power is 0.5.
    """
    from scipy.integrate import quad
    from scipy.stats import t

    degrees = n - 1
    shift = abs(effect) / std * math.sqrt(n)
    critical = float(t.ppf((1 + LEVEL) / 2, degrees)) / math.sqrt(degrees)
    log_norm = (degrees / 2 - 1) * math.log(2) + math.lgamma(degrees / 2)

    def found_at(spread: float) -> float:
        """Probability to find the effect at a spread, times the spread's density."""
        edge = critical * spread
        tails = _normal_tail(edge - shift) + _normal_tail(edge + shift)
        power_of_spread = (degrees - 1) * math.log(spread) if degrees > 1 else 0.0
        return tails * math.exp(power_of_spread - spread**2 / 2 - log_norm)

    # The chi distribution's mean is close to this middle, and its standard deviation is below 1 for
    # any number of degrees, so that nothing of it lies further than 10 away.
    middle = math.sqrt(degrees)
    found, _ = quad(found_at, max(0.0, middle - 10), middle + 10, limit=200)
    return min(1.0, float(found))


def _normal_tail(value: float) -> float:
    """Probability that a standard normal number is larger."""
    return math.erfc(value / math.sqrt(2)) / 2


def resolvable(std: float, n: int) -> float:
    """Smallest true difference that n pairs detect with power ``POWER``; NaN for fewer than two.

    This is not a post-hoc power: it depends on the spread of the pairs, not on their mean.
    """
    if n < 2 or not math.isfinite(std):
        return math.nan
    if std == 0:
        return 0.0
    from scipy.optimize import brentq

    def missing_power(effect: float) -> float:
        return power(effect, 1.0, n) - POWER

    # Power depends on effect / std only, so the root is found in units of std.
    return std * float(brentq(missing_power, 0.0, 100.0, xtol=1e-6))


def checkpoints(success: Series) -> int:
    """Number of a run's checkpoints for ``best_of_bias``.

    Validation before training is not counted: its true rate is another one than at the end.
    """
    return len(success.between(1).steps)


def best_of_bias(rate: float, checkpoints: int, episodes: int, draws: int = 20_000) -> float:
    """Bias of the best of ``checkpoints`` evaluations of a constant true success rate.

    Simulated with a fixed seed; each evaluation plays ``episodes`` independent episodes. This is a
    lower bound on the bias of a table of best checkpoints, because real curves also vary in their
    true rate.
    """
    wins = np.random.default_rng(0).binomial(episodes, rate, size=(draws, checkpoints))
    return float(wins.max(axis=1).mean() / episodes - rate)
