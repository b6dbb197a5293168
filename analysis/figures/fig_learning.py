"""Learning curves: training rollouts and every validation panel, one line a row, mean and ± std band over seeds."""

from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from analysis.families import PANELS, panel_order, success_metric
from analysis.figures.curves import curve, draw
from analysis.methods import compared
from analysis.missing import missing_runs
from analysis.rows import Row, Section
from analysis.sources.collect import Collected
from analysis.style import PAGE_WIDTH, REMARK, house_style, line_styles

TRAINING = "train/success_rate"
ROW_HEIGHT, MARGIN = 1.45, 0.75  # inches
LEGEND_CHARACTERS = 122  # that fit into the page width at the legend's font size, keys included
HEADLINE = "Mean ± std over seeds (finished/planned{counts})."
HEADLINES = {
    "mini": f"Mini scale, not comparable with the paper. {HEADLINE} One or two seeds do not separate methods.",
    "study": f"Study scale (a choice policy after a short imitation start), not comparable with the paper. {HEADLINE}",
    "paper": HEADLINE,
}


@dataclass(frozen=True)
class Panel:
    """One pair of axes: a metric with values in [0, 1], and what stands above it."""

    metric: str
    title: str
    label: str = "success (%)"


def build(data: Collected) -> Figure:
    """One row of panels for each benchmark and model of one scale; MissingRunsError if no run has been trained."""
    parts = [part for part in data.sections if _trained(data, part)]
    if not parts:
        raise missing_runs("finished training runs", data.sections)
    panels = [_panels(data, part) for part in parts]
    names = list(dict.fromkeys(row.name for part in parts for row in _trained(data, part)))
    styles = line_styles(names)
    with house_style():
        figure = Figure(figsize=(PAGE_WIDTH, ROW_HEIGHT * len(parts) + MARGIN))
        axes = figure.subplots(len(parts), max(map(len, panels)), sharex="row", sharey=True, squeeze=False)
        for part, shown, line in zip(parts, panels, axes, strict=True):
            for panel, axis in zip(shown, line, strict=False):
                for row in _trained(data, part):
                    look = styles[row.name] | ({"marker": "", "linewidth": 1.0} if _every_step(panel) else {})
                    draw(axis, curve(data, row, panel.metric), look, factor=100)
                _dress(axis, panel)
            for axis in line[len(shown) :]:
                axis.set_visible(False)
            line[0].set_ylabel(f"{part.env}, {_model(data, part)}\n{shown[0].label}")
        _legend(figure, axes[0][0], [(part, _trained(data, part)) for part in parts], styles)
    return figure


def _trained(data: Collected, part: Section) -> tuple[Row, ...]:
    """What is compared, of the rows with finished runs that were trained; prompting agents have no curve."""
    return compared([row for row in part.rows if any(_has_curve(data, run) for run in row.finished)])


def _has_curve(data: Collected, run: str) -> bool:
    metrics = (TRAINING, *(success_metric(panel) for panel in data.panels(run)))
    return any(len(data.series(run, metric).steps) > 1 for metric in metrics)


def _panels(data: Collected, part: Section) -> list[Panel]:
    runs = {run for row in part.rows for run in row.finished}
    known = panel_order({panel for run in runs for panel in data.panels(run)})
    logged = {metric for run in runs for metric in data.metric_names(run)}
    success = [Panel(success_metric(panel), f"validation:\n{_panel_title(part, panel)}") for panel in known]
    scores = [
        Panel(f"val/{panel}/score", f"validation, score:\n{_panel_title(part, panel)}", "score (%)") for panel in known
    ]
    return [
        Panel(TRAINING, "training:\nrollouts as sampled"),
        *success,
        *(one for one in scores if one.metric in logged),
    ]


def _panel_title(part: Section, panel: str) -> str:
    if part.env.startswith("webshop"):
        return {"train_games": "goals trained on", "test": "held-out goals"}.get(panel, panel)
    return PANELS.get(panel, panel)


def _every_step(panel: Panel) -> bool:
    return panel.metric == TRAINING


def _dress(axis: Axes, panel: Panel) -> None:
    axis.set_title(panel.title)
    axis.set_ylim(0, 100)
    axis.set_yticks(range(0, 101, 25))
    axis.set_xlabel("training step")
    axis.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 2.5, 5, 10]))


def _model(data: Collected, part: Section) -> str:
    """The model, with the setting where one benchmark has several (they differ in more than the method)."""
    same = [one for one in data.sections if (one.env, one.model) == (part.env, part.model)]
    return part.model if len(same) == 1 else f"{part.model} [{part.setting}]"


def _legend(
    figure: Figure, axis: Axes, parts: list[tuple[Section, tuple[Row, ...]]], styles: dict[str, dict[str, Any]]
) -> None:
    """One key a row. Numbers of seeds stand in the headline if all rows have the same, else beside each row."""
    counts = {name: _counts(parts, name) for name in styles}
    labels = {row.name: row.label for _, rows in parts for row in rows}
    common = set(counts.values()).pop() if len(set(counts.values())) == 1 else ""
    handles = [axis.plot([], [], **style)[0] for style in styles.values()]
    texts = [labels[name] if common else f"{labels[name]}, {counts[name]}" for name in styles]
    columns = max(1, min(len(texts), LEGEND_CHARACTERS // (max(map(len, texts)) + 9)))
    figure.legend(handles, texts, loc="outside lower center", ncols=columns, handlelength=2.6, columnspacing=1.4)
    headline = HEADLINES[parts[0][0].scale]
    figure.suptitle(headline.format(counts=f": {common}" if common else ""), fontsize=6.5, color=REMARK)


def _counts(parts: list[tuple[Section, tuple[Row, ...]]], name: str) -> str:
    return ", ".join(dict.fromkeys(row.count for _, rows in parts for row in rows if row.name == name))
