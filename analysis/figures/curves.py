"""Curves over training: one metric of a row's seeds, as mean and spread at each step that all of them have."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from analysis.sources.collect import Collected
from analysis.sources.rows import Row
from analysis.stats.seed_statistics import moving_average
from scpo.intervals import Summary, summarise

FEW = 6  # lines whose bands can be told apart
MARKS = 6  # of a line
FEWEST = 3  # seeds or pairs for an interval: of two it is as wide as the panel


@dataclass(frozen=True)
class Curve:
    """Steps and the summary over seeds at each of them."""

    steps: list[int]
    summaries: list[Summary]


def curve(data: Collected, row: Row, metric: str, *, window: int = 1, first: int = 0) -> Curve:
    """The row's finished seeds, each smoothed over ``window`` logged values, from step ``first`` on.

    Steps that one of the seeds lacks are left out: the mean at every step is over the same seeds.
    """
    series = [data.series(run, metric) for run in row.finished]
    shared = sorted(set.intersection(*(set(one.steps) for one in series))) if series else []
    smooth = [dict(zip(one.steps, moving_average(one.values, window), strict=True)) for one in series]
    steps = [step for step in shared if step >= first]
    return Curve(steps, [summarise(one[step] for one in smooth) for step in steps])


def is_trained(data: Collected, row: Row) -> bool:
    """Whether its finished runs train anything; a method that only prompts logs one number at both ends."""
    methods = (data.by_id[run].config.get("method") for run in row.finished)
    return any(not isinstance(method, dict) or method.get("kind") != "prompted" for method in methods)


def over_training(axis: Axes, *, percent: bool = True) -> None:
    """Training steps below and, unless told otherwise, percent beside."""
    if percent:
        axis.set_ylim(0, 100)
        axis.set_yticks(range(0, 101, 25))
    axis.set_xlabel("training step")
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 2.5, 5, 10]))


def draw(axis: Axes, made: Curve, style: dict[str, Any], *, factor: float = 1, crowd: int = 1) -> None:
    """Mean as a line with about ``MARKS`` markers, ± one standard deviation as a band, fainter among a ``crowd``.

    One seed has no spread.
    """
    mean = factor * np.array([one.mean for one in made.summaries])
    spread = factor * np.array([one.std if one.n > 1 else 0.0 for one in made.summaries])
    axis.plot(made.steps, mean, markevery=max(1, len(made.steps) // MARKS), **style)
    alpha = 0.15 if crowd <= FEW else 0.06
    axis.fill_between(made.steps, mean - spread, mean + spread, color=str(style["color"]), alpha=alpha, linewidth=0)
