"""Archive of finished runs: three small files from which every table and curve can be rebuilt.

- ``metrics.parquet``: the long table (run, step, metric, value).
- ``runs.parquet``: a line per run with its configuration, code and processor.
- ``experiments.json``: the records of the experiments and checksums of everything
  (``scpo.records.archive_index``).

Samples that a run wrote to disk are not archived. Both tables are written in groups of runs, so
that a damaged page costs one group and not all runs. ``analysis.sources.collect`` reads an archive
like a folder of run folders; ``analysis.sources.archive_writing`` writes one.
"""

import contextlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from analysis.sources.configurations import setting_of
from analysis.sources.run_records import ExperimentRecord, Problem, Run, RunHead
from scpo.errors import first_line
from scpo.progress import counted
from scpo.records import log_gaps
from scpo.records.archive_index import (
    INDEX,
    METRICS,
    RUNS,
    ArchiveIndex,
    adding,
    locate,
    read_index,
    restore,
    unreadable,
)
from scpo.records.files import first_complaint, text_sum, unsealed
from scpo.records.identity import is_id_of
from scpo.records.ranges import ROUNDING, allowed, complaint
from scpo.records.status import State

RUN_SCHEMA = pa.schema(
    {
        "id": pa.string(),
        "config": pa.string(),
        "panels": pa.string(),
        "last_step": pa.int64(),
        "commit": pa.string(),
        "code": pa.string(),
        "processor": pa.string(),
        "torch_capability": pa.string(),
        "dirty": pa.bool_(),
    }
)
METRIC_SCHEMA = pa.schema(
    {
        "run": pa.string(),
        "metric": pa.string(),
        "step": pa.int64(),
        "value": pa.float64(),
    }
)

# Columns that identify a row of the long table.
KEY = ["run", "metric", "step"]

# Largest number of damaged runs with a problem each; more of them share one problem.
MOST_NAMED = 6


@dataclass(frozen=True)
class Archive:
    """Content of an archive.

    Attributes:
        runs: Runs by id. A run with damaged metrics is in state DAMAGED; a run whose line is
            damaged is missing.
        metrics: Long table of the undamaged runs.
        experiments: Records of experiments.
        damaged: Ids of all damaged runs.
        index_problems: Problems of the index, a part of ``problems``.
        problems: All damage.
    """

    runs: dict[str, Run]
    metrics: pd.DataFrame
    experiments: tuple[ExperimentRecord, ...]
    damaged: tuple[str, ...] = ()
    index_problems: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()


EMPTY = Archive({}, METRIC_SCHEMA.empty_table().to_pandas(), ())


def read_archive(folder: Path) -> Archive:
    """Read everything in an archive that is undamaged.

    Raises:
        RecordError: The index was changed or cannot be read, or no line of the table of runs can be
            read.
    """
    index, edited = read_index(folder)
    experiments = _read_experiments(folder, index)
    lines, damaged_lines = _read_lines(folder, index)
    intact_table = locate(folder, METRICS, index)
    table = _read_metrics(intact_table or folder / METRICS)
    damage = _damaged_metrics(index, lines, table, intact=intact_table is not None)
    runs, unusable_lines = _runs_of(folder, lines, table, damage)

    undamaged = {run.id for run in runs.values() if not run.damage}
    # Of the index, because a run whose line is damaged is not in ``runs``.
    damaged = tuple(run for run in index.runs if run not in undamaged)
    index_problems: tuple[Problem, ...] = ()
    if edited:
        # If all runs still have the checksums of the edited index, the edit has damaged none.
        index_problems = (Problem(f"{folder}/{INDEX}", edited, harmless=not damaged),)
    problems = [*index_problems, *damaged_lines, *unusable_lines]
    problems += _problems_of(folder, [run for run in runs.values() if run.damage])
    if intact_table is None:
        # After the runs, because they name what is missing.
        problems.append(_other_metrics(folder, damaged))
    return Archive(
        runs=runs,
        metrics=table[table["run"].isin(undamaged)],
        experiments=tuple(experiments),
        damaged=damaged,
        index_problems=index_problems,
        problems=tuple(problems),
    )


def _runs_of(
    folder: Path,
    lines: Mapping[str, Mapping[str, Any]],
    table: pd.DataFrame,
    damage: Mapping[str, str],
) -> tuple[dict[str, Run], list[Problem]]:
    """Make the runs from their lines.

    Args:
        folder: Folder of the archive.
        lines: Lines of the runs by id.
        table: Long table, sorted by ``KEY``.
        damage: Run id -> description of the damage of its rows, from ``_damaged_metrics``.

    Returns:
        The runs by id, those with damaged or missing rows in state DAMAGED; and a problem for each
        line that describes no run.
    """
    steps = table.groupby("run")["step"].unique()
    numbers = _numbers_by_run(table)
    runs: dict[str, Run] = {}
    problems = []
    for run_id, line in lines.items():
        try:
            run = _run(folder, line)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            reason = f"its line in {RUNS} is no run's: {_complaint_of(error)}"
            problems.append(Problem(f"{folder}/{run_id}", reason))
            continue
        found = damage.get(run_id)
        if found is None:
            # A run without any rows is in ``damage``, so this one has some.
            found = _gap(run, steps[run_id].tolist(), numbers.get(run_id, {}))
        if found is not None:
            run = replace(run, state=State.DAMAGED, damage=f"{found}. {_restore(folder)}")
        runs[run_id] = run
    return runs, problems


def _complaint_of(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return first_complaint(error)
    return first_line(error)


def _restore(folder: Path) -> str:
    return f"{restore(folder)} or add the run again ({adding(folder)} --add)"


def _other_metrics(folder: Path, damaged: Collection[str]) -> Problem:
    """The problem of a table of metrics that is not the one that was written."""
    lost = f"{counted(len(damaged), 'run')} left out" if damaged else "no run is damaged by it"
    found = (folder / METRICS).exists()
    state = "is not the file that was written (sha256)" if found else "is missing"
    reason = f"{state}: {lost}. {_restore(folder)}"
    return Problem(f"{folder}/{METRICS}", reason, harmless=not damaged)


def _problems_of(folder: Path, damaged: list[Run]) -> list[Problem]:
    """One problem per damaged run; a single one if there are many."""
    if len(damaged) <= MOST_NAMED:
        return [Problem(run.id, str(run.damage)) for run in damaged]
    names = ", ".join(run.id for run in damaged)
    reason = f"{len(damaged)} runs are damaged ({damaged[0].damage}): {names}"
    return [Problem(str(folder), reason)]


def _read_experiments(folder: Path, index: ArchiveIndex) -> list[ExperimentRecord]:
    """Read the records of experiments.

    Raises:
        RecordError: One of them has another form. A table without it would take its rows from
            another experiment.
    """
    experiments = []
    for record in index.experiments:
        try:
            experiments.append(ExperimentRecord.model_validate(unsealed(record)))
        except ValidationError as error:
            name = str(record.get("experiment"))[:60]
            reason = f"{INDEX}: the record of {name}: {first_complaint(error)}"
            raise unreadable(folder, reason) from error
    return experiments


def _read_lines(
    folder: Path, index: ArchiveIndex
) -> tuple[dict[str, dict[str, Any]], list[Problem]]:
    """Read ``runs.parquet``.

    Returns:
        The lines that match their checksums, by run id; and the problems of all others.

    Raises:
        RecordError: No line can be read.
    """
    path = locate(folder, RUNS, index)
    groups = list(_row_groups(path or folder / RUNS))
    if not groups:
        raise unreadable(folder, f"{RUNS}: no run in it can be read")
    lines: dict[str, dict[str, Any]] = {}
    unlisted: set[str] = set()
    for group in groups:
        for line in group.to_pylist():
            sums = index.runs.get(str(line.get("id")))
            if sums is None:
                # A damaged index may have lost its entry.
                unlisted.add(str(line.get("id")))
            # If a damaged file has a run twice, the first intact line counts.
            if sums and line["id"] not in lines and line_sum(line) == sums.line:
                lines[line["id"]] = line

    problems = []
    if unlisted:
        reason = (
            f"{counted(len(unlisted), 'run')} in {RUNS} have no entry in {INDEX}: "
            f"{', '.join(sorted(unlisted))}. {_restore(folder)}"
        )
        problems.append(Problem(f"{folder}/{RUNS}", reason))
    lost = [run for run in index.runs if run not in lines]
    if lost:
        reason = (
            f"the lines of {counted(len(lost), 'run')} in {RUNS} are damaged: {', '.join(lost)}. "
            f"{_restore(folder)}"
        )
        problems.append(Problem(f"{folder}/{RUNS}", reason, runs=tuple(lost)))
    return lines, problems


def _read_metrics(path: Path) -> pd.DataFrame:
    """Read all rows of ``metrics.parquet`` that can be read, sorted by ``KEY``."""
    groups = []
    for group in _row_groups(path):
        # The columns of a damaged file may have other names or types. Such a group is left out; the
        # checksums then show that its runs are missing.
        with contextlib.suppress(pa.ArrowException, KeyError):
            groups.append(group.select(METRIC_SCHEMA.names).cast(METRIC_SCHEMA))
    table = pa.concat_tables(groups) if groups else METRIC_SCHEMA.empty_table()
    return by_key(table.to_pandas())


def by_key(table: pd.DataFrame) -> pd.DataFrame:
    """Sort the long table by ``KEY``."""
    return table.sort_values(KEY, kind="stable", ignore_index=True)


def _row_groups(path: Path) -> Iterator[pa.Table]:
    """Yield the row groups of a file that can be read; every page has a checksum."""
    # The reader may raise anything about a damaged file. No error is hidden here: runs of a lost
    # group are in the index, and their absence is reported.
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except Exception:  # noqa: BLE001
        return
    with file:
        for group in range(file.num_row_groups):
            with contextlib.suppress(Exception):
                yield file.read_row_group(group)


def _damaged_metrics(
    index: ArchiveIndex,
    lines: Mapping[str, Mapping[str, Any]],
    table: pd.DataFrame,
    *,
    intact: bool,
) -> dict[str, str]:
    """Find runs whose rows are damaged.

    Args:
        index: The checksums.
        lines: Lines of the runs.
        table: Long table, sorted by ``KEY``.
        intact: True if the whole file has its checksum, so that those of runs need no check.

    Returns:
        Run id -> description of the damage.
    """
    last_steps = {run: line["last_step"] for run, line in lines.items()}
    reasons = content_damage(table, last_steps)
    # Hashing every run's rows takes longer than everything else here.
    if intact:
        return reasons
    sums = metric_sums(table)
    for run in lines:
        if sums.get(run) != index.runs[run].metrics:
            reason = f"its rows in {METRICS} are not those that were written (sha256)"
            reasons.setdefault(run, reason)
    return reasons


def content_damage(
    table: pd.DataFrame,
    last_steps: Mapping[str, int | None],
) -> dict[str, str]:
    """Find runs with rows that no run can have logged, independent of checksums.

    Rows are missing, doubled, cut short or out of range.

    Args:
        table: Long table, sorted by ``KEY``.
        last_steps: Run id -> step at which the run ended; None if unknown.

    Returns:
        Run id -> description of the damage.
    """
    reasons: dict[str, str] = {}
    for row in table[~_inside_ranges(table)].itertuples():
        reasons.setdefault(row.run, str(complaint(row.metric, row.step, row.value)))

    # The table is sorted, so equal keys follow each other.
    repeated = table[KEY].eq(table[KEY].shift()).all(axis=1)
    for row in table[repeated].itertuples():
        reason = f"it has two values of {row.metric} at step {row.step}"
        reasons.setdefault(row.run, reason)
    logged = table.groupby("run")["step"].max()
    for run, last in last_steps.items():
        if run not in logged.index:
            reasons.setdefault(run, "it has no metric rows")
        elif last is not None and logged[run] != last:
            reason = f"its metric rows end at step {logged[run]}, the run ended at {last}"
            reasons.setdefault(run, reason)
    return reasons


def _numbers_by_run(table: pd.DataFrame) -> dict[str, dict[str, set[int]]]:
    """Run id -> metric of training or validation -> steps at which it has a number."""
    names = [name for name in table["metric"].unique() if log_gaps.is_due(name)]
    chosen = table[table["metric"].isin(names)]
    steps = chosen["step"].to_numpy()
    found: dict[str, dict[str, set[int]]] = {}
    for (run, metric), rows in chosen.groupby(["run", "metric"], sort=False).indices.items():
        found.setdefault(run, {})[metric] = set(steps[rows].tolist())
    return found


def _gap(run: Run, steps: Collection[int], numbers: Mapping[str, set[int]]) -> str | None:
    """Describe the first number that the run must have logged but that has no row."""
    found = log_gaps.gap(run.config, steps, numbers)
    return f"it {found}" if found else None


def _inside_ranges(table: pd.DataFrame) -> pd.Series:
    """Mask of the rows whose value lies in the range of its metric."""
    lowest: dict[str, float] = {}
    highest: dict[str, float] = {}
    for metric in table["metric"].unique():
        # Once per name, because the table has a row for every step.
        lowest[metric], highest[metric] = allowed(metric) or (-np.inf, np.inf)
    low = table["metric"].map(lowest).astype(float) - ROUNDING
    high = table["metric"].map(highest).astype(float) + ROUNDING
    value = table["value"]
    return np.isfinite(value) & (value >= low) & (value <= high)


def line_sum(line: Mapping[str, Any]) -> str:
    """Checksum of a run's line in ``runs.parquet``."""
    content = {name: line.get(name) for name in RUN_SCHEMA.names}
    return text_sum(json.dumps(content, sort_keys=True, default=str).encode())


def metric_sums(table: pd.DataFrame) -> dict[str, str]:
    """Checksum of each run's rows; ``table`` is sorted by ``KEY``."""
    sums: dict[str, str] = {}
    # A fixed byte order gives the same bytes on every machine.
    steps = table["step"].to_numpy("<i8")
    values = table["value"].to_numpy("<f8")
    for run, rows in table.groupby("run", sort=True).indices.items():
        first, end = rows[0], rows[-1] + 1
        names = "\n".join(table["metric"].iloc[first:end])
        content = names.encode() + steps[first:end].tobytes() + values[first:end].tobytes()
        sums[str(run)] = text_sum(content)
    return sums


def _run(folder: Path, line: Mapping[str, Any]) -> Run:
    config = json.loads(line["config"])
    panels = json.loads(line["panels"])
    # The id holds a hash of the configuration, which detects a changed one.
    if not is_id_of(line["id"], config):
        raise ValueError("its id is not that of its configuration")
    return Run(
        id=line["id"],
        folder=folder,
        head=RunHead.model_validate(config),
        config=config,
        setting=setting_of(config, panels),
        state=State.DONE,
        step=line["last_step"],
        commit=line["commit"],
        panels=panels,
        logs=(METRICS,),
        processor=line["processor"],
        torch_capability=line["torch_capability"],
        code=line["code"],
        dirty=bool(line["dirty"]),
    )
