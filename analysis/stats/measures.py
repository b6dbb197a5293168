"""What a run is judged by, a number a run: areas under its curves, success at fixed steps, steps to a success rate."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from analysis.naming.names import TRAINED_ON, success_metric
from analysis.sources.collect import Collected
from analysis.sources.rows import Row
from analysis.sources.series import Series, make_series

TRAINING = "train/success_rate"  # of the training rollouts, as sampled
LEVELS = (0.5, 0.8)


@dataclass(frozen=True)
class Measure:
    """A number of a run; ``factor`` and ``unit`` of it as it is printed, e.g. 100 and ``%``."""

    label: str
    of: Callable[[Collected, str], float | None]
    factor: float = 100
    unit: str = "%"
    digits: int = 1

    @property
    def difference_unit(self) -> str:
        """Differences of percentages are points."""
        return "points" if self.unit == "%" else self.unit


def held_out(data: Collected, run: str) -> Series:
    """Success over the games of all held-out panels together, at the steps at which all of them were played."""
    panels = [panel for panel in data.panels(run) if panel != TRAINED_ON]
    rates = [data.series(run, success_metric(panel)) for panel in panels]
    games = [data.series(run, f"val/{panel}/episodes") for panel in panels]
    steps = set.intersection(*(set(one.steps) for one in rates)) if rates else set()
    return make_series((step, _pooled(rates, games, step)) for step in steps)


def _pooled(rates: list[Series], games: list[Series], step: int) -> float:
    """Weighted by games; where their numbers are not logged, every panel counts the same."""
    weights: list[Any] = [one.at(step) for one in games]
    values = [one.values[one.steps.index(step)] for one in rates]
    pooled = float(np.average(values, weights=None if None in weights else weights))
    return round(pooled, 12)  # half of the games is 0.5, not a rounding error less: a level is reached or not


def success_at(step: int) -> Measure:
    """Held-out success after this training step."""
    return Measure(f"held out at step {step}", lambda data, run: held_out(data, run).at(step))


def steps_to(level: float) -> Measure:
    """Training steps until held-out success first reaches a level, on the straight lines between validations."""
    label = f"steps to {100 * level:.0f} %"
    return Measure(label, lambda data, run: held_out(data, run).first_at(level), factor=1, unit="steps")


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "validation_area": Measure("area under validation", lambda data, run: held_out(data, run).area),
        "training_area": Measure("area under training", lambda data, run: data.series(run, TRAINING).area),
        "last_success": Measure("held-out success at the last step", lambda data, run: held_out(data, run).last),
    }
)
"""By the names that an experiment's file may give (``scpo.schema.Measure``)."""


def by_seed(data: Collected, row: Row, measure: Measure) -> dict[int, float | None]:
    """The measure of the row's finished runs, by their seeds; None for a run that does not have it."""
    return row.by_seed(lambda run: measure.of(data, run))
