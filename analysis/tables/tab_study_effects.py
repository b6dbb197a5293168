"""The comparisons that the experiments named before their runs: difference, interval, corrected test, seeds needed."""

import math

from analysis.naming.names import with_note
from analysis.rendering.table import NONE, Block, Number, Table
from analysis.sources.collect import Collected
from analysis.sources.rows import missing_runs
from analysis.stats.comparisons import ENOUGH, MAIN, NOT_RUN, OPEN, Comparison, primary
from analysis.stats.paired import MOST_SEEDS

SCALE = "study"
CAPTION = (
    "Comparisons named in the experiments' files before their runs, each the first row minus the second by {measure}, "
    "paired by seed (pairs: finished/planned): mean difference with the 95 % Student interval, p of the paired t-test "
    "after Holm's correction over the block, and what it says at 5 %: higher, lower, or open. Of an open one: the "
    "least true difference that these pairs find with 80 % probability, and the seeds that would find one as large as "
    "the observed one (– if over {most}, or below {enough} pairs)."
)


def build(data: Collected) -> Table:
    """One block for each experiment; MissingRunsError if no comparison has two finished pairs."""
    families = primary(data)
    if not any(one.reading != NOT_RUN for family in families.values() for one in family):
        raise missing_runs("two finished seeds of both rows of a named comparison", data.sections, MAIN)
    measures = dict.fromkeys(one.measure.label for family in families.values() for one in family)
    scale = data.sections[0].scale
    return Table(
        words=("Comparison", "Pairs", "Reading", "Seeds to find it"),
        numbers=("Difference", "95 % from", "to", "p (Holm)", "Resolved"),
        blocks=tuple(Block(title, tuple(map(_line, family))) for title, family in families.items()),
        caption=with_note(CAPTION.format(measure=" or ".join(measures), most=MOST_SEEDS, enough=ENOUGH), scale),
        label=f"tab:study-effects-named-{scale}",
    )


def _line(one: Comparison) -> tuple[str | Number, ...]:
    needed = "" if one.reading != OPEN else str(one.seeds_needed or "–")
    low, high = one.difference.interval()
    resolved = one.resolved if one.reading == OPEN else math.nan
    cells = (_points(one, value) for value in (one.difference.mean, low, high))
    return (one.name, one.pairs, one.reading, needed, *cells, _p(one.p), _points(one, resolved, sign=False))


def _points(one: Comparison, value: float, *, sign: bool = True) -> Number:
    if not math.isfinite(value):
        return NONE
    return Number(f"{one.measure.factor * value:{'+' if sign else ''}.{one.measure.digits}f}".replace("-", "−"))


def _p(value: float) -> Number:
    if not math.isfinite(value):
        return NONE
    return Number("<0.001" if value < 0.001 else f"{value:.3f}")
