"""The study's effects: every row minus GiGPO and minus SCPO, paired by seed, sorted, with what its credit was like."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from analysis.figures.curves import FEWEST
from analysis.naming import names
from analysis.rendering.style import ACCENT, CREDITED, FAILED, PAGE_WIDTH, REMARK, SUCCESS, Drawing, house_style
from analysis.rendering.table import NONE, Block, Number, Table, difference, number, percent
from analysis.sources.collect import Collected
from analysis.sources.rows import Row, Section, missing_runs
from analysis.stats.comparisons import HIGHER, LOWER, REFERENCES, Comparison, against, distinct, label_of
from analysis.stats.measures import MEASURES
from scpo.intervals import Summary

SCALE = "study"
HEIGHT, LINE = 1.15, 0.165  # inches: the figure without rows, and what each row adds
MEASURE = MEASURES["validation_area"]
STEPS = "credit/steps"
PRECISION = {
    "credit/precision": ("credited", CREDITED, "o"),
    "credit/precision_uncredited": ("uncredited", FAILED, "s"),
    "credit/precision_random": ("any failed step", REMARK, "|"),
}
CAPTION = (
    "Area under validation (all held-out games) of every row minus that of GiGPO and of SCPO, paired by seed, with "
    "95 % Student intervals (from three pairs on), sorted by the difference to GiGPO. Filled: the difference is "
    "resolved after Holm's "
    "correction over the panel's rows; hollow: it is not. Beside: credited steps per failed trajectory of active "
    "groups, mean over training steps and seeds, and the share of steps that shorten the shortest plan to win, of "
    "credited steps, of the others of the same trajectories, and of all steps of failures."
)


@dataclass(frozen=True)
class Effect:
    """One row, its differences by reference, and its credit."""

    row: Row
    differences: Mapping[str, Comparison]
    credit: Mapping[str, Summary]


def build(data: Collected) -> Drawing:
    """Four panels for the section with most rows; MissingRunsError if nothing can be paired with GiGPO or SCPO."""
    part, effects = _choose(data)
    with house_style():
        figure = Figure(figsize=(PAGE_WIDTH, HEIGHT + LINE * len(effects)))
        first, second, steps, precision = figure.subplots(1, 4, sharey=True, width_ratios=(1.25, 1.25, 0.8, 0.9))
        for axis, reference in ((first, "gigpo"), (second, "scpo")):
            _draw_differences(axis, effects, reference)
        _draw_steps(steps, effects)
        _draw_precision(precision, effects)
        first.set_yticks(
            range(len(effects)), [f"{label_of(one.row)}, {one.row.count}" for one in effects], fontsize=6.5
        )
        first.set_ylim(len(effects) - 0.4, -0.6)
        figure.suptitle(names.STUDY_TITLE, fontsize=7, color=REMARK)
    return Drawing(figure, _numbers(part, effects))


def _choose(data: Collected) -> tuple[Section, list[Effect]]:
    found = [(part, _effects(data, part)) for part in data.sections]
    part, effects = max(found, key=lambda item: len(item[1]), default=(None, []))
    if part is None or not effects:
        raise missing_runs("two finished seeds of a row and of GiGPO or SCPO", data.sections, "main_table")
    return part, effects


def _effects(data: Collected, part: Section) -> list[Effect]:
    found = {
        reference: {one.first.name: one for one in against(data, part, reference, MEASURE)} for reference in REFERENCES
    }
    rows = [row for row in distinct(part) if any(row.name in of for of in found.values())]
    effects = [
        Effect(row, {name: of[row.name] for name, of in found.items() if row.name in of}, _credit(data, row))
        for row in rows
    ]
    return sorted(effects, key=lambda one: -_place(one))


def _place(effect: Effect) -> float:
    """By the difference to GiGPO, which is 0 for GiGPO itself."""
    return effect.differences["gigpo"].difference.mean if "gigpo" in effect.differences else 0.0


def _credit(data: Collected, row: Row) -> dict[str, Summary]:
    return {metric: data.summary(row, metric, "mean") for metric in (STEPS, *PRECISION)}


def _draw_differences(axis: Axes, effects: Sequence[Effect], reference: str) -> None:
    axis.axvline(0, color=REMARK, linewidth=0.8)
    for place, effect in enumerate(effects):
        if effect.row.name == reference:
            axis.plot(0, place, marker="D", color=REMARK, markersize=3)
        elif one := effect.differences.get(reference):
            mean = 100 * one.difference.mean
            color = {HIGHER: SUCCESS, LOWER: ACCENT}.get(one.reading, REMARK)
            if one.difference.n >= FEWEST:
                low, high = one.difference.interval()
                axis.plot([100 * low, 100 * high], [place, place], color=color, linewidth=1.1)
            fill = "full" if one.reading in (HIGHER, LOWER) else "none"
            axis.plot(mean, place, marker="o", color=color, fillstyle=fill, markersize=4)
    axis.set_xlabel(f"area under validation,\nminus {REFERENCES[reference]} (points)")
    axis.margins(x=0.08)


def _draw_steps(axis: Axes, effects: Sequence[Effect]) -> None:
    for place, effect in enumerate(effects):
        if (value := effect.credit[STEPS]).n:
            axis.barh(place, value.mean, color=CREDITED, alpha=0.6, height=0.55)
    axis.set_xlabel("credited steps per\nfailed trajectory")
    axis.set_xlim(left=0)


def _draw_precision(axis: Axes, effects: Sequence[Effect]) -> None:
    for lane, (metric, (label, color, marker)) in enumerate(PRECISION.items()):
        known = [
            (100 * one.credit[metric].mean, place + 0.22 * (lane - 1))
            for place, one in enumerate(effects)
            if one.credit[metric].n
        ]
        axis.plot(*(zip(*known, strict=True) if known else ((), ())), marker, color=color, markersize=3, label=label)
    axis.set_xlabel("steps that shorten\nthe plan (%)")
    if not any(one.credit[metric].n for one in effects for metric in PRECISION):
        axis.set_xticks([])
        axis.text(0.5, 0.5, "not measured", transform=axis.transAxes, ha="center", color=REMARK, fontsize=6.5)
        return
    axis.margins(x=0.12)
    axis.set_xlim(left=0)
    axis.legend(loc="lower center", bbox_to_anchor=(0.4, 1), fontsize=6, handletextpad=0.1, borderpad=0)


def _numbers(part: Section, effects: Sequence[Effect]) -> Table:
    return Table(
        words=("Row", "Seeds"),
        numbers=(
            *(f"Minus {label} (points)" for label in REFERENCES.values()),
            "Credited steps",
            *(f"Shorten the plan, {label} (%)" for label, _, _ in PRECISION.values()),
        ),
        blocks=(Block(names.place(part.scale, part.env, part.model), tuple(map(_line, effects))),),
        caption=names.with_note(CAPTION, part.scale),
        label=f"tab:study-effects-{part.scale}",
    )


def _line(effect: Effect) -> tuple[str | Number, ...]:
    found = effect.differences
    cells = (difference(found[name].difference) if name in found else NONE for name in REFERENCES)
    shares = (percent(effect.credit[metric]) for metric in PRECISION)
    return (label_of(effect.row), effect.row.count, *cells, number(effect.credit[STEPS], 1, 2), *shares)
