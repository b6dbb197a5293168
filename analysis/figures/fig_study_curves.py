"""The study's curves at column width: held-out success, and differences paired by seed."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from analysis.figures.curves import (
    FEWEST,
    Styles,
    draw_band,
    mean_curve,
    over_training,
    paired_difference,
    row_styles,
)
from analysis.names import STUDY_TITLE, benchmark, more_seeds_of, with_note
from analysis.rendering.style import (
    COLUMN_WIDTH,
    REMARK,
    Drawing,
    canvas_width,
    house_style,
    legible,
    new_figure,
    points,
    text_scale,
)
from analysis.rendering.table import NONE, Block, Cells, Number, Table, number, percent
from analysis.sources.collected import Collected, missing_runs
from analysis.sources.rows import Row, Section
from analysis.sources.run_records import ExperimentRecord
from analysis.stats.comparisons import REFERENCES, Effect, compare, pair_up
from analysis.stats.measures import (
    AREA,
    BETTER,
    FASTER,
    HALF,
    Measure,
    held_out,
    how_many_reach,
    over_seeds,
    reaches,
)
from analysis.stats.study_rows import (
    MAIN,
    StudyRow,
    by_benchmark,
    find,
    not_shown,
    on_common_seeds,
    rate_text,
    reported,
    shown_rows,
    started,
    study_rows,
    titles_apart,
)
from scpo.progress import counted

SCALE = "study"

# Largest number of experiments on a page.
MOST = 4

# Experiments that are drawn first, in this order.
FIRST = (MAIN, "beyond", "ablation", "controls")

# Heights in inches.
HEIGHT = 1.2  # an experiment without its rows
LINE = 0.16  # each row
MARGIN = 0.4  # the figure without experiments

# Characters per line of a row's name, of an axis label, and of a heading.
LABEL, AXIS, HEADING = 24, 22, 62

# Largest number of rows whose bands can still be distinguished.
BANDS = 4

# Smallest text that is readable in a column, in points.
TINY = 6.0

# (measure, fill of its marker, vertical offset from the row's line)
LANES = ((AREA, "full", -0.15), (BETTER, "none", 0.2))
CAPTION = (
    "Left: success on the held-out games of all validation panels over training, mean over a "
    "row's finished seeds of the panel's experiment; band, where there are few rows: 95 % Student "
    "interval of the mean. Right: area under validation (filled) and success at the last step "
    "(hollow), minus those of the reference, which the axis names, paired by seed, with 95 % "
    "intervals from three pairs on, each by itself and not corrected. A rate beside a name: that "
    "row trains at it and the reference at another. One pair of panels for each "
    "experiment{left_out}. The table holds the mean of each run's area, steps to 50 % and last "
    "success, ± standard deviation over seeds; reach 50 %: the seeds that ever do; one that never "
    "does counts with its last step (restricted mean), and where none does there is no number."
)


@dataclass(frozen=True)
class Group:
    """Rows of one experiment on one benchmark, under the study's titles."""

    record: ExperimentRecord
    rows: tuple[StudyRow, ...]

    @property
    def reference(self) -> StudyRow:
        """The row that the others are compared with."""
        for name in REFERENCES:
            for row in self.rows:
                if row.row.name == name:
                    return row
        return self.rows[0]

    @property
    def heading(self) -> str:
        """Its experiment, benchmark and the finished and planned seeds of its rows."""
        counts = list(dict.fromkeys(row.row.count for row in self.rows))
        seeds = " and ".join(counts)
        return f"{self.record.title}: {benchmark(self.rows[0].env)}, {seeds} seeds"

    def name(self, row: StudyRow) -> str:
        """Title of a row, with its learning rate if that is not the reference's."""
        rate = row.learning_rate
        if rate is None or rate == self.reference.learning_rate:
            return row.title
        return f"{row.title}, at\u00a0{rate_text(rate)}"

    @property
    def height(self) -> float:
        """Height of its panels, in inches."""
        return HEIGHT + LINE * len(self.rows)


def build(data: Collected) -> Drawing:
    """Two panels for each experiment with named comparisons.

    Raises:
        MissingRunsError: None of them has finished runs.
    """
    groups, others, without_seed = _groups(data)
    if not groups:
        raise missing_runs("finished runs of the study", data.sections, MAIN)
    heights = [group.height for group in groups]
    drawn: Styles = {}
    with house_style():
        figure = new_figure(canvas_width(COLUMN_WIDTH), sum(heights) + MARGIN)
        parts = figure.subfigures(len(groups), 1, squeeze=False, height_ratios=heights)[:, 0]
        for group, part in zip(groups, parts, strict=True):
            styles = row_styles(data, (row.row for row in group.rows), drawn)
            drawn = {**styles, **drawn}
            left, right = part.subplots(1, 2, width_ratios=(1.15, 1))
            part.suptitle(_folded(group.heading, HEADING), fontsize=points(7))
            _draw_curves(data, group, left, styles)
            _draw_differences(data, group, right, styles)
        figure.suptitle(_folded(STUDY_TITLE, 45), fontsize=points(TINY), color=REMARK)
        figure.legend(
            handles=[_legend_handle("full", "area"), _legend_handle("none", "last step")],
            loc="outside lower right",
            ncols=2,
            fontsize=points(TINY),
        )
    return Drawing(figure, _numbers(data, groups, others, without_seed))


def _folded(text: str, most: int) -> str:
    """The text in lines of ``most`` characters at the usual width and font size."""
    return fill(text, max(8, int(most * canvas_width(COLUMN_WIDTH) / COLUMN_WIDTH / text_scale())))


def _legend_handle(fill_style: Any, label: str) -> Line2D:
    return Line2D(
        [],
        [],
        color=REMARK,
        marker="o",
        fillstyle=fill_style,
        markersize=3,
        linewidth=0,
        label=label,
    )


# Data


def _groups(data: Collected) -> tuple[list[Group], list[str], list[str]]:
    """Groups to draw, titles of other experiments with runs, and of those without a common seed."""
    merged = study_rows(data)
    groups: list[Group] = []
    others: list[str] = []
    without_seed: list[str] = []
    for record in sorted(reported(data), key=_order):
        rows = []
        for row in shown_rows(data, record):
            if _has_curve(data, row):
                rows.append(_titled(data, merged, row))
        for own in by_benchmark(rows).values():
            here = on_common_seeds(data, own) if data.common_seeds else own
            if not here:
                without_seed.append(record.title)
            elif record.primary and len(here) > 1 and len(groups) < MOST:
                groups.append(Group(record, tuple(here)))
            else:
                others.append(record.title)

    drawn = {group.record.title for group in groups}
    return groups, [title for title in dict.fromkeys(others) if title not in drawn], without_seed


def _order(record: ExperimentRecord) -> int:
    if record.experiment in FIRST:
        return FIRST.index(record.experiment)
    return len(FIRST)


def _has_curve(data: Collected, row: StudyRow) -> bool:
    return any(len(held_out(data, run).steps) > 2 for run in row.row.finished)


def _printed(data: Collected, group: Group, row: StudyRow) -> str:
    """Name of a row, with the number of its pairs if that is not the number of its seeds."""
    name = group.name(row)
    if row == group.reference:
        return name
    pairs = pair_up(data, row, group.reference)
    if not pairs.used or len(pairs.used) == len(row.row.finished):
        return name
    return f"{name}, {counted(len(pairs.used), 'pair')}"


def _titled(data: Collected, merged: Sequence[StudyRow], row: StudyRow) -> StudyRow:
    """The row with its own seeds, under the title that it has in the whole study."""
    run = started(data, row.row)
    method = run.head.method.name if run else ""
    title = find(merged, row).title
    return replace(row, row=replace(row.row, label=title, method=method))


# Drawing


def _draw_curves(data: Collected, group: Group, axis: Axes, styles: Styles) -> None:
    for row in group.rows:
        style = styles[row.row.name]
        series = [held_out(data, run) for run in row.row.finished]
        curve = mean_curve(series)
        axis.plot(curve.steps, [100 * summary.mean for summary in curve.summaries], **style)
        if len(series) >= FEWEST and len(group.rows) <= BANDS:
            bounds = np.clip([summary.interval() for summary in curve.summaries], 0, 1)
            low, high = 100 * bounds.T
            draw_band(axis, curve.steps, low, high, style)

    over_training(axis)
    axis.set_ylabel("held-out success (%)", fontsize=points(TINY + 0.5))
    axis.tick_params(labelsize=points(TINY))
    axis.xaxis.label.set_fontsize(points(TINY + 0.5))


def _draw_differences(data: Collected, group: Group, axis: Axes, styles: Styles) -> None:
    """Draw a line per row: its name in the colour of its curve, and both differences."""
    axis.axvline(0, color=REMARK, linewidth=0.8)
    for place, row in enumerate(group.rows):
        style = styles[row.row.name]
        if row == group.reference:
            axis.plot(0, place, marker=style["marker"], color=style["color"], markersize=3.5)
            continue
        for measure, fill_style, lane in LANES:
            _, effect = compare(data, row, group.reference, measure)
            if effect.difference.n:
                _draw_effect(axis, effect, place + lane, style, fill_style)

    label = _folded(f"minus {group.reference.title} (points)", AXIS)
    axis.set_xlabel(label, fontsize=points(TINY + 0.5))
    axis.set_ylim(len(group.rows) - 0.4, -0.6)
    axis.yaxis.tick_right()
    labels = [_folded(_printed(data, group, row), LABEL) for row in group.rows]
    axis.set_yticks(range(len(group.rows)), labels, fontsize=points(TINY))
    for text, row in zip(axis.get_yticklabels(), group.rows, strict=True):
        text.set_color(legible(str(styles[row.row.name]["color"])))
    axis.tick_params(axis="x", labelsize=points(TINY))
    axis.tick_params(axis="y", length=0)


def _draw_effect(
    axis: Axes,
    effect: Effect,
    place: float,
    style: Mapping[str, Any],
    fill_style: Any,
) -> None:
    color = style["color"]
    if effect.difference.n >= FEWEST:
        low, high = effect.difference.interval()
        axis.plot([100 * low, 100 * high], [place, place], color=color, linewidth=0.9)
    axis.plot(
        100 * effect.difference.mean,
        place,
        color=color,
        marker=style["marker"],
        fillstyle=fill_style,
        markersize=3.2,
        markeredgewidth=0.8,
    )


# Numbers


def _numbers(
    data: Collected,
    groups: Sequence[Group],
    others: Sequence[str],
    without_seed: Sequence[str],
) -> Table:
    left_out = f" (not drawn, in the tables: {', '.join(others)})" if others else ""
    caption = CAPTION.format(left_out=left_out)
    if without_seed:
        titles = "; ".join(dict.fromkeys(without_seed))
        caption += f" Left out, because no seed is finished in all rows: {titles}."
    caption += (
        _without_pairs(data, groups)
        + _left_out_pairs(data, groups)
        + more_seeds_of(_in_sections(data, groups))
    )
    caption += not_shown(data, [row for group in groups for row in group.rows])
    return Table(
        words=("Row", "Seeds", "Reach 50 %"),
        numbers=(
            "Area under validation (%)",
            "Steps to 50 %",
            "Last success (%)",
            "Area, minus the reference (points)",
            "Last, minus the reference (points)",
        ),
        blocks=tuple(_blocks(data, groups)),
        caption=with_note(caption, SCALE),
        label=f"tab:study-curves-{SCALE}",
    )


def _without_pairs(data: Collected, groups: Sequence[Group]) -> str:
    """Sentence on the rows that have no difference, because they have no pair; empty if all do."""
    titles: dict[str, None] = {}
    for group in groups:
        for row in group.rows:
            effects = [compare(data, row, group.reference, measure)[1] for measure, *_ in LANES]
            if row != group.reference and not any(effect.difference.n for effect in effects):
                titles[row.title] = None
    if not titles:
        return ""
    rows = "; ".join(titles)
    return f" Without a difference, because they have no pairs with the reference: {rows}."


def _left_out_pairs(data: Collected, groups: Sequence[Group]) -> str:
    """Sentence on the pairs of two finished runs that are left out; empty without any."""
    texts: dict[str, None] = {}
    for group in groups:
        for row in group.rows:
            if row == group.reference:
                continue
            if remark := pair_up(data, row, group.reference).remark:
                texts[f"{row.title} − {group.reference.title}: {remark}"] = None
    return f" Of the pairs: {'; '.join(texts)}." if texts else ""


def _in_sections(data: Collected, groups: Sequence[Group]) -> Iterator[tuple[Section, list[Row]]]:
    """Yield the sections of each group, with the group's rows as its experiment planned them."""
    for group in groups:
        drawn = {row.row.name for row in group.rows}
        for part in data.sections:
            for family in part.families:
                is_here = (part.env, part.model) == group.rows[0].benchmark
                if is_here and family.experiment == group.record.experiment:
                    yield part, [row for row in family.runs if row.name in drawn]


def _blocks(data: Collected, groups: Sequence[Group]) -> Iterator[Block]:
    titles = titles_apart(
        [f"{group.record.title}: {benchmark(group.rows[0].env)}" for group in groups],
        [group.rows for group in groups],
        [group.record for group in groups],
    )
    for title, group in zip(titles, groups, strict=True):
        yield Block(title, tuple(_lines(data, group)))


def _lines(data: Collected, group: Group) -> Iterator[Cells]:
    for row in group.rows:
        # Steps that all seeds take without reaching the level are no speed.
        reached = any(reaches(data, run, HALF) for run in row.row.finished)
        yield (
            _printed(data, group, row),
            row.row.count,
            how_many_reach(data, row.row, HALF),
            percent(over_seeds(data, row.row, AREA)),
            number(over_seeds(data, row.row, FASTER), 1, 1) if reached else NONE,
            percent(over_seeds(data, row.row, BETTER)),
            _minus_reference(data, group, row, AREA),
            _minus_reference(data, group, row, BETTER),
        )


def _minus_reference(data: Collected, group: Group, row: StudyRow, measure: Measure) -> Number:
    if row == group.reference:
        return NONE
    _, effect = compare(data, row, group.reference, measure)
    return paired_difference(effect.difference)
