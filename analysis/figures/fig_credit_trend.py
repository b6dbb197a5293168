"""Credit over training by processing order: credited steps and mean auxiliary reward."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import names
from analysis.figures.curves import curve, draw, over_training, row_styles
from analysis.paper.published import credit
from analysis.rendering.style import (
    COLUMN_WIDTH,
    SMALL,
    Drawing,
    canvas_width,
    house_style,
    legend_below,
    legend_lines,
    new_figure,
    remark,
)
from analysis.rendering.table import NONE, Block, Cells, Number, Table, number
from analysis.selection import paired_rows
from analysis.sources.collected import Collected, missing_runs
from analysis.sources.credit_settings import credit_of_rows
from analysis.sources.rows import DEFAULT, Row, Section, first_names
from scpo.intervals import decimals, summarise

# Inches: the figure without its legend, and a line of the legend.
HEIGHT, LEGEND_HEIGHT = 1.75, 0.16
ROWS = {"scpo": "reordered (default)", "chronological": "chronological"}

# Logged values in the moving average (paper, appendix "Step-reward analysis").
WINDOW = 5

# Steps over which the paper averages.
FIRST, LAST = 20, 150
CAPTION = (
    "Credit over training. Curves: mean over the finished seeds at the steps that all of them "
    "have, joined by straight lines, of each seed's moving average over its last {window} logged "
    "values (of fewer at the beginning); band ± one standard deviation; table: the mean of each "
    "seed over its own steps in the span that is named, then over the seeds. Failed trajectories "
    "are those of active groups, groups with a success and a failure; a step without an active "
    "group has no number of credited steps. Credit is that of {settings}."
)


@dataclass(frozen=True)
class Metric:
    """A logged number.

    Attributes:
        name: Name in the records.
        quantity: Name in the paper's numbers.
        label: Axis label.
        digits: Digits to print.
    """

    name: str
    quantity: str
    label: str
    digits: int


METRICS = (
    Metric(
        "credit/steps",
        "credited steps per failed trajectory",
        "credited steps per\nfailed trajectory",
        2,
    ),
    Metric("credit/aux_mean", "mean auxiliary reward", "mean auxiliary\nreward per step", 3),
)


def build(data: Collected) -> Drawing:
    """Two panels, one per metric; MissingRunsError if no run with credit has finished."""
    part = _choose(data.to_choose_from())
    rows = _rows(data, part)
    with house_style():
        figure = _draw(data, rows)
        place = names.place(part.scale, part.env, part.model)
        remark(figure, f"{place}, {credit_of_rows(rows, data.by_id)}")
    return Drawing(figure, _numbers(data, part, rows))


def _choose(data: Collected) -> Section:
    """The first section with both orders, else the first with the default.

    Raises:
        MissingRunsError: No row of the default order has a finished run with credit.
    """
    best: Section | None = None
    most = 0
    for part in data.sections:
        default = part.row(DEFAULT)
        logged = _has_credit(data, default)
        orders = sum(bool(row.finished) for row in part.rows if row.name in ROWS)
        if logged and orders > most:
            best = part
            most = orders
    if best is None:
        others = {
            row.name: None for part in data.sections for row in part.rows if _has_credit(data, row)
        }
        needed = "finished run with credit"
        if others:
            needed += f" in a row called {DEFAULT} (rows with credit here: {first_names(others)})"
        raise missing_runs(needed, data.sections, "ablation_order")
    return best


def _rows(data: Collected, part: Section) -> list[Row]:
    """The finished rows, both orders on the seeds of one experiment if that pairs more of them.

    The default is in other experiments, too, whose seeds the chronological order may lack.
    """
    rows: Sequence[Row] = part.rows
    if not data.common_seeds:
        rows = paired_rows(part, rows, tuple(ROWS))
    return [row for name in ROWS for row in rows if row.name == name and row.finished]


def _has_credit(data: Collected, row: Row) -> bool:
    return any(data.series(run, METRICS[0].name).values for run in row.finished)


def _draw(data: Collected, rows: Sequence[Row]) -> Figure:
    width = canvas_width(COLUMN_WIDTH)
    styles = {name: style | {"marker": ""} for name, style in row_styles(data, rows).items()}
    labels = [f"{ROWS[row.name]}, {row.count}" for row in rows]
    figure = new_figure(width, HEIGHT + LEGEND_HEIGHT * legend_lines(labels, width))

    # A shared axis, because the first group with credit appears at a different step in each seed.
    axes = figure.subplots(1, len(METRICS), sharex=True)
    for axis, metric in zip(axes, METRICS, strict=True):
        for row in rows:
            points = curve(data, row, metric.name, window=WINDOW, first=1)
            draw(axis, points, styles[row.name])
        axis.set_ylabel(metric.label, fontsize=SMALL)
        axis.set_ylim(bottom=0)
        over_training(axis, percent=False)

    axes[0].set_xlim(left=0)
    legend_below(figure, [Line2D([], [], **styles[row.name]) for row in rows], labels)
    return figure


def _numbers(data: Collected, part: Section, rows: list[Row]) -> Table:
    paper = part.scale == "paper"
    place = names.place(part.scale, part.env, part.model)
    settings = credit_of_rows(rows, data.by_id)
    blocks = [Block(f"Measured, {place}, {settings}", tuple(_measured(data, rows, paper=paper)))]
    if paper:
        blocks.insert(0, Block("Published, Qwen2.5-1.5B on ALFWorld", tuple(_published())))
    caption = CAPTION.format(window=WINDOW, settings=settings) + names.more_seeds_of([(part, rows)])
    return Table(
        words=("Order", "Seeds", "Steps"),
        numbers=tuple(metric.quantity for metric in METRICS),
        blocks=tuple(blocks),
        caption=names.with_note(caption, part.scale),
        label=f"tab:credit-trend-{part.scale}",
    )


def _published() -> Iterator[Cells]:
    numbers = credit()
    span = f"mean over steps {FIRST}-{LAST}"
    for name, label in ROWS.items():
        cells = []
        for metric in METRICS:
            value = numbers.get((name, metric.quantity, span))
            cells.append(NONE if value is None else Number(f"{value:g}"))
        yield (label, "3", f"{FIRST}–{LAST}", *cells)


def _measured(data: Collected, rows: list[Row], *, paper: bool) -> Iterator[Cells]:
    first, last = FIRST, LAST
    if not paper:
        first = 1
        last = max(data.series(rows[0].finished[0], METRICS[0].name).steps)
    for row in rows:
        cells = []
        for metric in METRICS:
            means = []
            for run in row.finished:
                means.append(data.series(run, metric.name).between(first, last).mean)
            values = summarise(means)
            cells.append(number(values, 1, decimals(values.mean, metric.digits)))
        yield (ROWS[row.name], row.count, f"{first}–{last}", *cells)
