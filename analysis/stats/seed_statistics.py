"""What is computed from the values of several seeds.

Comparisons use each run's last checkpoint. The best one reads too high: it is the luckiest of many
noisy measurements (:func:`best_of_bias`).
"""

import math
from collections.abc import Sequence

import numpy as np


def best_of_bias(rate: float, checkpoints: int, episodes: int, draws: int = 20_000) -> float:
    """Bias of the best of ``checkpoints`` evaluations of a constant true success rate.

    Each evaluation plays ``episodes`` independent episodes; simulated, with a fixed seed. A lower
    bound on what a table of best checkpoints overstates: a real curve moves, and its best value is
    taken after the fact as well.
    """
    wins = np.random.default_rng(0).binomial(episodes, rate, size=(draws, checkpoints))
    return float(wins.max(axis=1).mean() / episodes - rate)


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """Mean over the last ``window`` values at each place, over fewer where the series begins."""
    return [
        math.fsum(values[max(0, end - window) : end]) / min(end, window)
        for end in range(1, len(values) + 1)
    ]
