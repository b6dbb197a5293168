"""Beyond the paper: interquartile means, performance profiles and steps to a success rate, over seeds and families."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.stats import trim_mean

from analysis.figures.curves import FEW, FEWEST, is_trained
from analysis.naming import names
from analysis.naming.line_styles import plot_styles
from analysis.naming.methods import compared, left_out
from analysis.naming.names import Footnotes
from analysis.rendering.style import PAGE_WIDTH, REMARK, Drawing, house_style
from analysis.rendering.table import Block, Number, Table, number, percent
from analysis.sources.collect import Collected
from analysis.sources.rows import Row, Section, missing_runs
from scpo.benchmarks import with_families
from scpo.intervals import Summary, summarise
from scpo.schema import FAMILIES

HEIGHT, LINE = 1.35, 0.13  # inches: the figure without rows, and what each row adds
KEY_HEIGHT = 0.17  # inches a line of keys
MOST = 2  # models on a page
TAUS = np.linspace(0, 1, 101)
LEVELS = (0.5, 0.8)
CAPTION = (
    "Over seeds and task families of {panel}, at the last checkpoint. Left: interquartile mean of the success rates, "
    "with the 95 % Student-t interval over the seeds' own interquartile means where there are several. Middle: share "
    "of (seed, family) pairs above τ, one line a method (key below), with the same kind of interval from three seeds "
    "on. Right: training steps until the overall success rate first reaches 50 and 80 %, mean over the seeds that "
    "reach it. A bootstrap over seeds is not used: at three seeds its 95 % intervals cover about 71 %."
)


@dataclass(frozen=True)
class Line:
    """One method: success rates of shape (seeds, families), and steps to each level over the seeds that reach it."""

    row: Row
    rate_SF: np.ndarray
    reached: dict[float, Summary]

    @property
    def iqm(self) -> float:
        """Interquartile mean over all seeds and families (arXiv 2108.13264): a quarter is cut at each end."""
        return float(trim_mean(self.rate_SF.ravel(), 0.25))

    @property
    def iqm_of_seeds(self) -> Summary:
        """What the interval is made of."""
        return summarise(trim_mean(self.rate_SF, 0.25, axis=1))

    def reaching(self, level: float) -> str:
        """Seeds that reach it of those that there are."""
        return f"{self.reached[level].n}/{len(self.rate_SF)}"

    def profile(self) -> list[Summary]:
        """Share of families above each τ, summarised over seeds."""
        share_TS = (self.rate_SF[None] > TAUS[:, None, None]).mean(axis=2)
        return [summarise(shares.tolist()) for shares in share_TS]


def build(data: Collected) -> Drawing:
    """Three panels for each model on ALFWorld; MissingRunsError if no run with families has finished."""
    found = _found(data)
    drawn, notes = found[:MOST], Footnotes()
    styles = plot_styles(line.row for _, lines in drawn for line in lines)
    heights = [HEIGHT + LINE * max(4, len(lines)) for _, lines in drawn]
    labels = {line.row.name: line.row.label for _, lines in drawn for line in lines}
    columns = min(6, len(labels))
    with house_style():
        keys = KEY_HEIGHT * -(-len(labels) // columns)
        figure = Figure(figsize=(PAGE_WIDTH, sum(heights) + keys))
        axes = figure.subplots(len(drawn), 3, squeeze=False, width_ratios=(1.25, 1.2, 1), height_ratios=heights)
        for (part, lines), (left, middle, right) in zip(drawn, axes, strict=True):
            _draw_means(left, lines, styles, notes)
            _draw_profiles(middle, lines, styles)
            _draw_steps(right, lines, styles)
            middle.set_title(names.place(part.scale, part.env, part.model), fontsize=7, color=REMARK)
        handles = [Line2D([], [], **styles[name]) for name in labels]
        figure.legend(handles, list(labels.values()), loc="outside lower center", ncols=columns, handlelength=3.2)
        panel = names.PANELS[names.JUDGED[drawn[0][0].scale]]
        remark = f"ALFWorld, {panel}, last checkpoint; seeds: finished/planned.{notes.text}"
        figure.suptitle(fill(remark, 125), fontsize=6.5, color=REMARK)
    return Drawing(figure, _numbers(data, found, notes))


def _found(data: Collected) -> list[tuple[Section, list[Line]]]:
    """The sections with families, the usual setting of each model first."""
    found = [(part, list(_lines(data, part))) for part in data.sections if with_families(part.env)]
    ready = [(part, lines) for part, lines in found if lines]
    if not ready:
        raise missing_runs("finished ALFWorld runs with families", data.sections, "main_table")
    return sorted(ready, key=lambda item: (bool(item[0].differs), -len(item[1])))


def _lines(data: Collected, part: Section) -> Iterator[Line]:
    panel = names.JUDGED[part.scale]
    for row in compared([row for row in part.rows if row.finished and is_trained(data, row)]):
        rates: list[list[float | None]] = []
        reached: dict[float, list[int | None]] = {level: [] for level in LEVELS}
        for run in row.finished:
            families = [data.series(run, names.success_metric(panel, name)).last for name in FAMILIES]
            if all(rate is not None for rate in families):
                rates.append(families)
                overall = data.series(run, names.success_metric(panel))
                steps = list(zip(overall.steps, overall.values, strict=True))
                for level in LEVELS:
                    reached[level].append(next((step for step, value in steps if value >= level), None))
        if rates:
            summaries = {level: summarise(steps) for level, steps in reached.items()}
            yield Line(row, np.array(rates, dtype=float), summaries)


def _draw_means(axis: Axes, lines: Sequence[Line], styles: dict[str, dict[str, Any]], notes: Footnotes) -> None:
    for place, line in enumerate(lines):
        low, high = line.iqm_of_seeds.interval()
        color = styles[line.row.name]["color"]
        if line.iqm_of_seeds.n > 1:
            axis.plot([100 * max(0, low), 100 * min(1, high)], [place, place], color=color, linewidth=2.5, alpha=0.35)
        axis.plot(100 * line.iqm, place, color=color, marker=styles[line.row.name]["marker"], markersize=4)
    _name_rows(axis, lines, notes)
    axis.set_xlabel("interquartile mean (%)")
    axis.set_xlim(0, 100)


def _draw_profiles(axis: Axes, lines: Sequence[Line], styles: dict[str, dict[str, Any]]) -> None:
    for line in lines:
        style = {name: value for name, value in styles[line.row.name].items() if name != "marker"}
        profile = line.profile()
        axis.plot(100 * TAUS, [100 * one.mean for one in profile], **style | {"linewidth": 0.7 * style["linewidth"]})
        alpha = 0.12 if len(lines) <= FEW else 0.04
        if line.rate_SF.shape[0] >= FEWEST:
            low, high = np.clip(np.array([one.interval() for one in profile]).T, 0, 1)
            axis.fill_between(100 * TAUS, 100 * low, 100 * high, color=style["color"], alpha=alpha, linewidth=0)
    axis.set_xlabel("success rate τ (%)")
    axis.set_ylabel("pairs above τ (%)")
    axis.set_xlim(0, 100)
    axis.set_ylim(0, 102)


def _draw_steps(axis: Axes, lines: Sequence[Line], styles: dict[str, dict[str, Any]]) -> None:
    last = 0.0
    for place, line in enumerate(lines):
        for level, filled in zip(LEVELS, ("full", "none"), strict=True):
            reached = line.reached[level]
            if reached.n:
                style = styles[line.row.name]
                axis.plot(reached.mean, place, color=style["color"], marker="o", fillstyle=filled, markersize=4)
                note = "" if reached.n == len(line.rate_SF) else f" {line.reaching(level)}"
                axis.annotate(note, (reached.mean, place), (3, -1), textcoords="offset points", fontsize=5.5)
                last = max(last, reached.mean)
    _name_rows(axis, lines, Footnotes())
    axis.set_yticklabels([])
    axis.set_xlabel("training steps to reach")
    axis.set_xlim(0, 1.15 * last or 1)
    if not last:
        axis.set_xticks([])
        axis.grid(visible=False)
        axis.text(0.5, 0.5, f"no seed reaches {100 * LEVELS[0]:.0f} %", ha="center", transform=axis.transAxes)
    keys = [axis.plot([], [], "o", color=REMARK, fillstyle=filled, markersize=4)[0] for filled in ("full", "none")]
    texts = [f"{100 * level:.0f} %" for level in LEVELS]
    axis.legend(keys, texts, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, handletextpad=0.1, columnspacing=1)


def _name_rows(axis: Axes, lines: Sequence[Line], notes: Footnotes) -> None:
    labels = [f"{line.row.label}{notes.mark(line.row.differs)}, {line.row.count}" for line in lines]
    axis.set_yticks(range(len(lines)), labels)
    axis.set_ylim(len(lines) - 0.5, -0.5)


def _numbers(data: Collected, found: Sequence[tuple[Section, list[Line]]], notes: Footnotes) -> Table:
    scale = found[0][0].scale
    blocks = (Block(f"{scale} scale, {names.setting(part)}", tuple(_rows(lines, notes))) for part, lines in found)
    said = CAPTION.format(panel=names.PANELS[names.JUDGED[scale]])
    return Table(
        words=("Method", "Seeds", "95 % interval", "Seeds that reach 50 %, 80 %"),
        numbers=("IQM (%)", "Steps to 50 %", "Steps to 80 %"),
        blocks=tuple(blocks),
        caption=names.with_note(f"{said}{notes.text}{_not_drawn(data, found)}", scale),
        label=f"tab:profiles-{scale}",
    )


def _rows(lines: Sequence[Line], notes: Footnotes) -> Iterator[tuple[str | Number, ...]]:
    for line in lines:
        low, high = line.iqm_of_seeds.interval()
        interval = f"{100 * low:.1f} to {100 * high:.1f}".replace("-", "−") if line.iqm_of_seeds.n > 1 else "–"
        steps = (number(line.reached[level], 1, 0) for level in LEVELS)
        counts = ", ".join(map(line.reaching, LEVELS))
        label = f"{line.row.label}{notes.mark(line.row.differs)}"
        yield (label, line.row.count, interval, counts, percent(Summary(line.iqm, 0.0, 1)), *steps)


def _not_drawn(data: Collected, found: Sequence[tuple[Section, list[Line]]]) -> str:
    """What is in the table or in the records alone."""
    rest = [f"{names.model(part.model)}{part.apart}" for part, _ in found[MOST:]]
    shops = [part for part in data.sections if not with_families(part.env) and any(row.finished for row in part.rows)]
    said = f" Not drawn, in the table: {', '.join(rest)}." if rest else ""
    said += " WebShop has no task families: it is not drawn here." if shops else ""
    rows = [row for part, _ in found for row in part.rows if row.finished and is_trained(data, row)]
    return said + left_out(rows, (line.row for _, lines in found for line in lines))
