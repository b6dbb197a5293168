"""The study's curves: held-out success of methods, ablations and controls, and their differences paired by seed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import wrap
from typing import Any, TypeAlias

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.curves import FEWEST, over_training
from analysis.naming.line_styles import plot_styles
from analysis.naming.names import STUDY_TITLE, with_note
from analysis.rendering.style import PAGE_WIDTH, REMARK, Drawing, house_style
from analysis.rendering.table import Block, Number, Table, percent
from analysis.sources.collect import Collected
from analysis.sources.rows import Family, Row, Section, missing_runs
from analysis.stats.comparisons import MAIN, REFERENCES, distinct, label_of
from analysis.stats.measures import MEASURES, by_seed, held_out, success_at
from analysis.stats.paired import difference
from scpo.intervals import summarise

SCALE = "study"
MOST = 4  # lines of panels that fit on a page
ROW_HEIGHT, MARGIN = 1.95, 0.35  # inches
SIDE_BY_SIDE = 0.6  # of the steps between two validations
TITLE = 24  # characters beside a panel
CAPTION = (
    "Left: success on the held-out games of all validation panels over training, mean over the finished seeds, band: "
    "95 % Student interval of the mean (from three seeds on). Right: the same minus that of GiGPO (of SCPO where GiGPO "
    "is no row), paired by seed, with 95 % intervals (from three pairs on), the rows side by side at each "
    "validation. One line of panels for "
    "each experiment that named its comparisons before its runs{left_out}; runs that two of them share are drawn in "
    "both. Behind each name: seeds (finished/planned). The table holds the mean of each run's area under its curves, "
    "± standard deviation."
)


Styles: TypeAlias = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Group:
    """The rows of one experiment."""

    part: Section
    family: Family
    rows: tuple[Row, ...]


def build(data: Collected) -> Drawing:
    """One line of panels for each experiment with named comparisons; MissingRunsError if none has finished runs."""
    groups, others = _groups(data)
    if not groups:
        raise missing_runs("finished runs of the study", data.sections, "main_table")
    with house_style():
        figure = Figure(figsize=(PAGE_WIDTH, ROW_HEIGHT * len(groups) + MARGIN))
        axes = figure.subplots(len(groups), 3, squeeze=False, width_ratios=(1, 1.25, 0.72))
        for group, (left, right, key) in zip(groups, axes, strict=True):
            styles = plot_styles(group.rows)
            _draw(data, group, left, styles)
            _draw_differences(data, group, right, styles)
            left.set_ylabel("\n".join([*wrap(group.family.title, TITLE), "success (%)"]))
            _key(key, left)
        figure.suptitle(STUDY_TITLE, fontsize=7, color=REMARK)
    return Drawing(figure, _numbers(data, groups, others))


def _groups(data: Collected) -> tuple[list[Group], list[str]]:
    """What is drawn, and the titles of the experiments that are not."""
    groups: list[Group] = []
    others: list[str] = []
    for part in data.sections:
        finished = {row.name: row for row in distinct(part) if any(_has_curve(data, run) for run in row.finished)}
        for family in part.families:
            rows = tuple(finished[name] for name in family.rows if name in finished)
            if family.primary and len(rows) > 1 and len(groups) < MOST:
                groups.append(Group(part, family, rows))
            elif rows:
                others.append(family.title)
    groups.sort(key=lambda group: group.family.experiment != MAIN)
    return groups, list(dict.fromkeys(others))


def _has_curve(data: Collected, run: str) -> bool:
    return len(held_out(data, run).steps) > 1


def _draw(data: Collected, group: Group, axis: Axes, styles: Styles) -> None:
    for row in group.rows:
        series = [held_out(data, run) for run in row.finished]
        steps = sorted(set.intersection(*(set(one.steps) for one in series)))
        found = [summarise(one.at(step) for one in series) for step in steps]
        axis.plot(steps, [100 * one.mean for one in found], label=f"{label_of(row)}, {row.count}", **styles[row.name])
        if len(series) >= FEWEST:
            band = 100 * np.clip([one.interval() for one in found], 0, 1).T
            axis.fill_between(steps, *band, color=str(styles[row.name]["color"]), alpha=0.15, linewidth=0)
    axis.set_title("held-out games")
    over_training(axis)


def _draw_differences(data: Collected, group: Group, axis: Axes, styles: Styles) -> None:
    reference = next((row for name in REFERENCES for row in group.rows if row.name == name), group.rows[0])
    others = [row for row in group.rows if row is not reference]
    steps = held_out(data, reference.finished[0]).steps[1:]  # before training all rows are the same policy
    wide = SIDE_BY_SIDE * min((after - before for before, after in pairwise((0, *steps))), default=1)
    axis.axhline(0, color=REMARK, linewidth=0.8)
    for lane, row in enumerate(others):
        offset = wide * ((lane + 0.5) / len(others) - 0.5)
        style = {"color": styles[row.name]["color"], "marker": styles[row.name]["marker"], "markersize": 2.4}
        for step in steps:
            found = difference(*(by_seed(data, one, success_at(step)) for one in (row, reference)))
            axis.plot(step + offset, 100 * found.mean, **style)
            if found.n >= FEWEST:
                axis.plot(
                    [step + offset] * 2, [100 * bound for bound in found.interval()], color=style["color"], lw=0.9
                )
    axis.set_title(f"minus {label_of(reference)}, paired (points)")
    axis.set_xlabel("training step")
    axis.set_xticks(steps)


def _key(axis: Axes, of: Axes) -> None:
    axis.set_axis_off()
    handles, texts = of.get_legend_handles_labels()
    axis.legend(handles, texts, loc="center left", bbox_to_anchor=(-0.12, 0.5), fontsize=6, handlelength=2.4)


def _numbers(data: Collected, groups: Sequence[Group], others: Sequence[str]) -> Table:
    drawn = {group.family.title for group in groups}
    rest = [title for title in others if title not in drawn]
    left_out = f" (not drawn, in the tables: {', '.join(rest)})" if rest else ""
    scale = groups[0].part.scale
    return Table(
        words=("Row", "Seeds"),
        numbers=("Area under validation (%)", "Area under training (%)"),
        blocks=tuple(Block(group.family.title, tuple(_areas(data, group))) for group in groups),
        caption=with_note(CAPTION.format(left_out=left_out), scale),
        label=f"tab:study-curves-{scale}",
    )


def _areas(data: Collected, group: Group) -> Iterator[tuple[str | Number, ...]]:
    for row in group.rows:
        areas = (by_seed(data, row, MEASURES[name]).values() for name in ("validation_area", "training_area"))
        yield (label_of(row), row.count, *(percent(summarise(values)) for values in areas))
