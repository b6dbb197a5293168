"""Series of one run, and what is computed from the values of several seeds.

Comparisons use each run's last checkpoint. The best one reads too high: it is the luckiest of many noisy measurements
(:func:`best_of_bias`).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from scpo.intervals import Summary, summarise

__all__ = [
    "Series",
    "Summary",
    "best_of_bias",
    "interquartile_mean",
    "make_series",
    "moving_average",
    "paired_difference",
    "summarise",
]


@dataclass(frozen=True)
class Series:
    """One metric of one run: values at increasing steps, finite values only."""

    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def at(self, step: int) -> float | None:
        """The value at exactly this step, None if there is none."""
        return self.values[self.steps.index(step)] if step in self.steps else None

    @property
    def last(self) -> float | None:
        """The value at the last checkpoint: what every comparison uses."""
        return self.values[-1] if self.values else None

    @property
    def best(self) -> float | None:
        """The highest value over the checkpoints: optimistic, since it picks the luckiest of many measurements."""
        return max(self.values, default=None)

    @property
    def mean(self) -> float | None:
        """The mean over the steps that have a value."""
        return math.fsum(self.values) / len(self.values) if self.values else None

    @property
    def area(self) -> float | None:
        """The area under the curve divided by its length: the mean height of the straight lines between its points.

        None below two points. It judges the whole way, where a last value can only say how it ended.
        """
        if len(self.steps) < 2:
            return None
        return float(np.trapezoid(self.values, self.steps)) / (self.steps[-1] - self.steps[0])

    def first_at(self, level: float) -> float | None:
        """The step at which the straight lines between the points first reach ``level``; None if they never do."""
        for place, (step, value) in enumerate(zip(self.steps, self.values, strict=True)):
            if value >= level:
                if place == 0:
                    return float(step)
                before, below = self.steps[place - 1], self.values[place - 1]
                return before + (step - before) * (level - below) / (value - below)
        return None


def make_series(points: Iterable[tuple[int, float]]) -> Series:
    """A series from (step, value) pairs; of two values at one step the later written stands."""
    ordered = sorted({step: value for step, value in points if math.isfinite(value)}.items())
    return Series(tuple(step for step, _ in ordered), tuple(value for _, value in ordered))


def paired_difference(first: Mapping[int, float | None], second: Mapping[int, float | None]) -> Summary:
    """``first - second``, seed by seed over the seeds that have both; seeds share panel and sampling, so they pair."""
    pairs = [(value, second.get(seed)) for seed, value in first.items()]
    return summarise(a - b for a, b in pairs if a is not None and b is not None)


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
