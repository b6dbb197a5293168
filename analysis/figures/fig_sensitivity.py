"""Sensitivity: success against the match threshold and the soft base."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from analysis import names
from analysis.line_styles import SHADES
from analysis.paper.published import main_table
from analysis.rendering.style import (
    ACCENT,
    COLUMN_WIDTH,
    Drawing,
    canvas_width,
    house_style,
    legend_below,
    new_figure,
    remark,
)
from analysis.rendering.table import NONE, Block, Cells, Table, percent
from analysis.sources.collected import Collected, MissingRunsError, missing_runs
from analysis.sources.knobs import rows_of_knob
from analysis.sources.rows import DEFAULT, MAIN, Row, Section, seed_list
from analysis.stats.seed_statistics import best_of_bias, checkpoints
from scpo.intervals import Summary

HEIGHT = 2.25  # inches
LINE = SHADES[0]

# Margin on either side, as a share of a panel's width.
MARGIN = 0.08

# Least range of values that determines a panel's width: a panel with one value needs some, too.
NARROWEST = 0.3
KNOBS = {
    "theta": "match threshold θ",
    "soft_base": "soft base λ",
}
SIGNS = {"theta": "θ", "soft_base": "λ"}
EXPERIMENTS = ("sweep_theta", "sweep_lambda")
CAPTION = (
    "Sensitivity to one knob at a time, success rate (%) on {panel}: the last checkpoint (discs), "
    "mean over the finished seeds with ± one standard deviation where there are several, and the "
    "mean of each run's best checkpoint (dashes), which is what the paper plots; its deviation is "
    "in the table. The default is orange. Scores are of {scorer}; {seeds}. {bias}"
)


@dataclass(frozen=True)
class Point:
    """One value of a knob."""

    value: float
    row: Row
    last: Summary
    best: Summary


Points: TypeAlias = dict[str, list[Point]]  # by knob


def build(data: Collected) -> Drawing:
    """Two panels; MissingRunsError if no run differs from the default in exactly one knob."""
    part = _choose(data.to_choose_from())
    points = {knob: list(_points(data, part, knob)) for knob in KNOBS}
    with house_style():
        figure = _draw(part, points)
        place = names.place(part.scale, part.env, part.model)
        scored = f"{_scorer(data, part)}, {_seed_list(points)}"
        remark(figure, f"{place}\n{scored}\nseeds finished/planned: {_seeds(points)}")
    return Drawing(figure, _numbers(data, part, points))


# Data


def _choose(data: Collected) -> Section:
    """The section with most values of both knobs together, if one of them has at least two."""
    best: Section | None = None
    most = 0
    for part in data.sections:
        points = {knob: list(_points(data, part, knob)) for knob in KNOBS}
        count = sum(len(line) for line in points.values())
        varied = any(len(line) > 1 for line in points.values())
        if varied and count > most:
            best = part
            most = count
    if best is None:
        needed = "finished runs that differ from the default only in θ or λ"
        if data.chosen:
            shown = f"{needed} among the rows {', '.join(data.chosen)}"
            commands = " and ".join(f"+experiment={name}" for name in EXPERIMENTS)
            remedy = "leave out --rows and --experiment, or name rows of"
            raise MissingRunsError(shown, f"{remedy} {commands}")
        raise missing_runs(needed, data.sections, *EXPERIMENTS)
    return best


def _points(data: Collected, part: Section, knob: str) -> Iterator[Point]:
    """Yield the values in ascending order; nothing without a finished default."""
    if not part.row(DEFAULT).finished:
        return
    # A configuration decides whether its row is drawn.
    data.seen.update((row.finished[0], "config.yaml") for row in part.rows if row.finished)
    rows = rows_of_knob(part, knob, data.by_id)
    metric = names.success_metric(names.JUDGED[part.scale])
    for value, row in rows.items():
        last = data.summary(row, metric, "last")
        best = data.summary(row, metric, "best")
        if last.n:
            yield Point(value, row, last, best)


def _scorer(data: Collected, part: Section) -> str:
    """Scorer of the default, and of the main table's where that is another one.

    For example ``scorer=lexical (main table: exact)``: a threshold means nothing without it.
    """
    own = _scorer_of(data, part.row(DEFAULT))
    text = f"scorer={own}"
    for main in data.sections:
        if MAIN in main.experiments and (main.env, main.model) == (part.env, part.model):
            usual = _scorer_of(data, main.row(DEFAULT))
            if usual and usual != own:
                return f"{text} (main table: {usual})"
    return text


def _scorer_of(data: Collected, row: Row) -> str:
    """Name of the scorer of a row; empty without a finished run."""
    if not row.finished:
        return ""
    return str(data.by_id[row.finished[0]].config["scorer"]["name"])


# Drawing


def _draw(part: Section, points: Points) -> Figure:
    figure = new_figure(canvas_width(COLUMN_WIDTH), HEIGHT)
    # Widths in proportion to the ranges, so that equal differences look equal in both panels.
    ratios = [_span(points[knob]) for knob in KNOBS]
    axes = figure.subplots(1, len(KNOBS), sharey=True, width_ratios=ratios)
    for axis, (knob, label) in zip(axes, KNOBS.items(), strict=True):
        _draw_knob(axis, points[knob])
        axis.set_xlabel(label)
    axes[0].set_ylabel(f"success (%),\n{names.PANELS[names.JUDGED[part.scale]]}")
    handles = [
        Line2D([], [], color=LINE, marker="o"),
        Line2D([], [], color=LINE, linestyle="", marker="_", markersize=8, markeredgewidth=1.4),
        Line2D([], [], color=ACCENT, linestyle="", marker="o"),
    ]
    legend_below(figure, handles, ["last checkpoint", "best", "default"], handlelength=2)
    return figure


def _draw_knob(axis: Axes, points: list[Point]) -> None:
    values = [point.value for point in points]
    means = [100 * point.last.mean for point in points]
    axis.plot(values, means, color=LINE, linewidth=1)
    for point, mean in zip(points, means, strict=True):
        color = ACCENT if point.row.name == DEFAULT else LINE
        axis.errorbar(
            point.value,
            mean,
            yerr=100 * point.last.std if point.last.n > 1 else None,
            color=color,
            marker="o",
            capsize=2,
            linewidth=1,
            zorder=3,
        )
        # The best checkpoint is a dash without an error bar, which would cover the other one.
        axis.plot(
            point.value,
            100 * point.best.mean,
            "_",
            color=color,
            markersize=9,
            markeredgewidth=1.4,
            zorder=4,
        )

    axis.set_xticks(values, [f"{value:g}" for value in values])
    axis.margins(x=MARGIN)


def _span(points: list[Point]) -> float:
    """Range of the values, at least ``NARROWEST``."""
    values = [point.value for point in points]
    return max(max(values, default=0) - min(values, default=0), NARROWEST)


def _seeds(points: Points) -> str:
    """Seed counts of the default and of the other points, e.g. ``default 3/3; others 1/1``."""
    default: dict[str, None] = {}
    others: dict[str, None] = {}
    for line in points.values():
        for point in line:
            counts = default if point.row.name == DEFAULT else others
            counts[point.row.count] = None
    return f"default {', '.join(default)}; others {', '.join(others)}"


def _seed_list(points: Points) -> str:
    """The finished seeds of the points, with the points where not all have the same.

    For example ``seeds 20 to 29``, or ``seeds 0 to 19 (default), seeds 0 to 2 (the others)``.
    """
    groups: dict[str, dict[str, None]] = {}
    for knob, line in points.items():
        for point in line:
            name = f"{SIGNS[knob]} = {point.value:g}"
            if point.row.name == DEFAULT:
                name = "default"
            groups.setdefault(seed_list(point.row.finished_seeds), {})[name] = None
    if len(groups) == 1:
        return next(iter(groups))
    # Of groups of equal size that without the default, which has a name of its own.
    largest = max(groups, key=lambda seeds: (len(groups[seeds]), "default" not in groups[seeds]))
    others = groups.pop(largest)
    named = [f"{seeds} ({', '.join(group)})" for seeds, group in groups.items()]
    last = "the others" if len(others) > 1 else next(iter(others))
    return ", ".join([*named, f"{largest} ({last})"])


# Numbers


def _numbers(data: Collected, part: Section, points: Points) -> Table:
    rows: list[Cells] = []
    for knob, label in KNOBS.items():
        for point in points[knob]:
            last = percent(point.last)
            best = percent(point.best)
            rows.append((label, f"{point.value:g}", point.row.count, last, best))

    panel = names.PANELS[names.JUDGED[part.scale]]
    place = names.place(part.scale, part.env, part.model)
    scorer = _scorer(data, part)
    measured = Block(f"Measured, {place}, {scorer}, {panel}", tuple(rows))
    seeds = _seed_list(points)
    bias = _bias(data, part, points)
    caption = CAPTION.format(panel=panel, scorer=scorer, seeds=seeds, bias=bias)
    drawn = {point.row.name: point.row for line in points.values() for point in line}
    caption += names.more_seeds_of([(part, drawn.values())])
    return Table(
        words=("Knob", "Value", "Seeds"),
        numbers=("Last", "Best"),
        blocks=(*_published(part), measured),
        caption=names.with_note(caption, part.scale),
        label=f"tab:sensitivity-{part.scale}",
    )


def _published(part: Section) -> Iterator[Block]:
    """Yield the paper's default; the paper shows its other points in a plot only."""
    if part.scale == "paper" and (part.model, part.env) == ("1.5B", "alfworld"):
        cell = main_table()["1.5B", "SCPO", "ALFWorld", "All"].number
        rows = tuple((label, "default", "3", NONE, cell) for label in KNOBS.values())
        yield Block("Published: best checkpoint, equal to the main table's headline", rows)


def _bias(data: Collected, part: Section, points: Points) -> str:
    """Sentence on the bias of the best of a default run's checkpoints."""
    every = (point for line in points.values() for point in line)
    default = next(point for point in every if point.row.name == DEFAULT)
    run = default.row.finished[0]
    panel = names.JUDGED[part.scale]
    count = checkpoints(data.series(run, names.success_metric(panel)))
    episodes = data.series(run, f"val/{panel}/episodes").last
    if not episodes:
        return "The best of many checkpoints reads too high."
    rate = default.last.mean
    bias = 100 * best_of_bias(rate, count, int(episodes))
    return (
        f"The best of {count} checkpoints of {episodes:.0f} episodes reads {bias:.1f} points too "
        f"high at a constant rate of {100 * rate:.0f} %, which is the default's mean at the last "
        "checkpoint (simulated; the checkpoint before training is not counted)."
    )
