"""Learning curves of training rollouts and every validation panel: mean and ± std over seeds."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from textwrap import fill

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import names
from analysis.figures.curves import Styles, curve, draw, over_training, row_styles
from analysis.names import Footnotes, compared, left_out
from analysis.rendering.style import (
    NARROW,
    PAGE_HEIGHT,
    PAGE_WIDTH,
    REMARK_LINE,
    SMALL,
    Drawing,
    canvas_width,
    house_style,
    legend_below,
    legend_lines,
    new_figure,
    remark,
    remark_lines,
    text_scale,
)
from analysis.rendering.table import Block, Cells, Table, percent
from analysis.sources.collected import Collected, missing_runs
from analysis.sources.configurations import leaves
from analysis.sources.rows import Row, Section
from analysis.stats.study_rows import LEARNING_RATE
from scpo.progress import counted

TRAINING = "train/success_rate"

# Heights in inches.
ROW_HEIGHT = 1.5  # a line of panels
NARROW_HEIGHT = 1.2  # a panel in a single column
MARGIN = 0.5  # the remark
LEGEND_HEIGHT = 0.16  # a line of the legend

# Largest number of strips (benchmark and model), and of legend entries, on a page.
MOST, MOST_LEGEND_ENTRIES = 5, 12

# Order of solid lines: above bands, and below dashed lines, which they would hide where two curves
# are equal.
BELOW = 1.9

# Characters per line of a strip's label, which makes it about as high as its panel.
LABEL_CHARACTERS = 20
HEADLINE = "Mean ± std over seeds (finished/planned)."
HEADLINES = {
    "mini": (
        f"Mini scale, not comparable with the paper. {HEADLINE} One or two seeds do not separate "
        "methods."
    ),
    "study": (
        "Study scale (a choice policy after a short imitation start), not comparable with the "
        f"paper. {HEADLINE}"
    ),
    "paper": HEADLINE,
}
CAPTION = (
    "Learning curves: success rate, on WebShop the score too, over training. Lines are means over "
    "the finished seeds at the steps that all of them have, bands ± one standard deviation; each "
    "benchmark and model has a line of panels. Methods that only prompt have no curve. The table "
    "gives the value before training, at the last checkpoint and the highest one of each run, "
    "which is optimistic: of the score the highest score itself, where tab_main has the score at "
    "the checkpoint of highest success."
)


@dataclass(frozen=True)
class Panel:
    """One pair of axes: a metric with values in [0, 1], its title and axis label."""

    metric: str
    title: str
    label: str = "success (%)"


@dataclass(frozen=True)
class Strip:
    """A line of panels: one benchmark and model under one setting."""

    part: Section
    rows: tuple[Row, ...]
    panels: tuple[Panel, ...]

    @property
    def usual_count(self) -> str:
        """The most frequent seed count (finished/planned) of its rows."""
        return Counter(row.count for row in self.rows).most_common(1)[0][0]

    @property
    def counts(self) -> str:
        """Range of the seed counts (finished/planned) of its rows."""
        ordered = sorted({row.count for row in self.rows}, key=_as_numbers)
        if len(ordered) == 1:
            return ordered[0]
        return f"{ordered[0]} to {ordered[-1]}"

    def label(self, notes: Footnotes, drawn: Sequence["Strip"]) -> str:
        """Label of its panels: benchmark, model and seeds.

        A footnote names its setting, if the same benchmark and model are drawn under another one.
        """
        place = names.setting(replace(self.part, differs=""))
        # With several strips the legend has no seed counts, so the label has their range.
        count = self.usual_count if len(drawn) == 1 else self.counts
        mark = notes.mark(self.part.differs) if self.has_other_setting(drawn) else ""
        return f"{place}{mark}, {count} seeds"

    def has_other_setting(self, strips: Sequence["Strip"]) -> bool:
        """True if the strips also have its benchmark and model under another setting."""
        here = (self.part.env, self.part.model)
        return sum((strip.part.env, strip.part.model) == here for strip in strips) > 1


def _as_numbers(count: str) -> tuple[int, ...]:
    return tuple(int(part) for part in count.split("/"))


def build(data: Collected) -> Drawing:
    """Panels for each benchmark and model of one scale; MissingRunsError if no run was trained."""
    strips = _without_repeats(
        sorted(_strips(data), key=lambda strip: bool(strip.part.differs)),
    )
    if not strips:
        raise missing_runs("finished training runs", data.sections)
    notes = Footnotes()
    with house_style():
        drawn, others = _drawn(data, strips)
        labels = _labels(data, drawn, notes)
        settings = [strip.label(notes, drawn) for strip in drawn]
        text = f"{HEADLINES[drawn[0].part.scale]}{notes.text}"
        text += _only_in_table(drawn, others)
        margin = REMARK_LINE * remark_lines(text, canvas_width(PAGE_WIDTH))
        figure = _draw(data, drawn, settings, labels, max(MARGIN, margin))
        remark(figure, text)
    return Drawing(figure, _numbers(data, strips, drawn, notes))


# Data


def _strips(data: Collected) -> Iterator[Strip]:
    for part in data.sections:
        with_curves = [row for row in part.rows if _has_curves(data, row)]
        rows = compared(with_curves, data.chosen)
        if rows:
            yield Strip(part, rows, tuple(_panels(data, part, rows)))


def _without_repeats(strips: Sequence[Strip]) -> list[Strip]:
    """Drop strips whose runs are all in earlier ones.

    For example, an ablation with several methods draws only its methods, whose runs the main table
    has, too.
    """
    kept: list[Strip] = []
    seen: set[str] = set()
    for strip in strips:
        runs = {run for row in strip.rows for run in row.finished}
        if not runs <= seen:
            kept.append(strip)
        seen |= runs
    return kept


def _drawn(data: Collected, strips: Sequence[Strip]) -> tuple[list[Strip], list[Strip]]:
    """Split strips into those to draw and those for the table only.

    A strip whose setting is not the usual one of its benchmark is drawn if the legend has at most
    ``MOST_LEGEND_ENTRIES`` entries with it, or if the user chose rows. In a single column, where
    panels are below each other, strips after the first are drawn if they fit on the page.
    """
    most_panels = _most_panels()
    drawn: list[Strip] = []
    others: list[Strip] = []
    entries: set[str] = set()
    for strip in strips:
        all_entries = entries | {row.name for row in strip.rows}
        # The usual setting is drawn however many rows it has.
        always_drawn = data.chosen or not strip.part.differs
        fits_legend = always_drawn or len(all_entries) <= MOST_LEGEND_ENTRIES
        panels = sum(len(other.panels) for other in (*drawn, strip))
        fits_page = panels <= most_panels or not drawn
        if len(drawn) < MOST and fits_legend and fits_page:
            drawn.append(strip)
            entries = all_entries
        else:
            others.append(strip)
    return drawn, others


def _most_panels() -> float:
    """Number of panels that fit below each other on a page; no limit for a wide figure."""
    width = canvas_width(PAGE_WIDTH)
    if width >= NARROW:
        return math.inf
    # A narrow legend has about three columns.
    legend_height = LEGEND_HEIGHT * math.ceil(MOST_LEGEND_ENTRIES / 3)
    height = PAGE_HEIGHT / text_scale() - 2 * MARGIN - legend_height
    return height // NARROW_HEIGHT


def _has_curves(data: Collected, row: Row) -> bool:
    """True if the row has a finished, trained run with a curve."""
    return data.is_trained(row) and any(_has_curve(data, run) for run in row.finished)


def _has_curve(data: Collected, run: str) -> bool:
    metrics = [TRAINING]
    metrics += [names.success_metric(panel) for panel in data.panels(run)]
    return any(len(data.series(run, metric).steps) > 1 for metric in metrics)


def _panels(data: Collected, part: Section, rows: Sequence[Row]) -> Iterator[Panel]:
    runs = {run for row in rows for run in row.finished}
    known = names.panel_order({panel for run in runs for panel in data.panels(run)})
    logged = {metric for run in runs for metric in data.metric_names(run)}
    if TRAINING in logged:
        yield Panel(TRAINING, "training:\nrollouts as sampled")
    for panel in known:
        title = names.panel_title(part.env, panel)
        yield Panel(names.success_metric(panel), f"validation:\n{title}")
    for panel in known:
        metric = f"val/{panel}/score"
        if metric in logged:
            title = names.panel_title(part.env, panel)
            yield Panel(metric, f"validation, score:\n{title}", "score (%)")


def _labels(data: Collected, strips: Sequence[Strip], notes: Footnotes) -> dict[str, str]:
    """Legend label of each row, with a footnote's mark, and its seed count if that is unusual.

    With several strips the strips' labels have the seed counts instead: they share one legend, and
    a row may have different seeds in each of them.
    """
    # Row name -> settings that the row has in a strip -> its label there.
    labels: dict[str, dict[str, str]] = {}
    additions: dict[str, str] = {}
    for strip in strips:
        for row in strip.rows:
            labels.setdefault(row.name, {}).setdefault(_of_method(data, row), row.label)
            added = additions.setdefault(row.name, "")
            # Called for drawn strips only, because it adds footnotes to the figure.
            for mark in _marks(row, strip, strips, notes):
                if mark not in added:
                    added += mark
            if len(strips) == 1 and row.count != strip.usual_count:
                added += f", {row.count}"
            additions[row.name] = added
    # Rows of one name share a line style.
    return {
        name: " / ".join(dict.fromkeys(own.values())) + additions[name]
        for name, own in labels.items()
    }


def _of_method(data: Collected, row: Row) -> str:
    """The settings of a row's method and its learning rate, as text."""
    config = data.by_id[row.finished[0]].config if row.finished else {}
    method = dict(config.get("method") or {})
    method.pop("label", None)
    rate = dict(leaves(config)).get(LEARNING_RATE)
    return json.dumps([method, rate], sort_keys=True, default=str)


def _marks(row: Row, strip: Strip, drawn: Sequence[Strip], notes: Footnotes) -> tuple[str, ...]:
    """Marks of a row's settings and seeds, where they differ from those of its strip's others."""
    texts = (_difference(row, strip, drawn), strip.part.aside(row))
    return tuple(notes.mark(text) for text in texts)


def _difference(row: Row, strip: Strip, drawn: Sequence[Strip]) -> str:
    """Describe the settings in which a row differs from the others of its strip.

    The strips share one legend, so the text begins with the strip's benchmark unless the row
    differs in the same way in all of them. For example, SCPO may have a learning rate of its own on
    ALFWorld only.
    """
    if not row.differs or strip not in drawn:
        return row.differs
    if all(other.part.row(row.name).differs == row.differs for other in drawn):
        return row.differs
    envs = {other.part.env for other in drawn}
    models = {other.part.model for other in drawn}
    places = []
    if len(envs) > 1:
        places.append(names.benchmark(strip.part.env))
    if len(models) > 1:
        places.append(names.model(strip.part.model))
    if strip.has_other_setting(drawn):
        places.append(_apart(strip.part) or "the usual setting")
    return f"{', '.join(places)}: {row.differs}"


def _apart(part: Section) -> str:
    return part.differs or names.rewording(part) or part.seeds


def _only_in_table(drawn: Sequence[Strip], others: Sequence[Strip]) -> str:
    """Sentence that names the benchmarks that are not drawn, and counts the other settings."""
    here = {(strip.part.env, strip.part.model) for strip in drawn}
    places: dict[str, None] = {}
    settings = 0
    for strip in others:
        if (strip.part.env, strip.part.model) in here:
            settings += 1
        else:
            places[f"{names.benchmark(strip.part.env)}, {names.model(strip.part.model)}"] = None
    parts = [*places, *([counted(settings, "other setting")] if settings else [])]
    return f" Only in the table: {'; '.join(parts)}." if parts else ""


# Drawing


def _draw(
    data: Collected,
    strips: Sequence[Strip],
    settings: Sequence[str],
    labels: dict[str, str],
    margin: float,
) -> Figure:
    """Draw the strips; ``margin``: height above the panels, in inches."""
    width = canvas_width(PAGE_WIDTH)
    narrow = width < NARROW
    columns = 1 if narrow else max(len(strip.panels) for strip in strips)

    # Number of lines of panels that each strip takes.
    lines = [math.ceil(len(strip.panels) / columns) for strip in strips]
    legend_height = LEGEND_HEIGHT * legend_lines(list(labels.values()), width)
    height = (NARROW_HEIGHT if narrow else ROW_HEIGHT) * sum(lines) + margin + legend_height
    figure = new_figure(width, height)
    styles = row_styles(data, (row for strip in strips for row in strip.rows))
    # Step axes are not shared, because benchmarks may train for different numbers of steps.
    axes = figure.subplots(sum(lines), columns, sharex=False, sharey=True, squeeze=False)
    start = 0
    for strip, setting, count in zip(strips, settings, lines, strict=True):
        _draw_strip(data, strip, setting, axes[start : start + count], styles)
        start += count
    handles = [Line2D([], [], **styles[name]) for name in labels]
    legend_below(figure, handles, list(labels.values()), handlelength=3.2)
    return figure


def _draw_strip(
    data: Collected, strip: Strip, setting: str, axes: np.ndarray, styles: Styles
) -> None:
    one_column = axes.shape[1] == 1
    for axis in axes.flat[len(strip.panels) :]:
        axis.set_visible(False)
    for panel, axis in zip(strip.panels, axes.flat, strict=False):
        for row in strip.rows:
            style = styles[row.name]
            # Training success is logged at every step; markers would hide the line.
            if panel.metric == TRAINING:
                style = style | {"marker": "", "zorder": BELOW if style["linestyle"] == "-" else 2}
            points = curve(data, row, panel.metric)
            if points.steps:
                draw(axis, points, style, factor=100, crowd=len(strip.rows))
        axis.set_title(panel.title.replace("\n", " ") if one_column else panel.title)
        over_training(axis)
        if one_column and panel is not strip.panels[-1]:
            # The panels of a strip have the same steps.
            axis.set_xlabel("")

    label = fill(setting, LABEL_CHARACTERS)
    columns = axes.shape[1]
    for start, line in zip(range(0, len(strip.panels), columns), axes, strict=True):
        panels = strip.panels[start : start + columns]
        line[0].set_ylabel(f"{label}\n{panels[0].label}", fontsize=SMALL)
        # Readers take the leftmost label for all panels of a line, so other labels are printed too.
        for axis, panel, before in zip(line[1:], panels[1:], panels, strict=False):
            if panel.label != before.label:
                axis.set_ylabel(panel.label, fontsize=SMALL)


# Numbers


def _numbers(
    data: Collected,
    strips: Sequence[Strip],
    drawn: Sequence[Strip],
    notes: Footnotes,
) -> Table:
    scale = strips[0].part.scale
    blocks = []
    rows: list[Row] = []
    for strip in strips:
        # The setting is named only if another strip has the same benchmark and model.
        part = strip.part if strip.has_other_setting(strips) else replace(strip.part, differs="")
        title = f"{names.setting(part)}, {scale} scale"
        blocks.append(Block(title, tuple(_values(data, strip, drawn, notes))))
        rows += [row for row in strip.part.rows if row.finished and _has_curves(data, row)]

    rest = left_out(rows, (row for strip in strips for row in strip.rows))
    others = [strip for strip in strips if strip not in drawn]
    seeds = names.own_seeds(strip.part for strip in strips)
    seeds += names.more_seeds_of((strip.part, strip.rows) for strip in strips)
    caption = f"{CAPTION}{notes.text}{seeds}{_not_drawn(others)}{rest}"
    return Table(
        words=("Panel", "Row", "Seeds"),
        numbers=("Before", "Last", "Highest"),
        blocks=tuple(blocks),
        caption=names.with_note(caption, scale),
        label=f"tab:learning-{scale}",
        footnotes=notes.texts,
    )


def _not_drawn(strips: Sequence[Strip]) -> str:
    if not strips:
        return ""
    settings = "; ".join(names.setting(strip.part) for strip in strips)
    return f" Not drawn, in the table: {settings}."


def _values(
    data: Collected, strip: Strip, drawn: Sequence[Strip], notes: Footnotes
) -> Iterator[Cells]:
    for panel in strip.panels:
        title = panel.title.replace("\n", " ")
        for row in strip.rows:
            yield (
                title,
                row.label + "".join(_marks(row, strip, drawn, notes)),
                row.count,
                percent(data.summary(row, panel.metric, "before")),
                percent(data.summary(row, panel.metric, "last")),
                percent(data.summary(row, panel.metric, "best")),
            )
