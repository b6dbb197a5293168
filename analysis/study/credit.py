"""Sections of the study's page about credit, its precision and gain, and updates."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from analysis.names import benchmark
from analysis.sources.collected import Collected
from analysis.sources.credit_settings import equal_by_construction
from analysis.sources.rows import ROLLOUTS
from analysis.stats.comparisons import compare
from analysis.stats.measures import AREA, logged_steps
from analysis.stats.study_rows import StudyRow, comparable, rollouts_beyond_plan, study_rows
from scpo.intervals import decimal, decimals

# Least number of rows for a rank correlation.
FEWEST_ROWS = 5


@dataclass(frozen=True)
class Column:
    """Column of a table of metrics.

    Attributes:
        label: Its head.
        digits: Decimals.
        factor: Converts the metric to the column's unit.
        small: Print a small number with two significant digits. False for metrics whose mean may
            differ from 0 only by rounding errors.
    """

    label: str
    digits: int
    factor: float = 1
    small: bool = False


Columns = Mapping[str, Column]
CREDIT: Columns = {
    "credit/steps": Column("credited steps per failed trajectory", 2, small=True),
    "credit/aux_mean": Column("auxiliary reward per step", 3, small=True),
    "credit/shift_rms": Column("rms change of advantages by the credit", 3, small=True),
    "credit/turned_positive": Column("credited rows that turn positive, %", 1, 100),
    "credit/exact": Column("matched steps equal to the reference's, %", 1, 100),
    "credit/precision": Column("credited steps that shorten the plan, %", 1, 100),
    "credit/precision_uncredited": Column("uncredited steps of these trajectories, %", 1, 100),
}
PRECISION = ("credit/precision", "credit/precision_uncredited")
UPDATES: Columns = {
    ROLLOUTS: Column("episodes per step", 0),
    "group/without_win": Column("groups without a win, %", 1, 100),
    "update/skipped": Column("updates skipped per step", 2),
    "anchor/alone": Column("rows alone in their anchor group, %", 1, 100),
    "advantage/outcome_mean": Column("outcome term, mean", 3),
    "advantage/outcome_std": Column("outcome term, standard deviation", 3),
    "advantage/step_mean": Column("step term, mean", 3),
    "advantage/step_std": Column("step term, standard deviation", 3),
}
UPDATES_NOTE = (
    "Means over training steps, then over seeds. In a group without a win all outcomes are equal, "
    "so that the outcome term of a method that compares them within the group is 0; EMPG adds a "
    "term by entropy to it. The step term is the part of an advantage that differs between the "
    "steps of one rollout; in most methods, a row that is alone in its anchor group has none. A "
    "mini-batch in which no row has an advantage makes no optimizer step."
)

CREDIT_NOTE = (
    "Matched steps are those that the matcher finds, also in controls, which then move the credit "
    "to other steps; the last two columns go by the steps that have the credit in the end."
)
PRECISION_NOTE = (
    "Of all numbers the mean over the training steps that have one, then over seeds; the last two "
    "columns are measured on samples of steps at {steps} only."
)
EXACT_NOTE = (
    "`scorer=exact` matches steps whose text the reference has, too: that 100 % of them equal the "
    "reference's is so by construction."
)


def episodes_line(data: Collected) -> str:
    """Remark on rows with more episodes per step than groups x siblings; empty without any.

    Dynamic sampling rolls out further groups until enough of them have a success and a failure.
    """
    parts = []
    for row in study_rows(data):
        if more := rollouts_beyond_plan(data, row):
            # The title has the row's own number.
            parts.append(f"{row.title} instead of {more[1]}")
    if not parts:
        return ""
    return (
        "**Equal training steps, not equal episodes**: dynamic sampling rolls out more episodes "
        f"per training step. {'; '.join(parts)}: part of the differences of these rows may be due "
        "to the larger budget."
    )


def credit_lines(data: Collected) -> Iterator[str]:
    """Section of the page: the credit of each row, and the correlation of precision and gain."""
    rows = [row for row in study_rows(data) if data.summary(row.row, "credit/steps", "mean").n]
    if not rows:
        return
    yield "## How much credit, where, and does its precision predict a gain?\n"
    finished = [run for row in rows for run in row.row.finished]
    notes = [CREDIT_NOTE]
    if any(equal_by_construction(data.by_id[run].config) for run in finished):
        notes.append(EXACT_NOTE)
    if steps := logged_steps(data, (row.row for row in rows), PRECISION):
        notes.append(PRECISION_NOTE.format(steps=steps))
    yield f"{' '.join(notes)}\n"
    yield from _table(data, rows, CREDIT)
    yield ""
    yield from _precision_and_gain(data, rows)


def update_lines(data: Collected) -> Iterator[str]:
    """Section of the page: groups without a win, skipped updates, both terms of the advantage."""
    metrics = [metric for metric in UPDATES if metric != "update/skipped"]
    rows = []
    for row in study_rows(data):
        if any(data.summary(row.row, metric, "mean").n for metric in metrics):
            rows.append(row)
    if not rows:
        return
    yield "## What are the updates made of?\n"
    yield f"{UPDATES_NOTE}\n"
    yield from _table(data, rows, UPDATES)


def _table(data: Collected, rows: list[StudyRow], columns: Columns) -> Iterator[str]:
    several = len({row.env for row in rows}) > 1
    yield f"| row | seeds | {' | '.join(column.label for column in columns.values())} |"
    yield f"|{' --- |' * (len(columns) + 2)}"
    for row in rows:
        place = f"{benchmark(row.env)}: " if several else ""
        cells = [_cell(data, row, metric, column) for metric, column in columns.items()]
        yield f"| {place}{row.title} | {row.row.count} | {' | '.join(cells)} |"


def _cell(data: Collected, row: StudyRow, metric: str, column: Column) -> str:
    summary = data.summary(row.row, metric, "mean")
    if not summary.n:
        return "–"
    mean = column.factor * summary.mean
    text = decimal(mean, decimals(mean, column.digits) if column.small else column.digits)
    finished = len(row.row.finished)
    # A mean over a part of the seeds would look like a mean over all.
    return text if summary.n == finished else f"{text} ({summary.n} of {finished} seeds)"


def _precision_and_gain(data: Collected, rows: list[StudyRow]) -> Iterator[str]:
    """Yield a sentence per benchmark: do rows with more precise credit gain more over GiGPO?

    It gives the rank correlation over these rows.
    """
    hosts = [row for row in study_rows(data) if row.called("gigpo")]
    for host in hosts:
        points = []
        for row in rows:
            credited, uncredited = (data.summary(row.row, name, "mean") for name in PRECISION)
            if row == host or not credited.n or not uncredited.n or not comparable(data, row, host):
                continue
            gain = compare(data, row, host, AREA)[1].difference
            if gain.n:
                points.append((credited.mean - uncredited.mean, gain.mean))
        yield from _correlation(points, benchmark(host.env))


def _correlation(points: list[tuple[float, float]], place: str) -> Iterator[str]:
    if len(points) < FEWEST_ROWS:
        return
    from scipy.stats import spearmanr

    test = spearmanr(*zip(*points, strict=True))
    if math.isfinite(test.statistic):
        yield (
            f"Over the {len(points)} rows on {place} that have both precisions and a difference to "
            "GiGPO under its settings, the rank correlation of credit's precision (credited minus "
            "uncredited) with the gain over GiGPO is "
            f"{decimal(test.statistic, 2, sign=True)} ({_p(test.pvalue)}; rows share seeds and "
            "GiGPO's runs, so this is a description, not a test)."
        )


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"
