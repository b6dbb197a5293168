"""The table that `sweep.py` ends with: plain text, at most 100 columns, read straight from the run folders.

It imports no pandas and reads only the metrics that it shows, so that a finished sweep prints at
once.
"""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table
from scpo.benchmarks import with_families
from scpo.errors import RecordError
from scpo.intervals import Summary, paired_text, summarise
from scpo.progress import counted
from scpo.records import State
from scpo.records.manifest import PlannedRow

from analysis.naming.names import COLUMNS, NOTES, PANELS, panel_order, success_metric
from analysis.paper.published import ablation
from analysis.sources.logged_lines import read_lines
from analysis.sources.rows import NOT_APPLICABLE, Row, benchmarks, record_rows
from analysis.sources.run_records import (
    LOGS,
    ExperimentRecord,
    Problem,
    Run,
    noted,
    one_processor_type,
    read_experiments,
    read_runs,
)
from analysis.sources.series import Series, make_series

WIDTH = 100
LONGEST_LABEL = 22
REFERENCES = (
    "gigpo",
    "scpo",
)  # rows that the others are compared with; of an experiment without them its first
CREDIT = {
    "credit/active_groups": "active\ngroups, %",
    "credit/steps": "credited steps per\nfailed trajectory",
    "credit/aux_mean": "mean auxiliary\nreward",
    "credit/shift_rms": "rms change of\nadvantages",
    "credit/turned_positive": "turned\npositive, %",
}
Metrics = dict[str, dict[str, Series]]  # run -> metric -> series


def experiment_table(runs_dir: Path, experiment: str) -> str | None:
    """The table of one experiment as text; None if ``runs_dir`` has no record of it.

    A run that is damaged enters no number; it is named below.
    """
    known, problems = read_experiments(Path(runs_dir))
    records = [record for record in known if record.experiment == experiment]
    if not records:
        return "".join(f"left out: {one.path}: {one.reason}\n" for one in problems) or None
    runs, unreadable = read_runs(Path(runs_dir))
    metrics, damaged = _read_finished(records, runs)
    runs |= {one.path: replace(runs[one.path], state=State.DAMAGED) for one in damaged}
    buffer = io.StringIO()
    console = Console(
        file=buffer, width=WIDTH, color_system=None, highlight=False, emoji=False, markup=False
    )
    for record in records:
        for env, model in benchmarks(record):
            _print_benchmark(console, record, runs, metrics, (env, model))
        if NOTES[record.scale]:
            console.print(NOTES[record.scale])
        if experiment.startswith("ablation") and any(
            with_families(env) for env, _ in benchmarks(record)
        ):
            _print_published(console, record)
    members = {run.id for record in records for row in record.rows for run in row.runs}
    for problem in (*problems, *(one for one in (*unreadable, *damaged) if one.path in members)):
        console.print(f"left out: {problem.path}: {problem.reason}", soft_wrap=True)
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()).strip() + "\n"


def _print_benchmark(
    console: Console,
    record: ExperimentRecord,
    runs: Mapping[str, Run],
    metrics: Metrics,
    benchmark: tuple[str, str],
) -> None:
    rows = record_rows(record, runs, *benchmark)
    logged = {key for row in rows for run in row.finished for key in metrics[run]}
    panels = panel_order({key.split("/")[1] for key in logged if key.startswith("val/")})
    headings = [f"{panel}\n{PANELS.get(panel, '')}" for panel in panels]
    cells = {
        row.name: [_before_after(row, success_metric(panel), metrics) for panel in panels]
        for row in rows
    }
    console.print(f"{record.title} ({record.scale} scale, {', '.join(benchmark)})\n")
    console.print(
        "Success before → after training, %; after: last checkpoint, mean ± std over seeds\n"
    )
    console.print(_table(rows, headings, cells), "")
    if differences := _differences(rows, dict(zip(panels, headings, strict=True)), runs, metrics):
        for part in differences:
            console.print(part, "")
    if logged & set(CREDIT):
        cells = {row.name: [_credit(row, metric, metrics) for metric in CREDIT] for row in rows}
        console.print("Credit: mean over the training steps, then over seeds\n")
        console.print(_table(rows, CREDIT.values(), cells), "")
    for row in rows:
        for run in row.missing:
            console.print(f"missing: {row.label}, seed {run.seed}: {run.id} is {run.state}")


def _differences(
    rows: Sequence[Row], panels: Mapping[str, str], runs: Mapping[str, Run], metrics: Metrics
) -> list[str | Table]:
    """Every row minus the reference, paired by seed; empty where no row shares finished seeds with it.

    ``panels``: name -> heading.
    """
    finished = [row for row in rows if row.finished]
    named = (row for name in REFERENCES for row in finished if row.name == name)
    reference = next(named, next(iter(finished), None))
    if reference is None or not panels:
        return []
    pairs = {row.name: _shared_seeds(row, reference) for row in finished if row is not reference}
    others = [row for row in finished if pairs.get(row.name)]
    if not others:
        return []
    table = _empty_table(others)
    for heading in ("pairs", *panels.values()):
        table.add_column(heading, justify="right")
    for row in others:
        values = [_paired(pairs[row.name], success_metric(panel), metrics) for panel in panels]
        table.add_row(row.label, str(len(pairs[row.name])), *values)
    title = f"Minus {reference.label}, points, paired by seed, with 95 % intervals; last checkpoint"
    crossed = sum(
        not one_processor_type(runs[one], runs[other])
        for row in others
        for one, other in pairs[row.name]
    )
    note = f"note: {counted(crossed, 'pair')} ran on two types of processor, where sums of floats differ"
    return [f"{title}\n", table, *([note] if crossed else [])]


def _shared_seeds(row: Row, reference: Row) -> list[tuple[str, str]]:
    """Run ids of both rows at each seed that both have finished; none of a row with the reference's own runs."""
    first = {run.seed: run.id for run in row.runs if run.id in row.finished}
    second = {run.seed: run.id for run in reference.runs if run.id in reference.finished}
    pairs = [(first[seed], second[seed]) for seed in first if seed in second]
    return [pair for pair in pairs if pair[0] != pair[1]]


def _paired(pairs: Iterable[tuple[str, str]], metric: str, metrics: Metrics) -> str:
    values = []
    for one, other in pairs:
        first, second = (metrics[run].get(metric, Series()).last for run in (one, other))
        values.append(None if first is None or second is None else first - second)
    return paired_text(summarise(values))


def _read_finished(
    records: Iterable[ExperimentRecord], runs: Mapping[str, Run]
) -> tuple[Metrics, list[Problem]]:
    """What the finished runs of these experiments logged, and which of them are damaged."""
    metrics: Metrics = {}
    damaged: list[Problem] = []
    planned = {run.id: None for record in records for row in record.rows for run in row.runs}
    for run in (runs[name] for name in planned if name in runs and runs[name].state == State.DONE):
        with noted(damaged, run.id):
            metrics[run.id] = _read(run)
    return metrics, damaged


def _read(run: Run) -> dict[str, Series]:
    points: dict[str, list[tuple[int, float]]] = {}
    for entry in read_lines(run, LOGS[:1]):
        for key, value in entry.items():
            if isinstance(value, (int, float)) and (
                key in CREDIT or (key.startswith("val/") and key.count("/") == 2)
            ):
                points.setdefault(key, []).append((entry["step"], value))
    return {key: make_series(values) for key, values in points.items()}


def _empty_table(rows: Iterable[Row] | Iterable[PlannedRow]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False, collapse_padding=True)
    longest = max(len(row.label) for row in rows)
    table.add_column("row", overflow="fold", min_width=min(longest, LONGEST_LABEL))
    return table


def _table(rows: Sequence[Row], headings: Iterable[str], cells: Mapping[str, list[str]]) -> Table:
    table = _empty_table(rows)
    for heading in ("seeds", *headings):
        table.add_column(heading, justify="right")
    for row in rows:
        values = cells[row.name]
        table.add_row(
            row.label, row.count, *(values if row.runs else [NOT_APPLICABLE] * len(values))
        )
    return table


def _before_after(row: Row, metric: str, metrics: Metrics) -> str:
    series = [metrics[run].get(metric, Series()) for run in row.finished]
    before = summarise(part.at(0) for part in series)
    return f"{_number(before, 100, 1, std=False)} → {_number(summarise(part.last for part in series), 100, 1)}"


def _credit(row: Row, metric: str, metrics: Metrics) -> str:
    values = summarise(metrics[run].get(metric, Series()).mean for run in row.finished)
    if CREDIT[metric].endswith("%"):
        return _number(values, 100, 1)
    return _number(values, 1, 1 if metric == "credit/steps" else 3)


def _number(summary: Summary, factor: float, digits: int, *, std: bool = True) -> str:
    if summary.n == 0:
        return "–"
    mean = f"{factor * summary.mean:.{digits}f}"
    return f"{mean} ± {factor * summary.std:.{digits}f}" if std and summary.n > 1 else mean


def _print_published(console: Console, record: ExperimentRecord) -> None:
    try:
        numbers = ablation()
    except RecordError as error:
        console.print(str(error))
        return
    console.print(
        "\nPublished: ALFWorld, success on valid_seen, %, Qwen2.5-1.5B at paper scale, three seeds"
    )
    if record.scale != "paper":
        console.print("(another model and another scale: not comparable with the numbers above)")
    console.print()
    table = _empty_table(record.rows)
    for column in COLUMNS:
        table.add_column(column, justify="right", no_wrap=True)
    for row in record.rows:
        known = [numbers.get((row.name, column)) for column in COLUMNS]
        table.add_row(
            row.label, *(number.text.replace(" ", "") if number else "–" for number in known)
        )
    console.print(table)
