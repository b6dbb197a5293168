"""Measures of a run: area under its curve, steps to a success rate, success at the last step.

The area covers the whole training; steps to 50 % show whether a method learns *faster*; success at
the last step shows whether it ends *better*. Each measure is defined here and nowhere else.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from analysis.names import success_metric
from analysis.sources.rows import Row
from analysis.sources.run_records import Run
from analysis.sources.series import Series, make_series
from scpo.benchmarks import TRAINED_ON
from scpo.intervals import Summary, summarise

# Success of the training rollouts.
TRAINING = "train/success_rate"

# Success rates for ``steps_to``.
LEVELS = (0.5, 0.8)

# Largest number of training steps that a sentence lists.
MOST_STEPS = 6


class Logged(Protocol):
    """What runs have logged: ``Collected``, or ``analysis.stats.named`` without pandas."""

    @property
    def by_id(self) -> Mapping[str, Run]: ...
    def series(self, run: str, metric: str) -> Series: ...
    def panels(self, run: str) -> tuple[str, ...]: ...


def logged_steps(data: Logged, rows: Iterable[Row], metrics: Iterable[str]) -> str:
    """The training steps at which finished runs of these rows have logged any of the metrics.

    Returns:
        For example ``training steps 20, 40``, or ``40 training steps from 1 to 40``; empty if none
        is logged.
    """
    runs = {run for row in rows for run in row.finished}
    steps = sorted(
        {step for run, metric in product(runs, metrics) for step in data.series(run, metric).steps}
    )
    if len(steps) > MOST_STEPS:
        return f"{len(steps)} training steps from {steps[0]} to {steps[-1]}"
    listed = ", ".join(map(str, steps))
    return f"training step{'s' if len(steps) > 1 else ''} {listed}" if steps else ""


@dataclass(frozen=True)
class Measure:
    """A number of a run.

    Attributes:
        label: Name in print.
        of: Returns the number of a run by its id; None if the run did not log what it needs.
        factor: Factor from the number to its printed unit, e.g. 100 for percent.
        unit: Printed unit.
        digits: Number of printed decimals.
        sign: 1 if higher is better, -1 if lower is better.
    """

    label: str
    of: Callable[[Logged, str], float | None]
    factor: float = 100
    unit: str = "%"
    digits: int = 1
    sign: int = 1

    @property
    def difference_unit(self) -> str:
        """Unit of differences: points for percentages, else the same unit."""
        return "points" if self.unit == "%" else self.unit


def held_out(data: Logged, run: str) -> Series:
    """Success over the games of all held-out panels, at steps at which all panels were played."""
    panels = [panel for panel in data.panels(run) if panel != TRAINED_ON]
    return _over(data, run, panels)


def judged(data: Logged, run: str) -> Series:
    """Success by which a run is judged: on held-out games, or at mini scale on those trained on.

    The tiny language model of mini scale improves only on the games that it trains on.
    """
    if data.by_id[run].head.scale == "mini":
        return _over(data, run, [TRAINED_ON])
    return held_out(data, run)


def _over(data: Logged, run: str, panels: list[str]) -> Series:
    rates = [data.series(run, success_metric(panel)) for panel in panels]
    games = [data.series(run, f"val/{panel}/episodes") for panel in panels]
    # At other steps, the mean would be over other games.
    steps = set.intersection(*(set(rate.steps) for rate in rates)) if rates else set()
    return make_series((step, _pooled(rates, games, step)) for step in steps)


def _pooled(rates: list[Series], games: list[Series], step: int) -> float:
    """Mean over panels, weighted by their numbers of games; unweighted if these were not logged."""
    weights: list[Any] = [played.at(step) for played in games]
    values = [rate.values[rate.steps.index(step)] for rate in rates]
    pooled = float(np.average(values, weights=None if None in weights else weights))
    # Rounded so that half of the games is exactly 0.5, which ``first_at`` compares with a level.
    return round(pooled, 12)


def success_at(step: int) -> Measure:
    """Measure: held-out success after this training step."""
    return Measure(f"held out at step {step}", lambda data, run: held_out(data, run).at(step))


def steps_to(level: float) -> Measure:
    """Measure: training steps until ``judged`` success first reaches a level (interpolated).

    A run that never reaches it counts with its last step, as in the restricted mean of survival
    analysis. If such runs were left out, a method that fails more often would look better. A run
    with fewer than two validations has no value.
    """

    def of(data: Logged, run: str) -> float | None:
        series = judged(data, run)
        if len(series.steps) < 2:
            return None
        reached = series.first_at(level)
        if reached is not None:
            return reached
        return float(series.steps[-1])

    return Measure(f"steps to {100 * level:.0f} %", of, factor=1, unit="steps", sign=-1)


def reaches(data: Logged, run: str, level: float) -> bool:
    """True if a run reaches the level at any validation."""
    return judged(data, run).first_at(level) is not None


def how_many_reach(data: Logged, row: Row, level: float) -> str:
    """Finished runs that reach the level, out of all finished runs, e.g. ``18/20``."""
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
"""Measures by their names in experiments' files (``scpo.schema.experiment.Measure``)."""

HALF = 0.5  # the level of success whose first step decides which row is faster

AREA = MEASURES["validation_area"]
FASTER = steps_to(HALF)
BETTER = MEASURES["last_success"]


def by_seed(data: Logged, row: Row, measure: Measure) -> dict[int, float | None]:
    """The measure of the row's finished runs by seed; None for a run without it."""
    return row.by_seed(lambda run: measure.of(data, run))


def over_seeds(data: Logged, row: Row, measure: Measure) -> Summary:
    """Summary of the measure over the row's finished runs that have it."""
    return summarise(by_seed(data, row, measure).values())
