"""Statistics over seeds: mean, sample standard deviation, Student-t interval; a run's last and best checkpoint."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation (ddof 1) of n values; what n cannot give is NaN, never 0."""

    mean: float
    std: float
    n: int

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Student-t interval for the mean: mean ± t_{n-1}·std/√n (NaN below two values)."""
        if self.n < 2:
            return math.nan, math.nan
        from scipy.stats import t

        half = float(t.ppf((1 + level) / 2, self.n - 1)) * self.std / math.sqrt(self.n)
        return self.mean - half, self.mean + half


def summarise(values: Iterable[float | None]) -> Summary:
    """Summary over seeds. A seed without a value lowers n; it is never averaged over in silence."""
    present = [float(value) for value in values if value is not None and math.isfinite(value)]
    n = len(present)
    if n == 0:
        return Summary(math.nan, math.nan, 0)
    mean = math.fsum(present) / n
    std = math.sqrt(math.fsum((value - mean) ** 2 for value in present) / (n - 1)) if n > 1 else math.nan
    return Summary(mean, std, n)


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


def make_series(points: Iterable[tuple[int, float]]) -> Series:
    """A series from (step, value) pairs; of two values at one step the later written stands."""
    ordered = sorted({step: value for step, value in points if math.isfinite(value)}.items())
    return Series(tuple(step for step, _ in ordered), tuple(value for _, value in ordered))
