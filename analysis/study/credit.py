"""Sections of the study's page about credit, its precision and gain, and updates."""

import math
from collections.abc import Iterator, Mapping

from analysis.names import benchmark
from analysis.sources.collected import Collected
from analysis.stats.comparisons import compare
from analysis.stats.measures import AREA
from analysis.stats.study_rows import StudyRow, comparable, started, study_rows
from scpo.intervals import decimal

# Least number of rows for a rank correlation.
FEWEST_ROWS = 5

# Metric -> (label, factor, digits)
Columns = Mapping[str, tuple[str, float, int]]
CREDIT: Columns = {
    "credit/steps": ("credited steps a failed trajectory", 1, 2),
    "credit/aux_mean": ("auxiliary reward a step", 1, 4),
    "credit/shift_rms": ("rms change of advantages by the credit", 1, 3),
    "credit/turned_positive": ("credited rows that turn positive, %", 100, 1),
    "credit/exact": ("credited steps equal the reference's, %", 100, 1),
    "credit/precision": ("credited steps that shorten the plan, %", 100, 1),
    "credit/precision_uncredited": ("uncredited ones of the same trajectories, %", 100, 1),
}
EPISODES = "train/episodes"
UPDATES: Columns = {
    EPISODES: ("episodes a step", 1, 0),
    "group/without_win": ("groups without a win, %", 100, 1),
    "update/skipped": ("updates skipped a step", 1, 2),
    "anchor/alone": ("rows alone in their anchor group, %", 100, 1),
    "advantage/outcome_mean": ("outcome term, mean", 1, 3),
    "advantage/outcome_std": ("its standard deviation", 1, 3),
    "advantage/step_mean": ("step term, mean", 1, 3),
    "advantage/step_std": ("its standard deviation", 1, 3),
}
UPDATES_NOTE = (
    "Means over training steps, then over seeds. In a group without a win every group method's "
    "outcome term is 0. The step term is the part of an advantage that tells the steps of one "
    "rollout apart; a row that is alone in its anchor group has none in most methods. A "
    "mini-batch in which no row has an advantage makes no optimizer step."
)


# Share by which a row's episodes may exceed those of its configuration without a remark.
MORE_EPISODES = 1.05


def episodes_line(data: Collected) -> str:
    """Remark on rows that roll out more episodes a step than groups x siblings; empty without any.

    Dynamic sampling rolls out further groups until enough of them have a success and a failure.
    """
    parts = []
    for row in study_rows(data):
        run = started(data, row.row)
        found = data.summary(row.row, EPISODES, "mean")
        if run is None or not found.n:
            continue
        trainer = run.config["trainer"]
        planned = trainer["groups"] * trainer["group_size"]
        if found.mean > MORE_EPISODES * planned:
            parts.append(f"{row.title} ({found.mean:.0f} instead of {planned})")
    if not parts:
        return ""
    return (
        "**Equal training steps, not equal episodes**: dynamic sampling rolls out more episodes a "
        f"training step. {', '.join(parts)}: the differences of these rows are those of a larger "
        "budget, too."
    )


def credit_lines(data: Collected) -> Iterator[str]:
    """Section of the page: the credit of each row, and the correlation of precision and gain."""
    rows = [row for row in study_rows(data) if data.summary(row.row, "credit/steps", "mean").n]
    if not rows:
        return
    yield "## How much credit, where, and does its precision predict a gain?\n"
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
    yield f"| row | seeds | {' | '.join(label for label, _, _ in columns.values())} |"
    yield f"|{' --- |' * (len(columns) + 2)}"
    for row in rows:
        place = f"{benchmark(row.env)}: " if several else ""
        cells = [_cell(data, row, metric, columns) for metric in columns]
        yield f"| {place}{row.title} | {row.row.count} | {' | '.join(cells)} |"


def _cell(data: Collected, row: StudyRow, metric: str, columns: Columns) -> str:
    found = data.summary(row.row, metric, "mean")
    _, factor, digits = columns[metric]
    if not found.n:
        return "–"
    text = decimal(factor * found.mean, digits)
    finished = len(row.row.finished)
    # A mean over a part of the seeds would look like a mean over all.
    return text if found.n == finished else f"{text} ({found.n} of {finished} seeds)"


def _precision_and_gain(data: Collected, rows: list[StudyRow]) -> Iterator[str]:
    """Sentence on the rank correlation of credit's precision and the gain over GiGPO, over rows."""
    hosts = [row for row in study_rows(data) if row.called("gigpo")]
    for host in hosts:
        points = []
        for row in rows:
            credited = data.summary(row.row, "credit/precision", "mean")
            uncredited = data.summary(row.row, "credit/precision_uncredited", "mean")
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

    found = spearmanr(*zip(*points, strict=True))
    if math.isfinite(found.statistic):
        yield (
            f"Over the {len(points)} rows with credit on {place}, the rank correlation of credit's "
            "precision (credited minus uncredited) with the gain over GiGPO is "
            f"{decimal(found.statistic, 2, sign=True)} ({_p(found.pvalue)}; rows share "
            "seeds and GiGPO's runs, so this is a description, not a test)."
        )


def _p(value: float) -> str:
    return "p < 0.001" if value < 0.001 else f"p = {value:.3f}"
