"""The study's effects: trained rows minus GiGPO and minus SCPO, paired by seed, with credit."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill, wrap

import numpy as np
from matplotlib.axes import Axes
from matplotlib.font_manager import FontProperties
from matplotlib.lines import Line2D
from matplotlib.textpath import text_to_path
from matplotlib.ticker import MaxNLocator, NullFormatter

from analysis import names
from analysis.figures.curves import FEWEST, paired_difference
from analysis.rendering.style import (
    CREDITED,
    FAILED,
    PAGE_WIDTH,
    POINTS_PER_INCH,
    REMARK,
    REMARK_LINE,
    SUCCESS,
    Drawing,
    canvas_width,
    house_style,
    new_figure,
    points,
    remark,
    remark_lines,
    text_scale,
)
from analysis.rendering.table import NONE, Block, Cells, Number, Table, number, percent
from analysis.selection import without_common_seed
from analysis.sources.collected import Collected, MissingRunsError, missing_runs
from analysis.sources.rows import first_names
from analysis.stats.comparisons import (
    HIGHER,
    LOWER,
    OPEN,
    REFERENCES,
    WITHOUT_COMMON_SEED,
    Comparison,
    Effect,
    asked_seeds,
    compare,
    named_comparisons,
    tested,
)
from analysis.stats.measures import AREA, logged_steps
from analysis.stats.seed_statistics import fewer_seeds
from analysis.stats.study_rows import (
    MAIN,
    StudyRow,
    by_benchmark,
    common_settings,
    comparable,
    not_shown,
    on_common_seeds,
    rate_text,
    selected,
    study_rows,
    with_common_seeds,
)
from scpo.intervals import Summary, decimal

SCALE = "study"

# Least width for the names of rows and four panels, in inches.
LEAST_WIDTH = 6.5

# Heights in inches.
HEIGHT = 1.65  # the figure without rows
LINE = 0.2  # each row whose name takes at most two lines of text

# Size of the text of keys and rows, in points.
KEY = 6.5

# Characters per line of a row's name: the usual number, and the most that are tried so that the
# name fits into the usual lines.
NAME_WIDTH, WIDEST_NAME = 34, 50

# Share of the least width for the names of rows; the panels need the rest for their labels.
NAME_SHARE = 0.29

# Lines of a row's name: the number that a row has room for, and the most that are drawn.
USUAL_LINES, MOST_LINES = 2, 4

# Characters per line of an axis' label.
AXIS_WIDTH = 26

# Purple differs from green with any colour vision, and is not the colour of credit.
WORSE = "#5D3A9B"
UNNAMED = "not named"
FEW = "named, too few pairs"

# Kind of a difference -> its key, colour, marker and fill.
STYLES = {
    HIGHER: ("higher, resolved", SUCCESS, "o", "full"),
    LOWER: ("lower, resolved", WORSE, "o", "full"),
    OPEN: ("named, not resolved", REMARK, "o", "none"),
    UNNAMED: ("not named before the runs, not tested", FAILED, ".", "full"),
    FEW: ("named, fewer than two of its pairs, not tested", REMARK, "x", "full"),
}

# The limit of an axis: this percentile of the intervals' ends, times this factor. Differences
# beyond it become arrows.
USUAL, WIDER = 85, 1.8
STEPS = "credit/steps"

# Metric -> its key, colour and marker.
PRECISION = {
    "credit/precision": ("credited", CREDITED, "o"),
    "credit/precision_uncredited": ("uncredited", FAILED, "s"),
    "credit/precision_random": ("any failed step", REMARK, "|"),
}

# Vertical distance between the precisions of a row, in rows.
LANE = 0.22
CAPTION = (
    "Area under validation (all held-out games) of trained rows minus that of {compared_with}, "
    "paired by seed, with 95 % Student intervals (from three pairs on){order}. {kinds} An arrow "
    "with a value is a difference beyond the axis, a small arrow an interval that goes on beyond "
    "it. Right: credited steps per failed trajectory of active groups, groups with a success and "
    "a failure (logarithmic), mean over the training steps with such a group, then over seeds."
)
HELPS = (
    " Far right: the share of steps that shorten the shortest plan to win, of credited steps, of "
    "the others of the same trajectories, and of all steps of failures, on samples at {steps}, "
    "mean over those of them that have such steps, then over seeds; credited are the steps that "
    "the shaper credits, or with a positive step term of the advantage in rows without a shaper, "
    "whose credited steps are not counted."
)
RATES = (
    " The rows train at different learning rates (in this figure's table), so that part of a "
    "difference may be due to the rates."
)
COMMON = (
    " Seeds: those that all drawn rows have finished; tab_study_effects takes those that its own "
    "rows have finished, by which a verdict may differ."
)
TESTED = (
    "Filled: a comparison that was named before the runs and is resolved at 5 %, on at least three "
    "pairs, after Holm's correction over {tests}; hollow: named and not resolved; "
    "small point: not named, so not tested."
)
UNFINISHED = (
    " Cross: a comparison that was named before the runs and has fewer than two pairs on the seeds "
    "for which it was named, so that it is not tested yet; the difference is over all pairs."
)
UNTESTED = "No comparison that was named before the runs has two pairs, so none is tested."


@dataclass(frozen=True)
class Shown:
    """One difference; ``kind``: its verdict if it was named before the runs, else UNNAMED.

    FEW: it was named, and fewer than two pairs of its seeds have finished.
    """

    effect: Effect
    kind: str


@dataclass(frozen=True)
class Line:
    """One row, its differences by reference, and its credit by metric."""

    row: StudyRow
    differences: Mapping[str, Shown]
    credit: Mapping[str, Summary]


def build(data: Collected) -> Drawing:
    """Four panels for the benchmark with most rows.

    Raises:
        MissingRunsError: Nothing can be paired with GiGPO or SCPO.
    """
    rows = study_rows(data)
    comparisons = named_comparisons(data, rows)
    references, lines, others = _choose(data, rows, comparisons)
    if data.common_seeds:
        rows = _on_common_seeds(data, rows, [line.row for line in lines])
        comparisons = named_comparisons(data, rows)
        references, lines, others = _choose(data, rows, comparisons)
    has_few = any(shown.kind == FEW for line in lines for shown in line.differences.values())
    notes = names.Footnotes()
    # Marked first, because the height depends on the footnotes.
    marks = [_mark(line, notes) for line in lines]
    # The remark names the common settings once; row names that repeat them would be too long.
    common = common_settings([line.row for line in lines])
    heading = ", ".join((names.STUDY_TITLE, *common.values()))
    text = f"{heading}\n{notes.text.strip()}".rstrip()
    with house_style():
        width = canvas_width(PAGE_WIDTH, LEAST_WIDTH * text_scale())
        # The height without rows has room for one line of the remark.
        above = REMARK_LINE * (remark_lines(text, width) - 1)
        labels = []
        for line, mark in zip(lines, marks, strict=True):
            labels.append(_folded(f"{line.row.title_without(common)}{mark}", line.row.row.count))
        most = max(label.count("\n") + 1 for label in labels)
        height = LINE * max(1, most / USUAL_LINES)
        figure = new_figure(width, HEIGHT + above + height * len(lines))
        axes = figure.subplots(1, 4, sharey=True, width_ratios=(1.25, 1.25, 0.7, 0.9))
        first, second, steps, precision = axes
        _draw_differences(first, lines, references, "gigpo")
        _draw_differences(second, lines, references, "scpo")
        _draw_steps(steps, lines)
        _draw_precision(precision, lines)
        first.set_yticks(range(len(lines)), labels, fontsize=points(KEY))
        first.set_ylim(len(lines) - 0.4, -0.6)
        keys = [style for kind, style in STYLES.items() if kind != FEW or has_few]
        figure.legend(
            handles=[_key(*style) for style in keys],
            loc="outside lower center",
            ncols=4,
            fontsize=points(KEY),
            handletextpad=0.1,
            columnspacing=1.2,
        )
        remark(figure, text)

    drawn = [line.row for line in lines]
    caption = _caption(data, comparisons, drawn, references)
    if has_few:
        caption += UNFINISHED
    if len({row.learning_rate for row in (*drawn, *references.values())}) > 1:
        caption += RATES
    caption += asked_seeds(data) + (COMMON if data.common_seeds else "") + not_shown(data, drawn)
    caption += _other_benchmarks(drawn[0].env, others) + _not_drawn(data, rows, drawn, references)
    for name, reference in references.items():
        if reference.title != REFERENCES[name]:
            caption += f" {REFERENCES[name]} is the row “{reference.title}”."
    return Drawing(figure, _numbers(lines, caption, notes))


def _other_benchmarks(drawn: str, others: Sequence[str]) -> str:
    """Sentence on the drawn benchmark and on others that could be drawn; empty without others."""
    if not others:
        return ""
    options = ", ".join(f"--env {env} draws {names.benchmark(env)}" for env in others)
    return f" Drawn is {names.benchmark(drawn)}; {options}."


def _not_drawn(
    data: Collected,
    rows: Sequence[StudyRow],
    drawn: Sequence[StudyRow],
    references: Mapping[str, StudyRow],
) -> str:
    """Sentence on the trained rows of the drawn benchmark that are not drawn; empty if all are.

    A row without a difference to a reference is left out, and the references are of one setting.
    """
    left = []
    for row in rows:
        is_here = row.benchmark == drawn[0].benchmark and selected(data, row)
        is_shown = row in drawn or row in references.values()
        if is_here and not is_shown and row.row.finished and data.is_trained(row.row):
            left.append(row)
    if not left:
        return ""
    compared_with = " and ".join(f"“{row.title}”" for row in references.values())
    return (
        f" Not drawn, because they have no pairs with {compared_with} under the same settings: "
        f"{first_names(row.title for row in left)}."
    )


def _caption(
    data: Collected,
    comparisons: Sequence[Comparison],
    drawn: Sequence[StudyRow],
    references: Collection[str],
) -> str:
    compared_with = " and of ".join(REFERENCES[name] for name in REFERENCES if name in references)
    order = f", sorted by the difference to {REFERENCES['gigpo']}" if "gigpo" in references else ""
    kinds = UNTESTED
    if any(comparison.finished for comparison in comparisons):
        kinds = TESTED.format(tests=tested(comparisons, SCALE))
    steps = logged_steps(data, (row.row for row in drawn), PRECISION)
    caption = CAPTION.format(compared_with=compared_with, order=order, kinds=kinds)
    return caption + (HELPS.format(steps=steps) if steps else "")


def _mark(line: Line, notes: names.Footnotes) -> str:
    """Mark of the footnote on numbers that only some of the row's finished seeds have."""
    numbers = {}
    for name, shown in line.differences.items():
        numbers[f"minus {REFERENCES[name]}"] = shown.effect.difference
    for metric, summary in line.credit.items():
        label = "credited steps" if metric == STEPS else f"shorten the plan, {PRECISION[metric][0]}"
        numbers[label] = summary
    return notes.mark(fewer_seeds(numbers, len(line.row.row.finished)))


def _key(label: str, color: str, marker: str, fill: str) -> Line2D:
    return Line2D(
        [],
        [],
        color=color,
        marker=marker,
        fillstyle=fill,
        linestyle="",
        label=label,
    )


# Data


def _on_common_seeds(
    data: Collected, rows: Sequence[StudyRow], shown: Sequence[StudyRow]
) -> list[StudyRow]:
    """All rows of the study, with the shown ones cut to the seeds that all of these have finished.

    Raises:
        MissingRunsError: The shown rows have no finished seed in common.
    """
    if not on_common_seeds(data, shown):
        place = names.place(SCALE, shown[0].env, shown[0].model)
        reason = without_common_seed(data, [row.row for row in shown], place)
        raise MissingRunsError(f"common seed: {reason}", WITHOUT_COMMON_SEED)
    return with_common_seeds(data, rows, shown)


def _choose(
    data: Collected, rows: Sequence[StudyRow], comparisons: Sequence[Comparison]
) -> tuple[dict[str, StudyRow], list[Line], list[str]]:
    """References and lines of the benchmark with most lines, and the other environments with lines.

    Only trained rows: the large differences of untrained ones would squeeze the axis of the others.
    """
    trained = []
    for row in rows:
        if row.row.finished and data.is_trained(row.row):
            trained.append(row)
    best: list[Line] = []
    of_best: dict[str, StudyRow] = {}
    envs: dict[str, None] = {}
    for (env, _), here in by_benchmark(trained).items():
        references = _references(here)
        lines = _lines(data, here, references, comparisons)
        if lines:
            envs[env] = None
        if len(lines) > len(best):
            best, of_best = lines, references
    if not best:
        needed = "two finished seeds of a row and of GiGPO or SCPO"
        raise missing_runs(needed, data.sections, MAIN)
    return of_best, best, [env for env in envs if env != best[0].row.env]


def _references(rows: Sequence[StudyRow]) -> dict[str, StudyRow]:
    """The row of each reference: the first of its name, which is the main table's if it has one."""
    references: dict[str, StudyRow] = {}
    for name in reversed(REFERENCES):
        for row in rows:
            if row.called(name):
                references.setdefault(name, row)
    return references


def _lines(
    data: Collected,
    rows: Sequence[StudyRow],
    references: Mapping[str, StudyRow],
    comparisons: Sequence[Comparison],
) -> list[Line]:
    lines = []
    for row in rows:
        if not selected(data, row):
            # The row is not drawn, but may still be a reference.
            continue
        differences: dict[str, Shown] = {}
        for name, reference in references.items():
            shown = None
            if row != reference:
                shown = _shown(data, row, reference, comparisons)
            if shown:
                differences[name] = shown
        if differences:
            lines.append(Line(row, differences, _credit(data, row)))
    return sorted(lines, key=lambda line: -_difference_to_gigpo(line))


def _shown(
    data: Collected,
    row: StudyRow,
    reference: StudyRow,
    comparisons: Sequence[Comparison],
) -> Shown | None:
    """The named comparison of two rows in this direction, or else their uncorrected difference."""
    kind = UNNAMED
    for comparison in comparisons:
        if comparison.effect.measure != AREA:
            continue
        if not comparison.finished:
            if {comparison.first, comparison.second} == {row, reference}:
                kind = FEW
            continue
        if (comparison.first, comparison.second) == (row, reference):
            return Shown(comparison.effect, comparison.effect.verdict)
        if (comparison.second, comparison.first) == (row, reference):
            # Named in the other direction: the same test with the opposite sign.
            effect = comparison.effect.reversed()
            return Shown(effect, effect.verdict)
    if not comparable(data, row, reference):
        return None
    _, effect = compare(data, row, reference, AREA)
    if not effect.difference.n:
        return None
    return Shown(effect, kind)


def _difference_to_gigpo(line: Line) -> float:
    """Mean difference to GiGPO; 0 for GiGPO itself."""
    shown = line.differences.get("gigpo")
    return shown.effect.difference.mean if shown else 0.0


def _credit(data: Collected, row: StudyRow) -> dict[str, Summary]:
    return {metric: data.summary(row.row, metric, "mean") for metric in (STEPS, *PRECISION)}


# Differences


def _draw_differences(
    axis: Axes, lines: Sequence[Line], references: Mapping[str, StudyRow], reference: str
) -> None:
    axis.axvline(0, color=REMARK, linewidth=0.8)
    shown = [line.differences[reference] for line in lines if reference in line.differences]
    limits = _limits(shown)
    axis.set_xlim(*limits)
    for place, line in enumerate(lines):
        if reference in line.differences:
            _draw_difference(axis, line.differences[reference], place, limits)
        elif line.row == references.get(reference):
            axis.plot(0, place, marker="D", color=REMARK, markersize=3)
    axis.set_xlabel(_difference_label(references, reference))


def _folded(name: str, seeds: str) -> str:
    """Fold a row's name and seeds into lines that leave the panels room for their labels.

    Uses ``USUAL_LINES`` lines if the text fits into them, and otherwise up to ``MOST_LINES``. Text
    that does not fit into these is left out; the table has the whole name.
    """
    # No line break between a symbol and its value.
    whole = f"{name}, {seeds}".replace(" = ", "\u00a0=\u00a0")
    for width in range(NAME_WIDTH, WIDEST_NAME + 1):
        lines = wrap(whole, width)
        if len(lines) <= USUAL_LINES and _has_room(lines):
            return "\n".join(lines)
    end = f" …, {seeds}"
    width = NAME_WIDTH
    lines = _first_lines(whole, end, width)
    while not _has_room(lines):
        width -= 1
        lines = _first_lines(whole, end, width)
    return "\n".join(lines)


def _first_lines(name: str, end: str, width: int) -> list[str]:
    """The first ``MOST_LINES`` lines of a folded name; ``end`` replaces the text of later ones."""
    lines = wrap(name, width)
    if len(lines) <= MOST_LINES:
        return lines
    last = lines[MOST_LINES - 1][: max(0, width - len(end))].rstrip(" ,")
    return [*lines[: MOST_LINES - 1], f"{last}{end}"]


def _has_room(lines: Sequence[str]) -> bool:
    """True if lines of a row's name leave the panels room at the least width."""
    font = FontProperties(size=points(KEY))
    widths = [
        float(text_to_path.get_text_width_height_descent(line, font, False)[0]) for line in lines
    ]
    most = NAME_SHARE * LEAST_WIDTH * text_scale() * POINTS_PER_INCH
    return max(widths) <= most


def _difference_label(references: Mapping[str, StudyRow], reference: str) -> str:
    # The title names the setting if rows with several settings have run. A long title is left out,
    # because it takes the panels' room; the caption has it, and the row itself is marked.
    name = REFERENCES[reference]
    if reference in references and len(references[reference].title) <= AXIS_WIDTH:
        name = references[reference].title
    return f"area under validation,\n{fill(f'minus {name} (points)', AXIS_WIDTH)}"


def _draw_difference(
    axis: Axes,
    shown: Shown,
    place: int,
    limits: tuple[float, float],
) -> None:
    _, color, marker, fill = STYLES[shown.kind]
    summary = shown.effect.difference
    mean = 100 * summary.mean
    if not limits[0] <= mean <= limits[1]:
        _draw_arrow(axis, shown, place, limits)
        return
    if summary.n >= FEWEST:
        low, high = summary.interval()
        axis.plot([100 * low, 100 * high], [place, place], color=color, linewidth=1.1)
        # Without a mark, an interval that goes on beyond the axis would seem to end there.
        if 100 * low < limits[0]:
            axis.plot(limits[0], place, "<", color=color, markersize=3, clip_on=False)
        if 100 * high > limits[1]:
            axis.plot(limits[1], place, ">", color=color, markersize=3, clip_on=False)
    axis.plot(mean, place, marker=marker, color=color, fillstyle=fill, markersize=4)


def _draw_arrow(axis: Axes, shown: Shown, place: int, limits: tuple[float, float]) -> None:
    """Draw a difference beyond the axis: an arrow at its edge, with the value."""
    _, color, _, fill = STYLES[shown.kind]
    mean = 100 * shown.effect.difference.mean
    if mean < limits[0]:
        edge = limits[0]
        arrow = "<"
        shift = (5, -2)
        side = "left"
    else:
        edge = limits[1]
        arrow = ">"
        shift = (-5, -2)
        side = "right"
    axis.plot(edge, place, marker=arrow, color=color, fillstyle=fill, clip_on=False)
    axis.annotate(
        decimal(mean, 0, sign=True),
        (edge, place),
        shift,
        textcoords="offset points",
        ha=side,
        fontsize=points(6),
        color=color,
    )


def _limits(shown: Sequence[Shown]) -> tuple[float, float]:
    """Limits of the axis, wide enough for most intervals; an outlier must not squeeze these."""
    ends: list[float] = [-1.0, 1.0]
    for entry in shown:
        summary = entry.effect.difference
        if summary.n >= FEWEST:
            ends += [100 * bound for bound in summary.interval()]
        else:
            ends.append(100 * summary.mean)
    usual = WIDER * float(np.percentile(np.abs(ends), USUAL))
    low = max(min(ends), -usual)
    high = min(max(ends), usual)
    margin = 0.06 * (high - low)
    return low - margin, high + margin


# Credit


def _draw_steps(axis: Axes, lines: Sequence[Line]) -> None:
    axis.set_xlabel("credited steps\nper failure")
    means = []
    places = []
    for place, line in enumerate(lines):
        steps = line.credit[STEPS]
        # The logarithmic axis has no place for 0.
        if steps.n and steps.mean > 0:
            means.append(steps.mean)
            places.append(place)

    if not means:
        _not_measured(axis)
        return
    axis.plot(means, places, "o", color=CREDITED, markersize=3)
    axis.set_xscale("log")
    axis.margins(x=0.15)
    _label_short_axis(axis)


def _label_short_axis(axis: Axes) -> None:
    """Label few ticks of a logarithmic axis of at most a decade.

    Otherwise matplotlib labels all ticks between powers of ten there, on top of each other.
    """
    low, high = axis.get_xlim()
    if high / low > 10:
        return
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [factor * 10.0**decade for decade in decades for factor in (1, 2, 5)]
    ticks = [tick for tick in ticks if low <= tick <= high]
    if len(ticks) < 2:
        ticks = [tick for tick in MaxNLocator(2).tick_values(low, high) if low <= tick <= high]
    axis.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.xaxis.set_minor_formatter(NullFormatter())


def _draw_precision(axis: Axes, lines: Sequence[Line]) -> None:
    axis.set_xlabel("steps that shorten\nthe plan (%)")
    drawn = False
    for lane, (metric, (label, color, marker)) in enumerate(PRECISION.items()):
        shares = []
        places = []
        for place, line in enumerate(lines):
            if line.credit[metric].n:
                shares.append(100 * line.credit[metric].mean)
                places.append(place + LANE * (lane - 1))
        if shares:
            axis.plot(shares, places, marker, color=color, markersize=3, label=label)
            drawn = True

    if not drawn:
        _not_measured(axis)
        return

    axis.margins(x=0.12)
    axis.set_xlim(left=0)
    axis.legend(
        loc="lower center",
        bbox_to_anchor=(0.4, 1),
        fontsize=points(6),
        handletextpad=0.1,
        borderpad=0,
    )


def _not_measured(axis: Axes) -> None:
    axis.set_xticks([])
    axis.text(
        0.5,
        0.5,
        "not measured",
        transform=axis.transAxes,
        ha="center",
        color=REMARK,
        fontsize=points(KEY),
    )


# Numbers


def _numbers(lines: Sequence[Line], caption: str, notes: names.Footnotes) -> Table:
    row = lines[0].row
    heading = names.place(SCALE, row.env, row.model)
    return Table(
        words=("Row", "Seeds", *(f"{label}, verdict" for label in REFERENCES.values())),
        numbers=(
            "Learning rate",
            *(f"Minus {label} (points)" for label in REFERENCES.values()),
            "Credited steps",
            *(f"Shorten the plan, {label} (%)" for label, _, _ in PRECISION.values()),
        ),
        blocks=(Block(heading, tuple(_cells(line, notes) for line in lines)),),
        caption=names.with_note(f"{caption}{notes.text}", SCALE),
        label=f"tab:study-effects-{SCALE}",
        single=("Learning rate",),
        footnotes=notes.texts,
    )


def _cells(line: Line, notes: names.Footnotes) -> Cells:
    verdicts = []
    differences = []
    for name in REFERENCES:
        shown = line.differences.get(name)
        verdicts.append(shown.kind if shown else "–")
        differences.append(paired_difference(shown.effect.difference) if shown else NONE)
    return (
        f"{line.row.title}{_mark(line, notes)}",
        line.row.row.count,
        *verdicts,
        _rate(line.row),
        *differences,
        number(line.credit[STEPS], 1, 2),
        *(percent(line.credit[metric]) for metric in PRECISION),
    )


def _rate(row: StudyRow) -> Number:
    return NONE if row.learning_rate is None else Number(rate_text(row.learning_rate))
