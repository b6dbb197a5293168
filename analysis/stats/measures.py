"""Measures of a run: area under its curve, steps to a success rate, success at the last step.

They answer different questions. The area judges the whole way of training; steps to 50 % ask
whether a method learns *faster*; success at the last step asks whether it ends *better*. Each has
one definition, here.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from analysis.names import TRAINED_ON, success_metric
from analysis.sources.collected import Collected
from analysis.sources.rows import Row
from analysis.sources.series import Series, make_series

# Success on the training rollouts, as sampled.
TRAINING = "train/success_rate"
LEVELS = (0.5, 0.8)


@dataclass(frozen=True)
class Measure:
    """A number of a run.

    Attributes:
        label: Name in print.
        of: The number of a run; None where the run did not log what it needs.
        factor: From the number to its printed unit, e.g. 100 for percent.
        unit: Printed unit.
        digits: Printed decimals.
        sign: 1 where higher is better, -1 where lower is.
    """

    label: str
    of: Callable[[Collected, str], float | None]
    factor: float = 100
    unit: str = "%"
    digits: int = 1
    sign: int = 1

    @property
    def difference_unit(self) -> str:
        """Differences of percentages are points."""
        return "points" if self.unit == "%" else self.unit


def held_out(data: Collected, run: str) -> Series:
    """Success over the games of all held-out panels, at the steps that played all of them."""
    panels = [panel for panel in data.panels(run) if panel != TRAINED_ON]
    return _over(data, run, panels)


def judged(data: Collected, run: str) -> Series:
    """Held-out success; at mini scale success on the games trained on.

    A tiny language model improves only on the games that it trains on.
    """
    if data.by_id[run].head.scale == "mini":
        return _over(data, run, [TRAINED_ON])
    return held_out(data, run)


def _over(data: Collected, run: str, panels: list[str]) -> Series:
    rates = [data.series(run, success_metric(panel)) for panel in panels]
    games = [data.series(run, f"val/{panel}/episodes") for panel in panels]
    # A step at which only some panels were played would be a mean over other games.
    steps = set.intersection(*(set(rate.steps) for rate in rates)) if rates else set()
    return make_series((step, _pooled(rates, games, step)) for step in steps)


def _pooled(rates: list[Series], games: list[Series], step: int) -> float:
    """Mean over panels, weighted by their games; unweighted where those are not logged."""
    weights: list[Any] = [played.at(step) for played in games]
    values = [rate.values[rate.steps.index(step)] for rate in rates]
    pooled = float(np.average(values, weights=None if None in weights else weights))
    # Half of the games is 0.5, not a rounding error less.
    return round(pooled, 12)


def success_at(step: int) -> Measure:
    """Held-out success after this training step."""
    return Measure(f"held out at step {step}", lambda data, run: held_out(data, run).at(step))


def steps_to(level: float) -> Measure:
    """Training steps until ``judged`` success first reaches a level, interpolated linearly.

    A run that never does counts with its last step: the restricted mean of survival analysis.
    Leaving such runs out would favour the method that fails more often. ``reaches`` counts them.
    """

    def of(data: Collected, run: str) -> float | None:
        series = judged(data, run)
        if len(series.steps) < 2:
            return None
        reached = series.first_at(level)
        if reached is not None:
            return reached
        return float(series.steps[-1])

    return Measure(f"steps to {100 * level:.0f} %", of, factor=1, unit="steps", sign=-1)


def reaches(data: Collected, run: str, level: float) -> bool:
    """Return True if a run reaches the level at any validation."""
    return judged(data, run).first_at(level) is not None


def how_many_reach(data: Collected, row: Row, level: float) -> str:
    """Number of finished runs that reach the level, of all finished runs, e.g. ``18/20``."""
    count = sum(reaches(data, run, level) for run in row.finished)
    return f"{count}/{len(row.finished)}"


MEASURES: Mapping[str, Measure] = MappingProxyType(
    {
        "validation_area": Measure(
            "area under validation", lambda data, run: held_out(data, run).area
        ),
        "training_area": Measure(
            "area under training", lambda data, run: data.series(run, TRAINING).area
        ),
        "last_success": Measure(
            "held-out success at the last step", lambda data, run: held_out(data, run).last
        ),
    }
)
"""By the names that an experiment's file may give (``scpo.schema.experiment.Measure``)."""

AREA = MEASURES["validation_area"]
FASTER = steps_to(0.5)
BETTER = MEASURES["last_success"]


def by_seed(data: Collected, row: Row, measure: Measure) -> dict[int, float | None]:
    """The measure of the row's finished runs by seed; None for a run that does not have it."""
    return row.by_seed(lambda run: measure.of(data, run))
