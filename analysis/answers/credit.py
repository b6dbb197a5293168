"""What the credit was like in the study's runs, and whether its precision goes with a gain."""

import math
import re
from collections.abc import Iterator

from analysis.naming.names import benchmark
from analysis.sources.collect import Collected
from analysis.sources.rows import Row, Section
from analysis.stats.comparisons import against, distinct, label_of
from analysis.stats.measures import MEASURES

FEWEST_ROWS = 5  # for a rank correlation
COLUMNS = {
    "credit/steps": ("credited steps a failed trajectory", 1, 2),
    "credit/aux_mean": ("auxiliary reward a step", 1, 4),
    "credit/effective": ("of the credit reaches an advantage, %", 100, 1),
    "credit/exact": ("credited steps equal the reference's, %", 100, 1),
    "credit/precision": ("credited steps that shorten the plan, %", 100, 1),
    "credit/precision_uncredited": ("uncredited ones of the same trajectories, %", 100, 1),
}


def credit_lines(data: Collected) -> Iterator[str]:
    """A section of the page: a table of the rows that gave credit, and what it says about precision."""
    rows = [
        (part, row) for part in data.sections for row in distinct(part) if data.summary(row, "credit/steps", "mean").n
    ]
    if not rows:
        return
    several = len({part.env for part, _ in rows}) > 1
    yield "## How much credit, where, and does its precision predict a gain?\n"
    yield f"| row | seeds | {' | '.join(label for label, _, _ in COLUMNS.values())} |"
    yield f"|{' --- |' * (len(COLUMNS) + 2)}"
    for part, row in rows:
        apart = re.sub(r" \(the others: [^)]*\)", "", part.apart)
        place = f"{benchmark(part.env)}{apart}: " if several or apart else ""
        yield f"| {place}{label_of(row)} | {row.count} | {' | '.join(_cell(data, row, metric) for metric in COLUMNS)} |"
    yield ""
    for part in data.sections:
        yield from _precision_and_gain(data, part)


def _cell(data: Collected, row: Row, metric: str) -> str:
    found, (_, factor, digits) = data.summary(row, metric, "mean"), COLUMNS[metric]
    return f"{factor * found.mean:.{digits}f}" if found.n else "–"


def _precision_and_gain(data: Collected, part: Section) -> Iterator[str]:
    """Over the rows of a section: rank correlation of credit's precision above that of other steps, and the gain."""
    gains = {one.first.name: one.difference.mean for one in against(data, part, "gigpo", MEASURES["validation_area"])}
    points = []
    for row in distinct(part):
        credited, beside = (data.summary(row, f"credit/precision{kind}", "mean") for kind in ("", "_uncredited"))
        if row.name in gains and credited.n and beside.n:
            points.append((credited.mean - beside.mean, gains[row.name]))
    if len(points) < FEWEST_ROWS:
        return
    from scipy.stats import spearmanr

    found = spearmanr(*zip(*points, strict=True))
    if math.isfinite(found.statistic):
        yield (
            f"Over the {len(points)} rows with credit, the rank correlation of credit's precision (credited minus "
            f"uncredited) with the gain over GiGPO is {found.statistic:+.2f} (p = {found.pvalue:.2f}; rows share seeds "
            "and GiGPO's runs, so this is a description, not a test)."
        )
