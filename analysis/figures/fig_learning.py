"""Learning curves: training rollouts and every validation panel, one line a row, mean and ± std band over seeds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis.figures.curves import curve, draw, is_trained, over_training
from analysis.naming import names
from analysis.naming.line_styles import plot_styles
from analysis.naming.methods import compared, left_out
from analysis.naming.names import Footnotes
from analysis.rendering.style import PAGE_WIDTH, REMARK, Drawing, house_style
from analysis.rendering.table import Block, Number, Table, percent
from analysis.sources.collect import Collected
from analysis.sources.rows import Row, Section, missing_runs

TRAINING = "train/success_rate"
ROW_HEIGHT, MARGIN = 1.4, 0.55  # inches
KEY_HEIGHT = 0.16  # inches a line of keys
MOST = 5  # benchmarks and models that fit on a page
REMARK_CHARACTERS = 125  # that fit into the page width above the panels
LEGEND_CHARACTERS = 122  # that fit into the page width at the legend's font size, keys included
HEADLINE = "Mean ± std over seeds (finished/planned{counts})."
HEADLINES = {
    "mini": f"Mini scale, not comparable with the paper. {HEADLINE} One or two seeds do not separate methods.",
    "study": f"Study scale (a choice policy after a short imitation start), not comparable with the paper. {HEADLINE}",
    "paper": HEADLINE,
}
CAPTION = (
    "Learning curves: success rate, on WebShop the score too, over training. Lines are means over the finished seeds "
    "at the steps that all of them have, bands ± one standard deviation; each benchmark and model has a line of "
    "panels. Methods that only prompt have no curve. "
    "The table gives the value before training, at the last checkpoint and at each run's best, which is optimistic."
)
Styles = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Panel:
    """One pair of axes: a metric with values in [0, 1], and what stands above it."""

    metric: str
    title: str
    label: str = "success (%)"


@dataclass(frozen=True)
class Strip:
    """A line of panels: one benchmark and model under one setting."""

    part: Section
    rows: tuple[Row, ...]
    panels: tuple[Panel, ...]


def build(data: Collected) -> Drawing:
    """One line of panels for each benchmark and model of one scale; MissingRunsError if no run has been trained."""
    strips = sorted(_strips(data), key=lambda strip: bool(strip.part.differs))
    if not strips:
        raise missing_runs("finished training runs", data.sections)
    drawn, notes = strips[:MOST], Footnotes()
    styles = plot_styles(row for strip in drawn for row in strip.rows)
    texts, columns, common = _keys(drawn, notes)
    with house_style():
        lines = -(-len(texts) // columns)
        figure = Figure(figsize=(PAGE_WIDTH, ROW_HEIGHT * len(drawn) + MARGIN + KEY_HEIGHT * lines))
        widest = max(len(strip.panels) for strip in drawn)
        axes = figure.subplots(len(drawn), widest, sharex="row", sharey=True, squeeze=False)
        for strip, line in zip(drawn, axes, strict=True):
            _draw_strip(data, strip, line, styles)
        handles, labels = [Line2D([], [], **styles[name]) for name in texts], list(texts.values())
        key = {"ncols": columns, "handlelength": 3.2, "columnspacing": 1.4, "fontsize": 7}
        figure.legend(handles, labels, loc="outside lower center", **key)
        headline = HEADLINES[drawn[0].part.scale].format(counts=f": {common}" if common else "")
        remark = f"{headline}{notes.text}{_not_drawn(strips[MOST:])}"
        figure.suptitle(fill(remark, REMARK_CHARACTERS), fontsize=6.5, color=REMARK)
    return Drawing(figure, _numbers(data, strips, notes))


def _strips(data: Collected) -> Iterator[Strip]:
    for part in data.sections:
        if rows := compared([row for row in part.rows if _curves(data, row)]):
            yield Strip(part, rows, tuple(_panels(data, part, rows)))


def _has_curve(data: Collected, run: str) -> bool:
    metrics = (TRAINING, *(names.success_metric(panel) for panel in data.panels(run)))
    return any(len(data.series(run, metric).steps) > 1 for metric in metrics)


def _panels(data: Collected, part: Section, rows: Sequence[Row]) -> Iterator[Panel]:
    runs = {run for row in rows for run in row.finished}
    known = names.panel_order({panel for run in runs for panel in data.panels(run)})
    logged = {metric for run in runs for metric in data.metric_names(run)}
    if TRAINING in logged:
        yield Panel(TRAINING, "training:\nrollouts as sampled")
    for panel in known:
        yield Panel(names.success_metric(panel), f"validation:\n{_panel_title(part, panel)}")
    for panel in known:
        if f"val/{panel}/score" in logged:
            yield Panel(f"val/{panel}/score", f"validation, score:\n{_panel_title(part, panel)}", "score (%)")


def _panel_title(part: Section, panel: str) -> str:
    return names.panel_title(part.env, panel)


def _draw_strip(data: Collected, strip: Strip, line: Sequence[Axes], styles: Styles) -> None:
    for panel, axis in zip(strip.panels, line, strict=False):
        every_step = panel.metric == TRAINING
        for row in strip.rows:
            style = styles[row.name] | ({"marker": ""} if every_step else {})
            made = curve(data, row, panel.metric)
            if made.steps:
                draw(axis, made, style, factor=100, crowd=len(strip.rows))
        axis.set_title(panel.title)
        over_training(axis)
    for axis in line[len(strip.panels) :]:
        axis.set_visible(False)
    line[0].set_ylabel(f"{fill(names.setting(strip.part), 24)}\n{strip.panels[0].label}", fontsize=6.5)


def _keys(strips: Sequence[Strip], notes: Footnotes) -> tuple[dict[str, str], int, str]:
    """A text for each row, how many stand in a line, and the number of seeds where all rows have the same.

    Where rows differ in it, the number of seeds stands beside each.
    """
    rows = [row for strip in strips for row in strip.rows]
    counts = {row.name: ", ".join(dict.fromkeys(one.count for one in rows if one.name == row.name)) for row in rows}
    marks = {row.name: notes.mark(row.differs) for row in rows if row.differs}
    labels = {row.name: f"{row.label}{marks.get(row.name, '')}" for row in rows}
    common = set(counts.values()).pop() if len(set(counts.values())) == 1 else ""
    texts = labels if common else {name: f"{label}, {counts[name]}" for name, label in labels.items()}
    columns = max(1, min(len(texts), LEGEND_CHARACTERS // (max(map(len, texts.values())) + 9)))
    return texts, columns, common


def _not_drawn(strips: Sequence[Strip]) -> str:
    return f" Not drawn, in the table: {'; '.join(names.setting(strip.part) for strip in strips)}." if strips else ""


def _numbers(data: Collected, strips: Sequence[Strip], notes: Footnotes) -> Table:
    scale = strips[0].part.scale
    rows = [row for strip in strips for row in strip.part.rows if row.finished and _curves(data, row)]
    rest = left_out(rows, (row for strip in strips for row in strip.rows))
    return Table(
        words=("Panel", "Row", "Seeds"),
        numbers=("Before", "Last", "Best"),
        blocks=tuple(
            Block(f"{names.setting(strip.part)}, {scale} scale", tuple(_values(data, strip, notes))) for strip in strips
        ),
        caption=names.with_note(f"{CAPTION}{notes.text}{_not_drawn(strips[MOST:])}{rest}", scale),
        label=f"tab:learning-{scale}",
    )


def _curves(data: Collected, row: Row) -> bool:
    """Whether it has finished runs that were trained; prompting agents have no curve."""
    return is_trained(data, row) and any(_has_curve(data, run) for run in row.finished)


def _values(data: Collected, strip: Strip, notes: Footnotes) -> Iterator[tuple[str | Number, ...]]:
    for panel in strip.panels:
        for row in strip.rows:
            title = panel.title.replace("\n", " ")
            label = f"{row.label}{notes.mark(row.differs)}"
            cells = (percent(data.summary(row, panel.metric, which)) for which in ("before", "last", "best"))
            yield (title, label, row.count, *cells)
