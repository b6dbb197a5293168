"""Values of one metric of one run over training steps."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


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
        """Value at step 0, before training."""
        return self.at(0)

    @property
    def last(self) -> float | None:
        """Value at the last step."""
        return self.values[-1] if self.values else None

    @property
    def best(self) -> float | None:
        """Highest value. Optimistic, as the largest of many noisy measurements."""
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
        """Area under the curve divided by the steps it covers; None for fewer than two points.

        This is the mean height of the straight lines between the points, in the metric's unit. It
        measures the whole training, while the last value measures only its end.
        """
        if len(self.steps) < 2:
            return None
        area = float(np.trapezoid(self.values, self.steps))
        return area / (self.steps[-1] - self.steps[0])

    def first_at(self, level: float) -> float | None:
        """Step, interpolated between points, at which the curve first reaches ``level``.

        None if it never does.
        """
        for place, (step, value) in enumerate(zip(self.steps, self.values, strict=True)):
            if value < level:
                continue
            if place == 0:
                return float(step)
            step_below = self.steps[place - 1]
            value_below = self.values[place - 1]
            return step_below + (step - step_below) * (level - value_below) / (value - value_below)
        return None


def make_series(points: Iterable[tuple[int, float]]) -> Series:
    """Series of (step, value) pairs; of several finite values at one step, the last one counts.

    A resumed run repeats steps and so logs several values at them. Values that are not finite are
    dropped.
    """
    finite = {step: value for step, value in points if math.isfinite(value)}
    steps = tuple(sorted(finite))
    return Series(steps, tuple(finite[step] for step in steps))


def panels_of(metrics: Iterable[str]) -> tuple[str, ...]:
    """Names of the validation panels of these metrics, sorted."""
    return tuple(sorted({name.split("/")[1] for name in metrics if name.startswith("val/")}))
