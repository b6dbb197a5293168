"""The study's effects: every row minus GiGPO and minus SCPO, paired by seed, with its credit."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from scpo.intervals import Summary

from analysis.figures.curves import FEWEST, is_trained
from analysis.naming import names
from analysis.rendering.style import (
    CREDITED,
    FAILED,
    PAGE_WIDTH,
    REMARK,
    SUCCESS,
    Drawing,
    canvas_width,
    house_style,
    new_figure,
)
from analysis.rendering.table import NONE, Block, Number, Table, difference, number, percent
from analysis.sources.collect import Collected
from analysis.sources.rows import missing_runs
from analysis.stats.comparisons import (
    HIGHER,
    LOWER,
    OPEN,
    REFERENCES,
    Comparison,
    Effect,
    compare,
    named_comparisons,
)
from analysis.stats.measures import AREA
from analysis.stats.study_rows import MAIN, StudyRow, comparable, selected, study_rows

SCALE = "study"
HEIGHT, LINE = 1.45, 0.165  # inches: the figure without rows, and what each row adds
WORSE = "#5D3A9B"  # purple: told from green with any colour vision, and not the colour of credit
UNNAMED = "not named"
STYLES = {
    HIGHER: ("higher, resolved", SUCCESS, "o", "full"),
    LOWER: ("lower, resolved", WORSE, "o", "full"),
    OPEN: ("named, not resolved", REMARK, "o", "none"),
    UNNAMED: ("not named before the runs, not tested", FAILED, ".", "full"),
}
USUAL, WIDER = 85, 1.8  # percentile of the intervals' ends that the axis must hold, and its margin
STEPS = "credit/steps"
PRECISION = {
    "credit/precision": ("credited", CREDITED, "o"),
    "credit/precision_uncredited": ("uncredited", FAILED, "s"),
    "credit/precision_random": ("any failed step", REMARK, "|"),
}
CAPTION = (
    "Area under validation (all held-out games) of every trained row minus that of GiGPO and of "
    "SCPO, paired by seed, with 95 % Student intervals (from three pairs on), sorted by the "
    "difference to GiGPO. Filled: a comparison that was named before the runs and is resolved at "
    "5 % after Holm's correction over all {tests} named comparisons of the study; hollow: named "
    "and not resolved; small point: not named, so not tested. An arrow is a difference beyond the "
    "axis, with its value. Right: credited steps per failed trajectory of active groups "
    "(logarithmic), mean over training steps and seeds, and the share of steps that shorten the "
    "shortest plan to win, of credited steps, of the others of the same trajectories, and of all "
    "steps of failures."
)


@dataclass(frozen=True)
class Shown:
    """One difference; ``kind``: its verdict where it was named, else UNNAMED."""

    effect: Effect
    kind: str


@dataclass(frozen=True)
class Line:
    """One row, its differences by reference, and its credit."""

    row: StudyRow
    differences: Mapping[str, Shown]
    credit: Mapping[str, Summary]


def build(data: Collected) -> Drawing:
    """Four panels for the benchmark with most rows.

    Raises:
        MissingRunsError: Nothing can be paired with GiGPO or SCPO.
    """
    comparisons = named_comparisons(data)
    rows, lines = _choose(data, comparisons)
    with house_style():
        figure = new_figure(canvas_width(PAGE_WIDTH), HEIGHT + LINE * len(lines))
        axes = figure.subplots(1, 4, sharey=True, width_ratios=(1.25, 1.25, 0.7, 0.9))
        first, second, steps, precision = axes
        for axis, reference in ((first, "gigpo"), (second, "scpo")):
            _draw_differences(axis, lines, reference)
        _draw_steps(steps, lines)
        _draw_precision(precision, lines)
        labels = [f"{line.row.title}, {line.row.row.count}" for line in lines]
        first.set_yticks(range(len(lines)), labels, fontsize=6.5)
        first.set_ylim(len(lines) - 0.4, -0.6)
        figure.legend(
            handles=[_key(*style) for style in STYLES.values()],
            loc="outside lower center",
            ncols=4,
            fontsize=6.5,
            handletextpad=0.1,
            columnspacing=1.2,
        )
        figure.suptitle(names.STUDY_TITLE, fontsize=7, color=REMARK)
    tests = comparisons[0].effect.tests if comparisons else 0
    return Drawing(figure, _numbers(rows[0], lines, tests))


def _key(label: str, color: str, marker: str, fill: str) -> Line2D:
    return Line2D([], [], color=color, marker=marker, fillstyle=fill, linestyle="", label=label)


def _choose(
    data: Collected, comparisons: Sequence[Comparison]
) -> tuple[list[StudyRow], list[Line]]:
    """Rows of the benchmark with most lines; untrained ones would squeeze the others."""
    trained = [row for row in study_rows(data) if row.row.finished and is_trained(data, row.row)]
    best: tuple[list[StudyRow], list[Line]] = ([], [])
    for place in dict.fromkeys((row.env, row.model) for row in trained):
        here = [row for row in trained if (row.env, row.model) == place]
        lines = _lines(data, here, comparisons)
        if len(lines) > len(best[1]):
            best = (here, lines)
    if not best[1]:
        needed = "two finished seeds of a row and of GiGPO or SCPO"
        raise missing_runs(needed, data.sections, MAIN)
    return best


def _lines(
    data: Collected, rows: Sequence[StudyRow], comparisons: Sequence[Comparison]
) -> list[Line]:
    references = {
        name: row
        for name in reversed(REFERENCES)
        if (row := next((row for row in rows if row.called(name)), None)) is not None
    }
    found = []
    for row in rows:
        if not selected(data, row):
            continue  # a reference may be compared with all the same
        differences = {
            name: shown
            for name, reference in references.items()
            if row != reference and (shown := _shown(data, row, reference, comparisons))
        }
        if differences:
            found.append(Line(row, differences, _credit(data, row)))
    return sorted(found, key=lambda line: -_place(line))


def _shown(
    data: Collected, row: StudyRow, reference: StudyRow, comparisons: Sequence[Comparison]
) -> Shown | None:
    """The named comparison of two rows in this direction, or else their uncorrected difference."""
    for comparison in comparisons:
        if comparison.effect.measure != AREA or not comparison.finished:
            continue
        if (comparison.first, comparison.second) == (row, reference):
            return Shown(comparison.effect, comparison.effect.verdict)
        if (comparison.second, comparison.first) == (row, reference):
            effect = comparison.effect.reversed()
            return Shown(effect, effect.verdict)
    if not comparable(data, row, reference):
        return None
    _, effect = compare(data, row, reference, AREA)
    return Shown(effect, UNNAMED) if effect.difference.n else None


def _place(line: Line) -> float:
    """By the difference to GiGPO, which is 0 for GiGPO itself."""
    shown = line.differences.get("gigpo")
    return shown.effect.difference.mean if shown else 0.0


def _credit(data: Collected, row: StudyRow) -> dict[str, Summary]:
    return {metric: data.summary(row.row, metric, "mean") for metric in (STEPS, *PRECISION)}


def _draw_differences(axis: Axes, lines: Sequence[Line], reference: str) -> None:
    axis.axvline(0, color=REMARK, linewidth=0.8)
    low, high = _limits(
        [line.differences[reference] for line in lines if reference in line.differences]
    )
    axis.set_xlim(low, high)
    for place, line in enumerate(lines):
        if line.row.called(reference) and reference not in line.differences:
            axis.plot(0, place, marker="D", color=REMARK, markersize=3)
        elif shown := line.differences.get(reference):
            _draw_one(axis, shown, place, (low, high))
    axis.set_xlabel(f"area under validation,\nminus {REFERENCES[reference]} (points)")


def _draw_one(axis: Axes, shown: Shown, place: int, limits: tuple[float, float]) -> None:
    _, color, marker, fill = STYLES[shown.kind]
    mean = 100 * shown.effect.difference.mean
    if not limits[0] <= mean <= limits[1]:
        edge, arrow = (limits[0], "<") if mean < limits[0] else (limits[1], ">")
        axis.plot(edge, place, marker=arrow, color=color, fillstyle=fill, clip_on=False)
        text = f"{mean:+.0f}".replace("-", "−")
        shift = (5, -2) if arrow == "<" else (-5, -2)
        side = "left" if arrow == "<" else "right"
        axis.annotate(
            text, (edge, place), shift, textcoords="offset points", ha=side, fontsize=6, color=color
        )
        return
    if shown.effect.difference.n >= FEWEST:
        low, high = shown.effect.difference.interval()
        axis.plot([100 * low, 100 * high], [place, place], color=color, linewidth=1.1)
    axis.plot(mean, place, marker=marker, color=color, fillstyle=fill, markersize=4)


def _limits(shown: Sequence[Shown]) -> tuple[float, float]:
    """Limits that hold most intervals: one far row must not squeeze all others."""
    ends: list[float] = [-1.0, 1.0]
    for one in shown:
        bounds = one.effect.difference.interval()
        mean = one.effect.difference.mean
        ends += [100 * bound for bound in bounds if math.isfinite(bound)] or [100 * mean]
    usual = WIDER * float(np.percentile(np.abs(ends), USUAL))
    low, high = max(min(ends), -usual), min(max(ends), usual)
    margin = 0.06 * (high - low)
    return low - margin, high + margin


def _draw_steps(axis: Axes, lines: Sequence[Line]) -> None:
    values = [(line.credit[STEPS], place) for place, line in enumerate(lines)]
    known = [(value.mean, place) for value, place in values if value.n and value.mean > 0]
    axis.set_xlabel("credited steps\nper failure")
    if not known:
        _nothing(axis)
        return
    axis.plot(*zip(*known, strict=True), "o", color=CREDITED, markersize=3)
    axis.set_xscale("log")
    axis.margins(x=0.15)


def _draw_precision(axis: Axes, lines: Sequence[Line]) -> None:
    axis.set_xlabel("steps that shorten\nthe plan (%)")
    drawn = False
    for lane, (metric, (label, color, marker)) in enumerate(PRECISION.items()):
        known = [
            (100 * line.credit[metric].mean, place + 0.22 * (lane - 1))
            for place, line in enumerate(lines)
            if line.credit[metric].n
        ]
        if known:
            points = zip(*known, strict=True)
            axis.plot(*points, marker, color=color, markersize=3, label=label)
            drawn = True
    if not drawn:
        _nothing(axis)
        return
    axis.margins(x=0.12)
    axis.set_xlim(left=0)
    axis.legend(
        loc="lower center",
        bbox_to_anchor=(0.4, 1),
        fontsize=6,
        handletextpad=0.1,
        borderpad=0,
    )


def _nothing(axis: Axes) -> None:
    axis.set_xticks([])
    axis.text(
        0.5,
        0.5,
        "not measured",
        transform=axis.transAxes,
        ha="center",
        color=REMARK,
        fontsize=6.5,
    )


def _numbers(row: StudyRow, lines: Sequence[Line], tests: int) -> Table:
    heading = names.place(SCALE, row.env, row.model)
    return Table(
        words=("Row", "Seeds", *(f"{label}, verdict" for label in REFERENCES.values())),
        numbers=(
            *(f"Minus {label} (points)" for label in REFERENCES.values()),
            "Credited steps",
            *(f"Shorten the plan, {label} (%)" for label, _, _ in PRECISION.values()),
        ),
        blocks=(Block(heading, tuple(_cells(line) for line in lines)),),
        caption=names.with_note(CAPTION.format(tests=tests), SCALE),
        label=f"tab:study-effects-{SCALE}",
    )


def _cells(line: Line) -> tuple[str | Number, ...]:
    found = line.differences
    verdicts = [found[name].kind if name in found else "–" for name in REFERENCES]
    differences = [
        difference(found[name].effect.difference) if name in found else NONE for name in REFERENCES
    ]
    shares = [percent(line.credit[metric]) for metric in PRECISION]
    return (
        line.row.title,
        line.row.row.count,
        *verdicts,
        *differences,
        number(line.credit[STEPS], 1, 2),
        *shares,
    )
