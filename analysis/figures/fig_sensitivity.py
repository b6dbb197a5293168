"""Sensitivity: success against the match threshold and the soft base, the default with an error bar."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.naming import names
from analysis.naming.line_styles import SHADES
from analysis.paper.published import main_table
from analysis.rendering.style import ACCENT, COLUMN_WIDTH, REMARK, Drawing, house_style
from analysis.rendering.table import NONE, Block, Table, percent
from analysis.sources.collect import Collected
from analysis.sources.rows import Row, Section, missing_runs
from analysis.stats.seed_statistics import best_of_bias
from scpo.intervals import Summary

HEIGHT = 1.95  # inches
DEFAULT = "scpo"
DODGE = 0.012
MARGIN = 0.08  # of a panel's width, on either side
NARROWEST = 0.3  # range that a panel is at least as wide as
KNOBS = {"theta": "match threshold θ", "soft_base": "soft base λ"}
EXPERIMENTS = ("sweep_theta", "sweep_lambda")
CHECKPOINTS = {"last": ("-", "o"), "best": ((0, (2, 1.2)), "s")}
CAPTION = (
    "Sensitivity to one knob at a time, success rate (%) on {panel}: the last checkpoint (solid) and each run's best "
    "one (dashed), which is what the paper plots. Points are means over the finished seeds, with ± one standard "
    "deviation where there are several; the default is orange. {bias}"
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
        figure = Figure(figsize=(COLUMN_WIDTH, HEIGHT))
        axes = figure.subplots(1, len(KNOBS), sharey=True, width_ratios=[_span(points[knob]) for knob in KNOBS])
        for axis, (knob, label) in zip(axes, KNOBS.items(), strict=True):
            _draw(axis, points[knob])
            axis.set_xlabel(label)
        axes[0].set_ylabel(f"success (%),\n{names.PANELS[names.JUDGED[part.scale]]}")
        handles = [
            axes[0].plot([], [], color=SHADES[0], linestyle=dash, marker=mark)[0] for dash, mark in CHECKPOINTS.values()
        ]
        handles.append(axes[0].plot([], [], color=ACCENT, linestyle="", marker="o")[0])
        texts = ["last checkpoint", "best checkpoint", "default"]
        figure.legend(handles, texts, loc="outside lower center", ncols=3, handlelength=2, columnspacing=1)
        place = names.place(part.scale, part.env, part.model)
        figure.suptitle(f"{place}\nseeds finished/planned: {_seeds(points)}", fontsize=6.5, color=REMARK)
    return Drawing(figure, _numbers(data, part, points))


def _choose(data: Collected) -> tuple[Section, dict[str, list[Point]]]:
    """The section with most values."""
    found = [(part, {knob: list(_points(data, part, knob)) for knob in KNOBS}) for part in data.sections]
    varied = [(part, points) for part, points in found if any(len(line) > 1 for line in points.values())]
    if not varied:
        needed = "finished runs beside the default that differ in θ or λ alone"
        raise missing_runs(needed, data.sections, *EXPERIMENTS)
    return max(varied, key=lambda item: sum(map(len, item[1].values())))


def _points(data: Collected, part: Section, knob: str) -> Iterator[Point]:
    """Values in ascending order, the default among them; nothing without a finished default."""
    default = part.row(DEFAULT)
    if not default.finished:
        return
    same = _others(data, default, knob)
    rows = {_knob(data, row, knob): row for row in part.rows if row.finished and _others(data, row, knob) == same}
    for value, row in sorted((rows | {_knob(data, default, knob): default}).items()):
        metric = names.success_metric(names.JUDGED[part.scale])
        point = Point(value, row, data.summary(row, metric, "last"), data.summary(row, metric, "best"))
        if point.last.n:
            yield point


def _knob(data: Collected, row: Row, knob: str) -> float:
    return float(data.by_id[row.finished[0]].config["method"]["shaper"][knob])


def _others(data: Collected, row: Row, knob: str) -> dict[str, Any] | None:
    """The method apart from one knob and from its label; None of a method without a shaper."""
    run = data.by_id[row.finished[0]]
    method = run.config.get("method", {})
    if run.foreign or not method.get("shaper"):
        return None
    data.used.add((run.id, "config.yaml"))
    shaper = {name: value for name, value in method["shaper"].items() if name != knob}
    return {**method, "shaper": shaper, "label": None}


def _draw(axis: Axes, points: list[Point]) -> None:
    for which, (dash, mark) in CHECKPOINTS.items():
        summaries = [point.last if which == "last" else point.best for point in points]
        shift = 0 if which == "last" else DODGE  # error bars of the two would cover each other
        values = [point.value + shift for point in points]
        axis.plot(values, [100 * one.mean for one in summaries], color=SHADES[0], linestyle=dash, linewidth=1)
        for point, value, one in zip(points, values, summaries, strict=True):
            color = ACCENT if point.row.name == DEFAULT else SHADES[0]
            spread = 100 * one.std if one.n > 1 else None
            axis.errorbar(
                value, 100 * one.mean, yerr=spread, color=color, marker=mark, capsize=2, linewidth=1, zorder=3
            )
    axis.set_xticks([point.value for point in points], [f"{point.value:g}" for point in points])
    axis.margins(x=MARGIN)


def _seeds(points: dict[str, list[Point]]) -> str:
    """Of the default and of the other points, e.g. ``default 3/3, others 1/1``."""
    every = [point for line in points.values() for point in line]
    default = dict.fromkeys(point.row.count for point in every if point.row.name == DEFAULT)
    others = dict.fromkeys(point.row.count for point in every if point.row.name != DEFAULT)
    return f"default {', '.join(default)}; others {', '.join(others)}"


def _span(points: list[Point]) -> float:
    """The range of the values: panels as wide as their ranges have ticks equally far apart."""
    values = [point.value for point in points]
    return max(max(values, default=0) - min(values, default=0), NARROWEST)


def _numbers(data: Collected, part: Section, points: dict[str, list[Point]]) -> Table:
    rows = tuple(
        (label, f"{point.value:g}", point.row.count, percent(point.last), percent(point.best))
        for knob, label in KNOBS.items()
        for point in points[knob]
    )
    panel = names.JUDGED[part.scale]
    return Table(
        words=("Knob", "Value", "Seeds"),
        numbers=("Last", "Best"),
        blocks=(
            *_published(part),
            Block(f"Measured, {names.place(part.scale, part.env, part.model)}, {names.PANELS[panel]}", rows),
        ),
        caption=names.with_note(CAPTION.format(panel=names.PANELS[panel], bias=_bias(data, part, points)), part.scale),
        label=f"tab:sensitivity-{part.scale}",
    )


def _published(part: Section) -> Iterator[Block]:
    """The paper gives its default in numbers, the other points in a plot only."""
    if part.scale == "paper" and (part.model, part.env) == ("1.5B", "alfworld"):
        cell = main_table()["1.5B", "SCPO", "ALFWorld", "All"].number
        rows = tuple((label, "default", "3", NONE, cell) for label in KNOBS.values())
        yield Block("Published: best checkpoint, equal to the main table's headline", rows)


def _bias(data: Collected, part: Section, points: dict[str, list[Point]]) -> str:
    default = next(point for line in points.values() for point in line if point.row.name == DEFAULT)
    run, panel = default.row.finished[0], names.JUDGED[part.scale]
    checkpoints = len(data.series(run, names.success_metric(panel)).steps)
    episodes = data.series(run, f"val/{panel}/episodes").last
    if not episodes:
        return "The best of many checkpoints reads too high."
    bias = 100 * best_of_bias(default.last.mean, checkpoints, int(episodes))
    return (
        f"The best of {checkpoints} checkpoints of {episodes:.0f} episodes reads {bias:.1f} points too high at a "
        f"constant rate of {100 * default.last.mean:.0f} % (simulated)."
    )
