"""One metric of one run, and what is read off its curve."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Series:
    """One metric of one run: values at increasing steps, finite values only."""

    steps: tuple[int, ...] = ()
    values: tuple[float, ...] = ()

    def at(self, step: int) -> float | None:
        """The value at exactly this step, None if there is none."""
        return self.values[self.steps.index(step)] if step in self.steps else None

    @property
    def before(self) -> float | None:
        """The value before training."""
        return self.at(0)

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

    def between(self, first: int, last: float = math.inf) -> "Series":
        """Its values at the steps from ``first`` to ``last``, both included."""
        inside = [
            point
            for point in zip(self.steps, self.values, strict=True)
            if first <= point[0] <= last
        ]
        return Series(tuple(step for step, _ in inside), tuple(value for _, value in inside))

    @property
    def area(self) -> float | None:
        """The area under the curve divided by its length: the mean height of the straight lines between its points.

        None below two points. It judges the whole way, where a last value can only say how it
        ended.
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
