"""Sensitivity: success against the match threshold and the soft base, the default with an error bar."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scpo.intervals import Summary

from analysis.naming import names
from analysis.naming.line_styles import SHADES
from analysis.paper.published import main_table
from analysis.rendering.style import (
    ACCENT,
    COLUMN_WIDTH,
    Drawing,
    canvas_width,
    house_style,
    key_below,
    new_figure,
    remark,
)
from analysis.rendering.table import NONE, Block, Table, percent
from analysis.sources.collect import Collected
from analysis.sources.rows import Row, Section, missing_runs
from analysis.stats.seed_statistics import best_of_bias

HEIGHT = 2.1  # inches
DEFAULT = "scpo"
LINE = SHADES[0]
MARGIN = 0.08  # of a panel's width, on either side
NARROWEST = 0.3  # range that a panel is at least as wide as
KNOBS = {"theta": "match threshold θ", "soft_base": "soft base λ"}
EXPERIMENTS = ("sweep_theta", "sweep_lambda")
CAPTION = (
    "Sensitivity to one knob at a time, success rate (%) on {panel}: the last checkpoint (discs), "
    "mean over the finished seeds with ± one standard deviation where there are several, and the "
    "mean of each run's best checkpoint (dashes), which is what the paper plots; its deviation is "
    "in the table. The default is orange. {bias}"
)


@dataclass(frozen=True)
class Point:
    """One value of a knob."""

    value: float
    row: Row
    last: Summary
    best: Summary


def build(data: Collected) -> Drawing:
    """Two panels; MissingRunsError if no run differs from the default in one of the knobs alone."""
    part, points = _choose(data)
    with house_style():
        figure = _draw(part, points)
        place = names.place(part.scale, part.env, part.model)
        remark(figure, f"{place}\nseeds finished/planned: {_seeds(points)}")
    return Drawing(figure, _numbers(data, part, points))


def _choose(data: Collected) -> tuple[Section, dict[str, list[Point]]]:
    """The section with most values."""
    best: tuple[Section, dict[str, list[Point]]] | None = None
    most = 0
    for part in data.sections:
        points = {knob: list(_points(data, part, knob)) for knob in KNOBS}
        count = sum(map(len, points.values()))
        varied = any(len(line) > 1 for line in points.values())
        if varied and count > most:
            best, most = (part, points), count
    if best is None:
        needed = "finished runs beside the default that differ in θ or λ alone"
        raise missing_runs(needed, data.sections, *EXPERIMENTS)
    return best


def _points(data: Collected, part: Section, knob: str) -> Iterator[Point]:
    """Values in ascending order, the default among them; nothing without a finished default."""
    default = part.row(DEFAULT)
    if not default.finished:
        return
    settings = _other_settings(data, default, knob)
    rows: dict[float, Row] = {}
    for row in part.rows:
        if row.finished and _other_settings(data, row, knob) == settings:
            rows[_knob(data, row, knob)] = row
    rows[_knob(data, default, knob)] = (
        default  # of rows with the same value, the default is the one shown
    )
    metric = names.success_metric(names.JUDGED[part.scale])
    for value, row in sorted(rows.items()):
        point = Point(
            value, row, data.summary(row, metric, "last"), data.summary(row, metric, "best")
        )
        if point.last.n:
            yield point


def _knob(data: Collected, row: Row, knob: str) -> float:
    return float(data.by_id[row.finished[0]].config["method"]["shaper"][knob])


def _other_settings(data: Collected, row: Row, knob: str) -> dict[str, Any] | None:
    """The method apart from one knob and from its label; None for a method without a shaper."""
    run = data.by_id[row.finished[0]]
    method = run.config.get("method", {})
    if run.foreign or not method.get("shaper"):
        return None
    data.used.add((run.id, "config.yaml"))
    shaper = {name: value for name, value in method["shaper"].items() if name != knob}
    return {**method, "shaper": shaper, "label": None}


def _draw(part: Section, points: dict[str, list[Point]]) -> Figure:
    figure = new_figure(canvas_width(COLUMN_WIDTH), HEIGHT)
    # Panels as wide as the ranges of their values: ticks are equally far apart in both.
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
    key_below(figure, handles, ["last checkpoint", "best", "default"], handlelength=2)
    return figure


def _draw_knob(axis: Axes, points: list[Point]) -> None:
    values = [point.value for point in points]
    axis.plot(values, [100 * point.last.mean for point in points], color=LINE, linewidth=1)
    for point in points:
        color = ACCENT if point.row.name == DEFAULT else LINE
        spread = 100 * point.last.std if point.last.n > 1 else None
        axis.errorbar(
            point.value,
            100 * point.last.mean,
            yerr=spread,
            color=color,
            marker="o",
            capsize=2,
            linewidth=1,
            zorder=3,
        )
        # Error bars of both checkpoints would cover each other: the last has one, the best is a
        # dash.
        best = 100 * point.best.mean
        axis.plot(point.value, best, "_", color=color, markersize=9, markeredgewidth=1.4, zorder=4)
    axis.set_xticks(values, [f"{value:g}" for value in values])
    axis.margins(x=MARGIN)


def _seeds(points: dict[str, list[Point]]) -> str:
    """Seeds of the default and of the other points, e.g. ``default 3/3, others 1/1``."""
    default: dict[str, None] = {}
    others: dict[str, None] = {}
    for line in points.values():
        for point in line:
            (default if point.row.name == DEFAULT else others)[point.row.count] = None
    return f"default {', '.join(default)}; others {', '.join(others)}"


def _span(points: list[Point]) -> float:
    """The range of the values."""
    values = [point.value for point in points]
    return max(max(values, default=0) - min(values, default=0), NARROWEST)


def _numbers(data: Collected, part: Section, points: dict[str, list[Point]]) -> Table:
    rows = []
    for knob, label in KNOBS.items():
        for point in points[knob]:
            cells = (percent(point.last), percent(point.best))
            rows.append((label, f"{point.value:g}", point.row.count, *cells))
    panel = names.PANELS[names.JUDGED[part.scale]]
    measured = Block(
        f"Measured, {names.place(part.scale, part.env, part.model)}, {panel}", tuple(rows)
    )
    caption = CAPTION.format(panel=panel, bias=_bias(data, part, points))
    return Table(
        words=("Knob", "Value", "Seeds"),
        numbers=("Last", "Best"),
        blocks=(*_published(part), measured),
        caption=names.with_note(caption, part.scale),
        label=f"tab:sensitivity-{part.scale}",
    )


def _published(part: Section) -> Iterator[Block]:
    """The paper gives its default in numbers, the other points in a plot only."""
    if part.scale == "paper" and (part.model, part.env) == ("1.5B", "alfworld"):
        cell = main_table()["1.5B", "SCPO", "ALFWorld", "All"].number
        rows = tuple((label, "default", "3", NONE, cell) for label in KNOBS.values())
        yield Block("Published: best checkpoint, equal to the main table's headline", rows)


def _bias(data: Collected, part: Section, points: dict[str, list[Point]]) -> str:
    """A sentence on how much the best of a default run's checkpoints overstates."""
    default = next(point for line in points.values() for point in line if point.row.name == DEFAULT)
    run, panel = default.row.finished[0], names.JUDGED[part.scale]
    checkpoints = len(data.series(run, names.success_metric(panel)).steps)
    episodes = data.series(run, f"val/{panel}/episodes").last
    if not episodes:
        return "The best of many checkpoints reads too high."
    bias = 100 * best_of_bias(default.last.mean, checkpoints, int(episodes))
    return (
        f"The best of {checkpoints} checkpoints of {episodes:.0f} episodes reads {bias:.1f} "
        f"points too high at a constant rate of {100 * default.last.mean:.0f} % (simulated)."
    )
