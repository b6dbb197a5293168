"""What is computed from the values of several seeds.

Comparisons use each run's last checkpoint. The best one reads too high: it is the luckiest of many noisy measurements
(:func:`best_of_bias`).
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np


def interquartile_mean(values: Iterable[float]) -> float:
    """Mean of the middle half, a quarter of the values cut at each end (arXiv 2108.13264); NaN of no values.

    ``floor(n / 4)`` values are cut at each end, as ``scipy.stats.trim_mean(values, 0.25)`` does.
    """
    ordered = sorted(values)
    cut = len(ordered) // 4
    kept = ordered[cut : len(ordered) - cut]
    return math.fsum(kept) / len(kept) if kept else math.nan


def best_of_bias(rate: float, checkpoints: int, episodes: int, draws: int = 20_000) -> float:
    """How much the best of ``checkpoints`` evaluations reads above a true success rate that never changes.

    Each evaluation plays ``episodes`` independent episodes; simulated, with a fixed seed. A lower bound on what a
    table of best checkpoints overstates: a real curve moves, and its best value is taken after the fact as well.
    """
    wins = np.random.default_rng(0).binomial(episodes, rate, size=(draws, checkpoints))
    return float(wins.max(axis=1).mean() / episodes - rate)


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """Mean over the last ``window`` values at each place, over fewer where the series begins."""
    return [math.fsum(values[max(0, end - window) : end]) / min(end, window) for end in range(1, len(values) + 1)]
