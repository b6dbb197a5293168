"""Series of one metric of one run, and the ranges that logged metrics must lie in."""

import fnmatch
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

# A mean of shares may exceed 1 by a rounding error.
ROUNDING = 1e-6
SHARE = (0.0, 1.0)
AMOUNT = (0.0, math.inf)

# A value outside its range cannot have been measured: the log is damaged.
RANGES = {
    "*success_rate": SHARE,
    "*invalid_rate": SHARE,
    "*/errored": AMOUNT,
    "credit/precision*": SHARE,
    "credit/active_groups": SHARE,
    "credit/effective": SHARE,
    "credit/exact": SHARE,
    "*/episodes": AMOUNT,
    "*/episode_length": AMOUNT,
    "timing_s/*": AMOUNT,
}


@dataclass(frozen=True)
class Series:
    """One metric of one run: finite values at increasing steps."""

    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def at(self, step: int) -> float | None:
        """Value at exactly this step; None if there is none."""
        if step not in self.steps:
            return None
        return self.values[self.steps.index(step)]

    @property
    def before(self) -> float | None:
        """Value before training."""
        return self.at(0)

    @property
    def last(self) -> float | None:
        """Value at the last checkpoint, which every comparison uses."""
        return self.values[-1] if self.values else None

    @property
    def best(self) -> float | None:
        """Highest value over the checkpoints.

        It is optimistic, because it picks the luckiest of many noisy measurements.
        """
        return max(self.values, default=None)

    @property
    def mean(self) -> float | None:
        """Mean over the steps that have a value."""
        if not self.values:
            return None
        return math.fsum(self.values) / len(self.values)

    def between(self, first: int, last: float = math.inf) -> "Series":
        """Part of the series from step ``first`` to ``last``, both included."""
        steps = []
        values = []
        for step, value in zip(self.steps, self.values, strict=True):
            if first <= step <= last:
                steps.append(step)
                values.append(value)
        return Series(tuple(steps), tuple(values))

    @property
    def area(self) -> float | None:
        """Area under the curve divided by its length; None below two points.

        It is the mean height of the straight lines between the points, so it judges all of
        training, where the last value only judges its end.
        """
        if len(self.steps) < 2:
            return None
        area = float(np.trapezoid(self.values, self.steps))
        return area / (self.steps[-1] - self.steps[0])

    def first_at(self, level: float) -> float | None:
        """Step at which the straight lines between the points first reach ``level``.

        None if they never do.
        """
        for place, (step, value) in enumerate(zip(self.steps, self.values, strict=True)):
            if value < level:
                continue
            if place == 0:
                return float(step)
            before = self.steps[place - 1]
            below = self.values[place - 1]
            return before + (step - before) * (level - below) / (value - below)
        return None


def make_series(points: Iterable[tuple[int, float]]) -> Series:
    """Make a series from (step, value) pairs; of two values at one step the later one counts."""
    # A later line of the same step comes from an attempt that repeated it.
    finite = {step: value for step, value in points if math.isfinite(value)}
    steps = tuple(sorted(finite))
    return Series(steps, tuple(finite[step] for step in steps))


# Matching patterns is slow, and names repeat at every step.
@functools.lru_cache(maxsize=4096)
def allowed(metric: str) -> tuple[float, float] | None:
    """Lowest and highest value of a metric; None for a metric without limits."""
    for pattern, bounds in RANGES.items():
        if fnmatch.fnmatchcase(metric, pattern):
            return bounds
    return None


def complaint(metric: str, step: int, value: float) -> str | None:
    """Explain why a value cannot have been measured; None if it can.

    For example ``val/test/success_rate is 7.0 at step 10, not in [0, 1]``.
    """
    low, high = allowed(metric) or (-math.inf, math.inf)
    if math.isfinite(value) and low - ROUNDING <= value <= high + ROUNDING:
        return None
    return f"{metric} is {value} at step {step}, not in [{low:g}, {high:g}]"
