"""Curves over training: one metric of a row's seeds, as mean and spread at each shared step."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from analysis.line_styles import plot_styles
from analysis.rendering.style import palette
from analysis.rendering.table import Number, difference
from analysis.sources.collected import Collected
from analysis.sources.rows import Row
from analysis.sources.series import Series
from scpo.intervals import Summary, summarise

# Largest number of lines whose bands can still be distinguished.
FEW = 6

# Number of markers on a line.
MARKS = 6

# With fewer seeds or pairs no interval is drawn: an interval of two is as wide as the panel.
FEWEST = 3

# Row name -> keyword arguments of ``plot``.
Styles: TypeAlias = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Curve:
    """Steps, and the summary over seeds at each of them."""

    steps: list[int]
    summaries: list[Summary]


# Data


def paired_difference(summary: Summary) -> Number:
    """Cell of a difference in points, with its interval only if the figure draws it."""
    shown = difference(summary)
    return shown if summary.n >= FEWEST else replace(shown, interval=None)


def curve(data: Collected, row: Row, metric: str, *, window: int = 1, first: int = 0) -> Curve:
    """Curve of a metric over the row's finished seeds.

    Args:
        data: The collected runs.
        row: The row.
        metric: Name of the metric in the records.
        window: Number of logged values in the moving average of each seed.
        first: First step of the curve.
    """
    smooth: list[Series] = []
    for run in row.finished:
        series = data.series(run, metric)
        smooth.append(Series(series.steps, tuple(moving_average(series.values, window))))
    return mean_curve(smooth, first=first)


def mean_curve(series: Sequence[Series], *, first: int = 0) -> Curve:
    """Summarise several series at their shared steps, from step ``first`` on.

    Other steps are left out, so that the mean at every step is over the same seeds.
    """
    shared = set.intersection(*(set(part.steps) for part in series)) if series else set()
    steps = sorted(step for step in shared if step >= first)
    return Curve(steps, [summarise(part.at(step) for part in series) for step in steps])


def moving_average(values: Sequence[float], window: int) -> list[float]:
    """Mean of the last ``window`` values at each place; of fewer at the beginning."""
    means = []
    for end in range(1, len(values) + 1):
        part = values[max(0, end - window) : end]
        means.append(math.fsum(part) / len(part))
    return means


# Drawing


def row_styles(data: Collected, rows: Iterable[Row], earlier: Styles | None = None) -> Styles:
    """Line style of each row by its name, in the colours of the user's style if given.

    Call it inside ``house_style``, which sets these colours.

    Args:
        data: The collected runs. A row has the same style whichever rows the user selected.
        rows: The rows.
        earlier: The styles of other panels of the figure, whose rows keep their colours.
    """
    kept = {name: style["color"] for name, style in (earlier or {}).items()}
    return plot_styles(rows, palette(), kept, data.experiment_rows)


def over_training(axis: Axes, *, percent: bool = True) -> None:
    """Label the axis of training steps and, if ``percent``, that of percentages."""
    if percent:
        axis.set_ylim(0, 100)
        axis.set_yticks(range(0, 101, 25))
    axis.set_xlabel("training step")
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 2.5, 5, 10]))


def draw(
    axis: Axes,
    points: Curve,
    style: dict[str, Any],
    *,
    factor: float = 1,
    crowd: int = 1,
) -> None:
    """Draw the mean as a line with a few markers, and ± one standard deviation as a band.

    Args:
        axis: The axes.
        points: The curve.
        style: Line style.
        factor: Factor from values to units of the axis, e.g. 100 for percent.
        crowd: Number of lines in the panel; bands are fainter among many.
    """
    mean = factor * np.array([summary.mean for summary in points.summaries])
    # The deviation of one seed is undefined; its band has no height.
    deviations = [summary.std if summary.n > 1 else 0.0 for summary in points.summaries]
    spread = factor * np.array(deviations)
    draw_band(axis, points.steps, mean - spread, mean + spread, style, crowd=crowd)
    draw_line(axis, points.steps, mean, style)


def draw_line(
    axis: Axes,
    steps: Sequence[float],
    values: Iterable[float],
    style: dict[str, Any],
) -> None:
    """Draw a line with about ``MARKS`` markers."""
    axis.plot(steps, list(values), markevery=max(1, len(steps) // MARKS), **style)


def draw_band(
    axis: Axes,
    steps: Sequence[float],
    low: np.ndarray,
    high: np.ndarray,
    style: dict[str, Any],
    *,
    crowd: int = 1,
) -> None:
    """Shade between two curves in a row's colour."""
    axis.fill_between(
        steps,
        low,
        high,
        color=str(style["color"]),
        alpha=0.15 if crowd <= FEW else 0.05,
        linewidth=0,
    )


def percentage_limits(lowest: float) -> tuple[float, float]:
    """Limits of an axis of percentages that begins at a multiple of ten.

    It begins at least 2 below ``lowest`` (but not below 0), so that a marker there does not touch
    the edge.
    """
    start = 10 * np.floor((lowest - 2) / 10) if np.isfinite(lowest) else 0.0
    return float(np.clip(start, 0, 90)), 101.0
