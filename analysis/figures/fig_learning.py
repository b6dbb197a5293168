"""Learning curves: training rollouts and every validation panel, one line a row, mean and ± std band over seeds."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.collect import Collected
from analysis.families import PANELS, panel_order, success_metric
from analysis.missing import MissingRunsError
from analysis.rows import Row, Section
from analysis.stats import Summary, summarise
from analysis.style import PAGE_WIDTH, house_style, line_styles

TRAINING = "train/success_rate"
MARKERS_PER_LINE = 6
ROW_HEIGHT, MARGIN = 1.45, 0.75  # inches
LEGEND_CHARACTERS = 122  # that fit into the page width at the legend's font size, keys included
REMARK = "Mean ± std over seeds (finished/planned{counts})."
MINI_REMARK = f"Mini scale. {REMARK} Two seeds do not separate the methods; not comparable with the paper."


def build(data: Collected) -> Figure:
    """One row of panels for each benchmark and model of one scale; MissingRunsError if no run has finished."""
    parts = [part for part in data.sections if any(row.finished for row in part.rows)]
    if not parts:
        command = "\n".join(dict.fromkeys(part.command for part in data.sections))
        raise MissingRunsError("finished runs", command or "python sweep.py +experiment=ablation")
    columns = (TRAINING, *_panels(data, parts))
    names = list(dict.fromkeys(row.name for part in parts for row in part.rows))
    styles = line_styles(names)
    with house_style():
        figure = Figure(figsize=(PAGE_WIDTH, ROW_HEIGHT * len(parts) + MARGIN))
        axes = figure.subplots(len(parts), len(columns), sharex="row", sharey=True, squeeze=False)
        for part, line in zip(parts, axes, strict=True):
            for column, axis in zip(columns, line, strict=True):
                for row in part.rows:
                    _draw(axis, data, row, column, styles[row.name])
                _dress(axis, column)
            line[0].set_ylabel(f"{part.env}, {_model(data, part)}\nsuccess (%)")
        for axis in axes[-1]:
            axis.set_xlabel("training step")
        _legend(figure, axes[0][0], parts, styles)
    return figure


def curve(data: Collected, row: Row, metric: str) -> tuple[list[int], list[Summary]]:
    """Steps at which every finished seed of the row has a value, and the summary over seeds at each."""
    series = [data.series(run, metric) for run in row.finished]
    shared = sorted(set.intersection(*(set(one.steps) for one in series))) if series else []
    values = [dict(zip(one.steps, one.values, strict=True)) for one in series]
    return shared, [summarise(one[step] for one in values) for step in shared]


def _panels(data: Collected, parts: list[Section]) -> tuple[str, ...]:
    runs = {run for part in parts for row in part.rows for run in row.finished}
    return tuple(success_metric(panel) for panel in panel_order({panel for run in runs for panel in data.panels(run)}))


def _draw(axis: Axes, data: Collected, row: Row, metric: str, style: dict[str, Any]) -> None:
    steps, summaries = curve(data, row, metric)
    mean = [100 * one.mean for one in summaries]
    spread = [100 * one.std if one.n > 1 else 0.0 for one in summaries]
    look = style | {"marker": "", "linewidth": 1.0} if metric == TRAINING else style
    axis.plot(steps, mean, markevery=max(1, len(steps) // MARKERS_PER_LINE), **look)
    low = [value - half for value, half in zip(mean, spread, strict=True)]
    high = [value + half for value, half in zip(mean, spread, strict=True)]
    axis.fill_between(steps, low, high, color=str(style["color"]), alpha=0.15, linewidth=0)


def _dress(axis: Axes, metric: str) -> None:
    panel = metric.split("/")[1]
    title = "training:\nrollouts as sampled" if metric == TRAINING else f"validation:\n{PANELS.get(panel, panel)}"
    axis.set_title(title)
    axis.set_ylim(0, 100)
    axis.set_yticks(range(0, 101, 25))
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 2.5, 5, 10]))


def _model(data: Collected, part: Section) -> str:
    """The model, with the setting where one benchmark has several (they differ in more than the method)."""
    same = [one for one in data.sections if (one.env, one.model) == (part.env, part.model)]
    return part.model if len(same) == 1 else f"{part.model} [{part.setting}]"


def _legend(figure: Figure, axis: Axes, parts: list[Section], styles: dict[str, dict[str, Any]]) -> None:
    """One key a row. Numbers of seeds stand in the headline if all rows have the same, else beside each row."""
    counts = {name: _counts(parts, name) for name in styles}
    labels = {row.name: row.label for part in parts for row in part.rows}
    common = set(counts.values()).pop() if len(set(counts.values())) == 1 else ""
    handles = [axis.plot([], [], **style)[0] for style in styles.values()]
    texts = [labels[name] if common else f"{labels[name]}, {counts[name]}" for name in styles]
    columns = max(1, min(len(texts), LEGEND_CHARACTERS // (max(map(len, texts)) + 9)))
    figure.legend(handles, texts, loc="outside lower center", ncols=columns, handlelength=2.6, columnspacing=1.4)
    remark = MINI_REMARK if parts[0].scale == "mini" else REMARK
    figure.suptitle(remark.format(counts=f": {common}" if common else ""), fontsize=7, color="#444444")


def _counts(parts: list[Section], name: str) -> str:
    return ", ".join(dict.fromkeys(row.count for part in parts for row in part.rows if row.name == name))
