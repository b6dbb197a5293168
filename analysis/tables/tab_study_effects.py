"""Comparisons named before the runs: differences, intervals, corrected tests, faster and better."""

import math
from collections.abc import Iterable, Sequence

from analysis.names import Footnotes, benchmark, with_note
from analysis.names import place as place_name
from analysis.rendering.table import NONE, Block, Number, Table, difference
from analysis.selection import without_common_seed
from analysis.sources.collected import Collected, MissingRunsError, missing_runs
from analysis.stats.comparisons import (
    CORRECTED_APART,
    FEWEST,
    NOT_RUN,
    WITHOUT_COMMON_SEED,
    Comparison,
    Effect,
    asked_seeds,
    named_comparisons,
    named_too_late,
    superseded,
    tested,
)
from analysis.stats.seed_statistics import p_text
from analysis.stats.study_rows import (
    MAIN,
    StudyRow,
    by_benchmark,
    not_shown,
    on_common_seeds,
    selected,
    study_rows,
    with_common_seeds,
)
from scpo.intervals import decimal

SCALE = "study"

# Built at another scale, too, where it is asked for by name.
OTHER_SCALES = True

YES, NO, OPEN = "yes", "no, the second", "open"
CAPTION = (
    "Comparisons named in the experiments' files before their runs, each distinct one once, the "
    "first row minus the second by {measure}, paired by seed (pairs: used/planned): mean "
    "difference with the 95 % Student interval, p of the paired t-test after Holm's correction "
    "over {tests}, and the verdict at 5 %: higher, lower or open. An open one names the smallest "
    "true difference that its pairs find with 80 % power in a test by itself, without the "
    "correction. “Faster”: steps to 50 %, fewer is faster "
    "(a run that never reaches it counts with its last step). “Better”: held-out success at the "
    "last step. {families}"
)
FEW = (
    f" With fewer than {FEWEST} pairs the verdict is open whatever the test finds, so no smallest "
    "difference is named."
)
ON_TRAINING = " At mini scale, steps to 50 % are those of the games trained on."
UNNAMED = "comparison named before the runs (primary: in the file of an experiment)"
OF_MEANING = (
    "named comparison but those of the study of meaning, which docs/meaning.md and fig_meaning show"
)
NEVER = " No run of the pairs with a dash at “Steps to 50 %” reaches it."


def build(data: Collected) -> Table:
    """One block for each benchmark; MissingRunsError if no comparison has two finished pairs."""
    scale = data.scales[0] if data.scales else SCALE
    rows = study_rows(data)
    named = named_comparisons(data, rows)
    found = _shown(data, named)
    left_out: list[str] = []
    if data.common_seeds:
        rows, left_out = _on_common_seeds(data, rows, found)
        named = named_comparisons(data, rows)
        found = _shown(data, named)
    if not found:
        raise _missing(data, named, left_out)
    blocks = []
    notes = Footnotes()
    measures = _measures(found)
    for env in dict.fromkeys(comparison.first.env for comparison in found):
        here = [comparison for comparison in found if comparison.first.env == env]
        lines = tuple(_line(comparison, notes, len(measures) > 1) for comparison in here)
        blocks.append(Block(benchmark(env), lines))
    return Table(
        words=("Comparison", "Pairs", "Verdict", "Faster", "Better"),
        numbers=(
            "Difference (points)",
            "p (Holm)",
            "Smallest found",
            "Steps to 50 %",
            "p (Holm), faster",
            "Last step (points)",
            "p (Holm), better",
        ),
        blocks=tuple(blocks),
        caption=with_note(_caption(data, named, found, left_out, scale) + notes.text, scale),
        label=f"tab:study-effects-named-{scale}",
        single=("p (Holm)", "p (Holm), faster", "p (Holm), better"),
        footnotes=notes.texts,
    )


def _missing(
    data: Collected, named: Sequence[Comparison], left_out: Sequence[str]
) -> MissingRunsError:
    """The error of a table without a comparison.

    Args:
        data: Data of one scale.
        named: All comparisons of ``named_comparisons``.
        left_out: Why benchmarks are left out, if the user chose common seeds.
    """
    if left_out:
        return MissingRunsError(f"common seed: {'; '.join(left_out)}", WITHOUT_COMMON_SEED)
    if named_comparisons(data, meaning=True):
        return MissingRunsError(OF_MEANING, "python -m analysis meaning --help")
    if not named:
        return missing_runs(UNNAMED, data.sections, MAIN)
    needed = "two finished seeds of both rows of a named comparison"
    return missing_runs(needed, data.sections, *(data.asked or (MAIN,)))


def _caption(
    data: Collected,
    named: Sequence[Comparison],
    found: Sequence[Comparison],
    left_out: Sequence[str],
    scale: str,
) -> str:
    """The caption without footnotes.

    Args:
        data: Data of one scale.
        named: All comparisons of ``named_comparisons``.
        found: Those that the table shows.
        left_out: Why benchmarks are left out, if the user chose common seeds.
        scale: Scale of the runs.
    """
    measures = " or ".join(_measures(found))
    caption = CAPTION.format(measure=measures, tests=tested(named, scale), families=CORRECTED_APART)
    if any(comparison.effect.difference.n < FEWEST for comparison in found):
        caption += FEW
    if not all(comparison.reached for comparison in found):
        caption += NEVER
    if scale == "mini":
        caption += ON_TRAINING
    caption += asked_seeds(data)
    if late := named_too_late(data):
        caption += f" Named only after their results, and so not tested: {late}."
    if former := superseded(data):
        before = "of settings that a row had before they were changed"
        caption += f" Counted in the correction, {before}: {former}."
    if left_out:
        caption += f" Left out: {'; '.join(left_out)}."
    return caption + not_shown(data, _compared_rows(found))


def _measures(comparisons: Iterable[Comparison]) -> list[str]:
    """Labels of the comparisons' measures, in order of appearance."""
    return list(dict.fromkeys(comparison.effect.measure.label for comparison in comparisons))


def _compared_rows(comparisons: Iterable[Comparison]) -> list[StudyRow]:
    return [row for comparison in comparisons for row in (comparison.first, comparison.second)]


def _shown(data: Collected, named: Iterable[Comparison]) -> list[Comparison]:
    """The comparisons of chosen rows with two finished pairs."""
    found = []
    for comparison in named:
        both = (comparison.first, comparison.second)
        if comparison.finished and all(selected(data, row) for row in both):
            found.append(comparison)
    return found


def _on_common_seeds(
    data: Collected, rows: list[StudyRow], found: Sequence[Comparison]
) -> tuple[list[StudyRow], list[str]]:
    """The study's rows on the seeds that all compared ones of a benchmark have finished.

    Returns:
        The rows, and the reason for each benchmark that has no such seed.
    """
    without: list[str] = []
    compared = _compared_rows(found)
    for place in by_benchmark(compared):
        here = [row for row in rows if row in compared and row.benchmark == place]
        if not on_common_seeds(data, here):
            own = [row.row for row in here]
            without.append(without_common_seed(data, own, place_name(data.scales[0], *place)))
        rows = with_common_seeds(data, rows, here)
    return rows, without


def _line(comparison: Comparison, notes: Footnotes, mark_measure: bool) -> tuple[str | Number, ...]:
    """One comparison; ``mark_measure``: name its measure in a footnote."""
    effect = comparison.effect
    measure = notes.mark(f"by {effect.measure.label}") if mark_measure else ""
    # Runs that never reach 50 % count with their last step, so their difference means nothing.
    faster = comparison.faster if comparison.reached else None
    return (
        f"{comparison.name}{comparison.rates}{measure}",
        f"{comparison.pairs.count}{notes.mark(comparison.pairs.remark)}",
        effect.verdict,
        _answer(faster) if faster else "–",
        _answer(comparison.better),
        _difference(effect),
        _p(effect.corrected),
        _smallest(effect),
        _difference(faster) if faster else NONE,
        _p(faster.corrected) if faster else NONE,
        _difference(comparison.better),
        _p(comparison.better.corrected),
    )


def _answer(effect: Effect) -> str:
    if effect.verdict == NOT_RUN:
        return "–"
    return {1: YES, -1: NO, 0: OPEN}[effect.favours]


def _difference(effect: Effect) -> Number:
    return difference(effect.difference, effect.measure.factor, effect.measure.digits)


def _smallest(effect: Effect) -> Number:
    # The smallest detectable difference matters only for unresolved comparisons.
    if effect.resolved or not math.isfinite(effect.smallest):
        return NONE
    return Number(decimal(effect.measure.factor * effect.smallest, effect.measure.digits))


def _p(value: float) -> Number:
    if not math.isfinite(value):
        return NONE
    return Number(p_text(value), csv=f"{value:.3g}")
