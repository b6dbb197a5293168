"""The table at the end of ``sweep.py``: plain text of at most 100 columns.

It reads only the runs of the experiment, directly from their folders and without pandas, so that a
finished sweep prints it at once.
"""

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from rich import box
from rich.console import Console
from rich.table import Table

from analysis.names import COLUMNS, NOTES, PANELS, panel_order, success_metric
from analysis.paper.published import ablation
from analysis.rendering.table import no_spread
from analysis.sources.code_versions import code_notes
from analysis.sources.rows import NOT_APPLICABLE, Row
from analysis.sources.run_records import (
    ExperimentRecord,
    Problem,
    Run,
    noted,
    one_processor_type,
    read_experiments,
    read_numbers,
    read_runs,
)
from analysis.sources.sections import benchmarks, record_rows
from analysis.sources.series import Series, make_series, panels_of
from analysis.sources.settings import setting_differences
from analysis.sources.shared_settings import host_notes
from analysis.stats.measures import TRAINING
from analysis.stats.named import NamedComparison, named_by
from analysis.stats.seed_statistics import p_text, untested_text
from scpo.benchmarks import with_families
from scpo.errors import RecordError
from scpo.intervals import Summary, decimal, decimals, paired_text, summarise
from scpo.progress import counted
from scpo.records.manifest import Manifest, PlannedRow
from scpo.records.status import State

WIDTH = 100  # characters of a line

# Least width, in characters, to which labels are folded where a table is too wide.
FOLDED_LABEL = 22

# Names of the row that the others are compared with: the first of these that has finished runs, or
# else the first finished row.
REFERENCES = ("gigpo", "scpo")
CREDIT = {
    "credit/active_groups": "active\ngroups, %",
    "credit/steps": "credited steps per\nfailed trajectory",
    "credit/aux_mean": "mean auxiliary\nreward",
    "credit/shift_rms": "rms change of\nadvantages",
    "credit/turned_positive": "turned\npositive, %",
}

# Run -> metric -> series.
Metrics: TypeAlias = dict[str, dict[str, Series]]
Runs: TypeAlias = Mapping[str, Run]


def experiment_table(
    runs_dir: Path,
    experiment: str | Manifest,
    scale: str | None = None,
    states: Mapping[str, str] | None = None,
) -> str | None:
    """Table of one experiment as text; None if ``runs_dir`` has no record of it.

    Damaged runs are left out and named below the table.

    Args:
        runs_dir: Folder of run folders.
        experiment: Its name, or the manifest of one call, whose record a later call of the same
            name may have replaced.
        scale: The scale to show; None: all that were run.
        states: States of runs by id, where the caller knows more than their records, e.g. that a
            job waits.
    """
    recorded, broken = read_experiments(Path(runs_dir))
    records = _shown_records(recorded, experiment, scale)
    if not records:
        lines = [f"left out: {problem.path}: {problem.reason}\n" for problem in broken]
        return "".join(lines) or None

    runs, unreadable = read_runs(Path(runs_dir))
    metrics, damaged = _read_finished(records, runs)
    for problem in damaged:
        runs[problem.path] = replace(runs[problem.path], state=State.DAMAGED)
    left_out = {problem.path: problem.state for problem in unreadable}
    buffer = io.StringIO()
    console = Console(
        file=buffer,
        width=WIDTH,
        color_system=None,
        highlight=False,
        emoji=False,
        markup=False,
    )
    for record in records:
        named = named_by(record, runs, metrics)
        for benchmark in benchmarks(record):
            rows = _print_benchmark(console, record, runs, metrics, benchmark, named=named)
            _print_missing(console, rows, left_out, states or {})
        if NOTES[record.scale]:
            console.print(NOTES[record.scale])
        has_families = any(with_families(env) for env, _ in benchmarks(record))
        if record.experiment.startswith("ablation") and has_families:
            _print_published(console, record)

    # Damaged runs of other experiments are not reported here.
    members: set[str] = set().union(*(record.run_ids for record in records))
    own = [problem for problem in (*unreadable, *damaged) if problem.path in members]
    for problem in (*broken, *own):
        console.print(f"left out: {problem.path}: {problem.reason}", soft_wrap=True)
    lines = [line.rstrip() for line in buffer.getvalue().splitlines()]
    return "\n".join(lines).strip() + "\n"


def _shown_records(
    recorded: Iterable[ExperimentRecord], experiment: str | Manifest, scale: str | None
) -> list[ExperimentRecord]:
    """The records that ``experiment_table`` shows, out of all recorded ones."""
    if isinstance(experiment, Manifest):
        return [ExperimentRecord.model_validate(experiment.model_dump())]
    named = [record for record in recorded if record.experiment == experiment]
    return [record for record in named if scale in (None, record.scale)]


def _print_benchmark(
    console: Console,
    record: ExperimentRecord,
    runs: Runs,
    metrics: Metrics,
    benchmark: tuple[str, str],
    *,
    named: Sequence[NamedComparison],
) -> tuple[Row, ...]:
    """Print success, differences and credit of the rows of one benchmark; returns the rows."""
    rows = record_rows(record, runs, *benchmark)
    logged = {metric for row in rows for run in row.finished for metric in metrics[run]}
    panels = panel_order(set(panels_of(logged)))
    headings = {panel: f"{panel}\n{PANELS.get(panel, '')}" for panel in panels}

    console.print(f"{record.title} ({record.scale} scale, {', '.join(benchmark)})")
    if record.given:
        console.print(f"given: {' '.join(record.given)}", soft_wrap=True)
    console.print()
    console.print(
        "Success before → after training, %; after: last checkpoint only, mean ± std over seeds\n"
    )
    cells: dict[str, list[str]] = {}
    for row in rows:
        cells[row.name] = [_before_after(row, success_metric(panel), metrics) for panel in panels]
    console.print(_table(rows, headings.values(), cells), "")

    for part in _differences(rows, headings, runs, metrics):
        console.print(part, "")
    for part in _named_table(named, benchmark):
        console.print(part, "")

    if logged & set(CREDIT):
        for row in rows:
            cells[row.name] = [_credit(row, metric, metrics) for metric in CREDIT]
        console.print("Credit: mean over the training steps that have a value, then over seeds\n")
        console.print(_table(rows, CREDIT.values(), cells), "")

    notes = [f"note: {note}" for note in _unlike(rows, runs)]
    if notes:
        console.print(*notes, "", sep="\n", soft_wrap=True)
    return rows


def _print_missing(
    console: Console, rows: Iterable[Row], left_out: Mapping[str, State], states: Mapping[str, str]
) -> None:
    """Name the runs that are not finished, each with its state."""
    for row in rows:
        for run in row.unfinished(left_out):
            # A run whose records cannot be read may be recorded as DONE.
            known = run.state in (State.DAMAGED, State.UNREADABLE)
            state = run.state if known else states.get(run.id, run.state)
            console.print(f"missing: {row.label}, seed {run.seed}: {run.id} is {state}")


def _unlike(rows: Sequence[Row], runs: Runs) -> Iterator[str]:
    """Yield notes on how the rows differ besides in the method: settings, versions of the code."""
    finished = [row for row in rows if row.finished]
    reference = _reference(finished)
    if reference is None:
        return
    usual = runs[reference.finished[0]]
    for row in finished:
        own = runs[row.finished[0]]
        apart = setting_differences(own.config, usual.config, (own.panels, usual.panels))
        if row is not reference and apart:
            yield f"{row.label}: {apart.replace('the others', reference.label)}"
    configs = {row.name: runs[row.finished[0]].config for row in finished}
    labels = {row.name: row.label for row in finished}
    for name, text in host_notes(finished, configs).items():
        yield f"{labels[name]}: {text}"

    for note in code_notes(finished, runs):
        yield f"{note}; dry_run=true names the runs of other code than the present one"


def _differences(
    rows: Sequence[Row],
    headings: Mapping[str, str],
    runs: Runs,
    metrics: Metrics,
) -> list[str | Table]:
    """Title, table and notes of every row minus the reference, paired by seed.

    Empty if no seed can be paired.

    Args:
        rows: Rows of one benchmark.
        headings: Panel -> heading of its column.
        runs: All runs by id.
        metrics: Metrics of the finished runs.
    """
    finished = [row for row in rows if row.finished]
    reference = _reference(finished)
    if reference is None or not headings:
        return []
    pairs: dict[str, list[tuple[str, str]]] = {}
    for row in finished:
        if row is not reference:
            pairs[row.name] = _shared_seeds(row, reference)
    others = [row for row in finished if pairs.get(row.name)]
    if not others:
        return []
    table = _empty_table(others)
    for heading in ("pairs", *headings.values()):
        table.add_column(heading, justify="right")
    crossed = 0
    equal: list[str] = []
    for row in others:
        own = pairs[row.name]
        paired = [_paired(own, success_metric(panel), metrics) for panel in headings]
        values = [paired_text(difference) for difference in paired]
        table.add_row(row.label, str(len(own)), *values)
        for difference, text in zip(paired, values, strict=True):
            if difference.std == 0:
                equal.append(text)
        crossed += sum(not one_processor_type(runs[run], runs[other]) for run, other in own)

    title = (
        f"Minus {reference.label} at the last checkpoint only, points, paired by seed, with 95 % "
        "intervals\n"
    )
    notes = []
    if equal:
        notes.append(f"note: {no_spread(equal)}")
    if crossed:
        notes.append(
            f"note: {counted(crossed, 'pair')} ran on two types of processor, "
            "where sums of floats differ"
        )
    return [title, _fitted(table), *notes]


def _named_table(named: Iterable[NamedComparison], benchmark: tuple[str, str]) -> list[str | Table]:
    """Title, table and notes of the named comparisons on a benchmark; empty without a pair."""
    here = [each for each in named if each.benchmark == benchmark]
    if not any(each.difference.n for each in here):
        return []
    # All comparisons of an experiment have one measure and are corrected together.
    measure, tests, untested = here[0].measure, here[0].tests, here[0].untested
    table = _empty_table(here)
    for heading in ("pairs", measure.difference_unit, "p (Holm)"):
        table.add_column(heading, justify="right")
    notes: list[str] = []
    equal: list[str] = []
    for each in here:
        text = paired_text(each.difference, measure.factor, measure.digits)
        table.add_row(each.label, each.pairs.count, text, p_text(each.p))
        if each.difference.std == 0:
            equal.append(text)
        if each.pairs.remark:
            notes.append(f"note: {each.label}: {each.pairs.remark}")
    if equal:
        notes.append(f"note: {no_spread(equal)}")
    title = (
        f"Named before the runs: {measure.label}, the first minus the second, paired by seed, with "
        "95 % intervals"
    )
    if tests:
        title += (
            "; p of the paired t-test after Holm's correction over the "
            f"{counted(tests, 'comparison')} of this experiment"
        )
        if untested:
            title += f" ({untested_text(untested)})"
    return [f"{title}\n", _fitted(table), *notes]


def _reference(finished: Sequence[Row]) -> Row | None:
    for name in REFERENCES:
        for row in finished:
            if row.name == name:
                return row
    return finished[0] if finished else None


def _shared_seeds(row: Row, reference: Row) -> list[tuple[str, str]]:
    """Pairs of run ids of both rows, for each seed that both have finished.

    A run that belongs to both rows is left out: its difference to itself is always 0.
    """
    first = {run.seed: run.id for run in row.runs if run.id in row.finished}
    second = {run.seed: run.id for run in reference.runs if run.id in reference.finished}
    pairs = []
    for seed, run_id in first.items():
        if seed in second and second[seed] != run_id:
            pairs.append((run_id, second[seed]))
    return pairs


def _paired(pairs: Iterable[tuple[str, str]], metric: str, metrics: Metrics) -> Summary:
    values = []
    for run, other in pairs:
        first = metrics[run].get(metric, Series()).last
        second = metrics[other].get(metric, Series()).last
        values.append(None if first is None or second is None else first - second)
    return summarise(values)


# Reading


def _read_finished(
    records: Iterable[ExperimentRecord],
    runs: Runs,
) -> tuple[Metrics, list[Problem]]:
    """Read the metrics of the experiments' finished runs; damaged ones become problems."""
    metrics: Metrics = {}
    damaged: list[Problem] = []
    # Each run is read once, because several rows or experiments may share it.
    planned = dict.fromkeys(run.id for record in records for row in record.rows for run in row.runs)
    for run_id in planned:
        if run_id in runs and runs[run_id].state == State.DONE:
            with noted(damaged, run_id):
                metrics[run_id] = _read(runs[run_id])
    return metrics, damaged


def _read(run: Run) -> dict[str, Series]:
    points: dict[str, list[tuple[int, float]]] = {}
    # All numbers are read, because all other tables leave out a run for damage to any of them.
    for metric, step, value in read_numbers(run):
        if _is_shown(metric):
            points.setdefault(metric, []).append((step, value))
    return {metric: make_series(values) for metric, values in points.items()}


def _is_shown(metric: str) -> bool:
    """True for a metric of credit, of training, or of a whole panel: ``val/<panel>/<name>``."""
    return (
        metric in CREDIT
        or metric == TRAINING
        or (metric.startswith("val/") and metric.count("/") == 2)
    )


# Cells


def _empty_table(rows: Iterable[Row] | Iterable[PlannedRow] | Iterable[NamedComparison]) -> Table:
    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False, collapse_padding=True)
    longest = max(len(row.label) for row in rows)
    table.add_column("row", overflow="fold", width=max(longest, len("row")))
    return table


def _fitted(table: Table) -> Table:
    """Fold the labels of a table that is wider than ``WIDTH``, at most to ``FOLDED_LABEL``.

    If the table is still too wide, rich wraps its cells. The labels get a fixed ``width``, not a
    ``min_width``: rich would apply that last and cut off the last column, so that 12.5 became 12.
    """
    labels = table.columns[0]
    longest = labels.width or 0
    # On a console that is wide enough, rich measures the table without wrapping any cell.
    over = Console(width=10 * WIDTH).measure(table).maximum - WIDTH
    if over > 0:
        least = min(longest, FOLDED_LABEL)
        labels.width = max(least, longest - over)
    return table


def _table(
    rows: Sequence[Row],
    headings: Iterable[str],
    cells: Mapping[str, list[str]],
) -> Table:
    table = _empty_table(rows)
    for heading in ("seeds", *headings):
        table.add_column(heading, justify="right")
    for row in rows:
        values = cells[row.name]
        if not row.runs:
            values = [NOT_APPLICABLE] * len(values)
        table.add_row(row.label, row.count, *values)
    return _fitted(table)


def _before_after(row: Row, metric: str, metrics: Metrics) -> str:
    series = [metrics[run].get(metric, Series()) for run in row.finished]
    # Step 0: the validation before training.
    before = summarise(part.at(0) for part in series)
    after = summarise(part.last for part in series)
    return f"{_number(before, 100, 1, std=False)} → {_number(after, 100, 1)}"


def _credit(row: Row, metric: str, metrics: Metrics) -> str:
    values = summarise(metrics[run].get(metric, Series()).mean for run in row.finished)
    if CREDIT[metric].endswith("%"):
        return _number(values, 100, 1)
    if metric == "credit/steps":
        return _number(values, 1, 1)
    return _number(values, 1, decimals(values.mean, 3))


def _number(summary: Summary, factor: float, digits: int, *, std: bool = True) -> str:
    if summary.n == 0:
        return "–"
    mean = decimal(factor * summary.mean, digits)
    if not std or summary.n == 1:
        return mean
    return f"{mean} ± {factor * summary.std:.{digits}f}"


def _print_published(console: Console, record: ExperimentRecord) -> None:
    """Print the paper's ablation table below our rows of the same names."""
    try:
        numbers = ablation()
    except RecordError as error:
        console.print(str(error), soft_wrap=True)
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
        cells = []
        for column in COLUMNS:
            number = numbers.get((row.name, column))
            cells.append(number.text.replace(" ", "") if number else "–")
        table.add_row(row.label, *cells)
    console.print(_fitted(table))
