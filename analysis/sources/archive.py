"""Archive of finished runs: three small files from which every table and curve can be rebuilt.

``metrics.parquet`` is the long table (run, step, metric, value), ``runs.parquet`` has a line per
run with its configuration, code and processor, and ``experiments.json`` has the records of the
experiments and checksums of everything (``scpo.records.archive_index``). Samples that a run wrote
to disk are not archived.

Both tables are written in groups of runs, so that a damaged page costs one group instead of all
runs. ``analysis.sources.collect`` reads an archive like a folder of run folders.
"""

import contextlib
import fcntl
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import ValidationError

from analysis.sources.run_records import ExperimentRecord, Problem, Run, RunHead, setting_of
from analysis.sources.series import ROUNDING, allowed, complaint
from scpo.errors import RecordError, first_line
from scpo.progress import counted
from scpo.records.archive_index import (
    FORMAT,
    INDEX,
    METRICS,
    RUNS,
    STAGED,
    ArchiveIndex,
    RunSums,
    locate,
    read_index,
    unreadable,
)
from scpo.records.files import (
    RunningSum,
    first_complaint,
    naming_write_errors,
    sealed,
    sync,
    text_sum,
    unsealed,
    write_bytes,
)
from scpo.records.status import State
from scpo.schema import MACHINE_SECTIONS

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
KEY = ["run", "metric", "step"]  # of a row of the long table
RUNS_A_GROUP = 32  # lost to one flipped bit, at most; groups of 16 make the files 6 % larger
# Seconds of stages differ from machine to machine and are half of all rows.
TIMES = "timing_s/"
KEPT_TIMES = ("timing_s/step",)
MOST_NAMED = 6  # damaged runs that get a problem each
COMPRESSION = {"compression": "zstd", "compression_level": 19}


@dataclass(frozen=True)
class Archive:
    """Content of an archive.

    Attributes:
        runs: By id. A run with damaged metrics is in state DAMAGED; one with a damaged line is
            missing.
        metrics: Long table of the undamaged runs.
        experiments: Records of experiments.
        damaged: Ids of all damaged runs.
        index_problems: Problems of the index, which are among ``problems`` too.
        problems: Everything that is damaged.
    """

    runs: dict[str, Run]
    metrics: pd.DataFrame
    experiments: tuple[ExperimentRecord, ...]
    damaged: tuple[str, ...] = ()
    index_problems: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()


EMPTY = Archive({}, METRIC_SCHEMA.empty_table().to_pandas(), ())


# Reading


def read_archive(folder: Path) -> Archive:
    """Read everything that is undamaged.

    Raises:
        RecordError: The index or the table of runs cannot be read at all.
    """
    index, damage = read_index(folder)
    problems = [Problem(f"{folder}/{INDEX}", damage)] if damage else []
    experiments = tuple(_read_experiments(folder, index, problems))
    index_problems = tuple(problems)
    lines = _read_lines(folder, index, problems)
    table = _read_metrics(folder, index, problems)
    intact = locate(folder, METRICS, index) is not None
    reasons = _damaged_metrics(index, lines, table, intact=intact)
    runs: dict[str, Run] = {}
    for run_id, line in lines.items():
        try:
            run = _run(folder, line)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            reason = f"its line in {RUNS} is no run's: {_complaint_of(error)}"
            problems.append(Problem(f"{folder}/{run_id}", reason))
            continue
        if reason := reasons.get(run_id, ""):
            run = replace(run, state=State.DAMAGED, damage=f"{reason}. {_restore(folder)}")
        runs[run_id] = run
    problems += _problems_of(folder, [run for run in runs.values() if run.damage])
    undamaged = {run.id for run in runs.values() if not run.damage}
    return Archive(
        runs=runs,
        metrics=table[table["run"].isin(undamaged)],
        experiments=experiments,
        damaged=tuple(run for run in index.runs if run not in undamaged),
        index_problems=index_problems,
        problems=tuple(problems),
    )


def _complaint_of(error: Exception) -> str:
    if isinstance(error, ValidationError):
        return first_complaint(error)
    return first_line(error)


def _restore(folder: Path) -> str:
    return (
        f"Restore the archive's files (git checkout {folder}) or add the run again "
        "(python -m analysis study --add)"
    )


def _problems_of(folder: Path, damaged: list[Run]) -> list[Problem]:
    """One problem per damaged run; a single one where there are many."""
    if len(damaged) <= MOST_NAMED:
        return [Problem(run.id, str(run.damage)) for run in damaged]
    names = ", ".join(run.id for run in damaged)
    reason = f"{len(damaged)} runs are damaged ({damaged[0].damage}): {names}"
    return [Problem(str(folder), reason)]


def _read_experiments(
    folder: Path,
    index: ArchiveIndex,
    problems: list[Problem],
) -> Iterator[ExperimentRecord]:
    for number, record in enumerate(index.experiments, start=1):
        try:
            yield ExperimentRecord.model_validate(unsealed(record))
        except (ValueError, TypeError) as error:
            name = str(record.get("experiment"))[:60]
            reason = (
                f"record {number}, of experiment {name}, is damaged: {_complaint_of(error)}. "
                f"{_restore(folder)}"
            )
            problems.append(Problem(f"{folder}/{INDEX}", reason))


def _read_lines(
    folder: Path,
    index: ArchiveIndex,
    problems: list[Problem],
) -> dict[str, dict[str, Any]]:
    """Read the lines of ``runs.parquet`` that match their checksums."""
    path = locate(folder, RUNS, index)
    groups = list(_row_groups(path or folder / RUNS))
    if not groups:
        raise unreadable(folder, f"{RUNS}: no run in it can be read")
    lines: dict[str, dict[str, Any]] = {}
    unlisted: set[str] = set()
    for group in groups:
        for line in group.to_pylist():
            sums = index.runs.get(str(line.get("id")))
            if sums is None:  # a damaged index may have lost its entry
                unlisted.add(str(line.get("id")))
            if sums and line["id"] not in lines and _line_sum(line) == sums.line:
                lines[line["id"]] = line
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
        problems.append(Problem(f"{folder}/{RUNS}", reason))
    return lines


def _read_metrics(folder: Path, index: ArchiveIndex, problems: list[Problem]) -> pd.DataFrame:
    """Read all rows that can be read, sorted by ``KEY``."""
    path = locate(folder, METRICS, index)
    if path is None:
        reason = f"is damaged or missing. {_restore(folder)}"
        problems.append(Problem(f"{folder}/{METRICS}", reason))
    groups = []
    for group in _row_groups(path or folder / METRICS):
        with contextlib.suppress(pa.ArrowException, KeyError):  # columns of another name or type
            groups.append(group.select(METRIC_SCHEMA.names).cast(METRIC_SCHEMA))
    table = pa.concat_tables(groups) if groups else METRIC_SCHEMA.empty_table()
    return _sorted(table.to_pandas())


def _sorted(table: pd.DataFrame) -> pd.DataFrame:
    return table.sort_values(KEY, kind="stable", ignore_index=True)


def _row_groups(path: Path) -> Iterator[pa.Table]:
    """Yield the row groups that can be read; each page has a checksum."""
    # A damaged file may make the reader raise anything. Runs of a lost group are missed in the
    # index and reported, so no error is hidden here.
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
        intact: The whole file has the checksum of the index, so the runs' own need no check.

    Returns:
        Run id -> what is wrong.
    """
    last_steps = {run: line["last_step"] for run, line in lines.items()}
    reasons = content_damage(table, last_steps)
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
    """Find runs with rows that no run can have logged, whatever their checksums.

    Rows may be missing, doubled, cut short or out of range.

    Args:
        table: Long table, sorted by ``KEY``.
        last_steps: Run id -> step at which the run ended.

    Returns:
        Run id -> what is wrong.
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


def _inside_ranges(table: pd.DataFrame) -> pd.Series:
    """Whether each value lies in the range of its metric."""
    lowest: dict[str, float] = {}
    highest: dict[str, float] = {}
    for metric in table["metric"].unique():
        lowest[metric], highest[metric] = allowed(metric) or (-np.inf, np.inf)
    low = table["metric"].map(lowest).astype(float) - ROUNDING
    high = table["metric"].map(highest).astype(float) + ROUNDING
    value = table["value"]
    return np.isfinite(value) & (value >= low) & (value <= high)


def _line_sum(line: Mapping[str, Any]) -> str:
    content = {name: line.get(name) for name in RUN_SCHEMA.names}
    return text_sum(json.dumps(content, sort_keys=True, default=str).encode())


def metric_sums(table: pd.DataFrame) -> dict[str, str]:
    """Checksum of each run's rows; ``table`` is sorted by ``KEY``."""
    sums: dict[str, str] = {}
    steps = table["step"].to_numpy("<i8")  # the same bytes on every machine
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


# Writing


def write_archive(
    runs: Iterable[Run],
    metrics: pd.DataFrame,
    experiments: Iterable[ExperimentRecord],
    folder: Path,
) -> tuple[Path, ...]:
    """Write the finished runs and all experiments; equal records give equal bytes.

    Paths of the machine that ran are left out, and so are seconds of stages, except those of a
    whole training step.

    Raises:
        RecordError: A run's rows are damaged, or verl-agent logged it; nothing was written.
    """
    finished: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: run.id):
        if run.state == State.DONE:
            finished[run.id] = run
    foreign = [run.id for run in finished.values() if run.foreign]
    if foreign:
        raise RecordError(
            f"run {foreign[0]} was logged by verl-agent; an archive holds runs of this project"
        )
    table = _archived_rows(metrics, finished)
    damage = content_damage(table, {run.id: run.step for run in finished.values()})
    if damage:
        raise RecordError(
            "; ".join(f"run {run} cannot be archived: {reason}" for run, reason in damage.items())
        )
    lines = [_line(run) for run in finished.values()]
    contents = {
        METRICS: _metrics_file(table, list(finished)),
        RUNS: _runs_file(lines),
    }
    sums = metric_sums(table)
    index = ArchiveIndex(
        format=FORMAT,
        files={name: RunningSum.of(content).now() for name, content in contents.items()},
        runs={
            line["id"]: RunSums(line=_line_sum(line), metrics=sums[line["id"]]) for line in lines
        },
        experiments=[sealed(record.model_dump(mode="json")) for record in merged(experiments)],
    )
    _replace(folder, contents, _index_file(index))
    return tuple(folder / name for name in (METRICS, RUNS, INDEX))


def _archived_rows(metrics: pd.DataFrame, finished: Mapping[str, Run]) -> pd.DataFrame:
    """Rows of these runs that an archive keeps, sorted by ``KEY``."""
    table = metrics[metrics["run"].isin(finished.keys())]
    names = table["metric"].astype(str)
    table = table[~names.str.startswith(TIMES) | names.isin(KEPT_TIMES)]
    table = table[METRIC_SCHEMA.names].astype({"run": str, "metric": str})
    return _sorted(table)


def _metrics_file(table: pd.DataFrame, ids: list[str]) -> bytes:
    buffer = io.BytesIO()
    with pq.ParquetWriter(
        buffer,
        METRIC_SCHEMA,
        use_dictionary=KEY,
        write_page_checksum=True,
        **COMPRESSION,
    ) as writer:
        for first in range(0, len(ids), RUNS_A_GROUP):
            rows = table[table["run"].isin(ids[first : first + RUNS_A_GROUP])]
            # Values of one metric lie together, which compresses best.
            rows = rows.sort_values(["metric", "run", "step"], kind="stable")
            content = pa.Table.from_pandas(rows, METRIC_SCHEMA, preserve_index=False)
            writer.write_table(content, row_group_size=len(rows))
    return buffer.getvalue()


def _runs_file(lines: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist(lines, RUN_SCHEMA),
        buffer,
        row_group_size=RUNS_A_GROUP,
        use_dictionary=False,
        write_statistics=False,  # the lowest and highest configuration, which nobody queries
        write_page_checksum=True,
        **COMPRESSION,
    )
    return buffer.getvalue()


def _index_file(index: ArchiveIndex) -> bytes:
    """JSON with a line per file, run and experiment, so that a diff shows which have changed."""
    parts = []
    for key, value in sealed(index.model_dump(mode="json")).items():
        if isinstance(value, dict):
            lines = [f"  {json.dumps(name)}: {_compact(item)}" for name, item in value.items()]
            text = "{\n" + ",\n".join(lines) + "\n }"
        elif isinstance(value, list):
            lines = [f"  {_compact(item)}" for item in value]
            text = "[\n" + ",\n".join(lines) + "\n ]"
        else:
            text = json.dumps(value)
        parts.append(f' "{key}": {text}')
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _replace(folder: Path, contents: Mapping[str, bytes], index: bytes) -> None:
    """Replace the three files as one: a reader sees all of the old or all of the new ones.

    The tables are written under staged names. The index, written last, names them by checksum, so
    that after a crash at any point ``settle`` can tell which tables belong to it.
    """
    settle(folder)
    for name, content in contents.items():
        write_bytes(folder / f"{name}{STAGED}", content, readable=True)
    write_bytes(folder / INDEX, index, readable=True)
    settle(folder)


def settle(folder: Path) -> None:
    """Finish or undo an interrupted change of an archive.

    A staged file that the index names takes its final name, any other one is removed.
    """
    for name in (METRICS, RUNS):
        staged = folder / f"{name}{STAGED}"
        if not staged.exists():
            continue
        named = False
        if (folder / INDEX).is_file():
            index, _ = read_index(folder)
            named = locate(folder, name, index) == staged
        with naming_write_errors(folder / name, staged.stat().st_size):
            if named:
                os.replace(staged, folder / name)
            else:
                staged.unlink()
            sync(folder)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock while runs are added.

    Two commands at a time would each write the archive without the other's runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _line(run: Run) -> dict[str, Any]:
    """Values of a run by the names of ``RUN_SCHEMA``."""
    config = {key: value for key, value in run.config.items() if key not in MACHINE_SECTIONS}
    panels = {}
    for name, panel in run.panels.items():
        if isinstance(panel, dict):
            panels[name] = {"sha256": panel.get("sha256")}
    return {
        "id": run.id,
        "config": json.dumps(config, sort_keys=True),
        "panels": json.dumps(panels, sort_keys=True),
        "last_step": run.step,
        "commit": run.commit,
        "code": run.code,
        "processor": run.processor,
        "torch_capability": run.torch_capability,
        "dirty": run.dirty,
    }


def merged(experiments: Iterable[ExperimentRecord]) -> list[ExperimentRecord]:
    """Merge records of one experiment, scale and overrides, which were planned in parts."""
    records: dict[tuple[str, str, tuple[str, ...]], ExperimentRecord] = {}
    for record in experiments:
        key = (record.experiment, record.scale, record.overrides)
        records[key] = _joined(records[key], record) if key in records else record
    return [records[key] for key in sorted(records)]


def _joined(first: ExperimentRecord, second: ExperimentRecord) -> ExperimentRecord:
    rows = {row.name: row for row in first.rows}
    for row in second.rows:
        known = rows.setdefault(row.name, row)
        # The first record's run of a seed comes last here, so it wins.
        planned = {(run.env, run.model, run.seed): run for run in (*row.runs, *known.runs)}
        runs = tuple(planned[key] for key in sorted(planned))
        rows[row.name] = known.model_copy(update={"runs": runs})
    primary = first.primary or second.primary
    return first.model_copy(update={"rows": tuple(rows.values()), "primary": primary})
