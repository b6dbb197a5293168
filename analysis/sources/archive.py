"""Archive of finished runs: three small files from which every table and curve is rebuilt without running anything.

``metrics.parquet`` is the long table (run, step, metric, value), ``runs.parquet`` a line a run with
its configuration, code and processor, ``experiments.json`` which run is which row, with the
checksums of all of it (``scpo.records.archive_index``). Both tables are written in groups of runs,
so that damage costs the runs of a group and not all of them. An archive is read like a folder of
run folders. What a run sampled to disk is not in it.
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
from scpo.errors import RecordError, first_line
from scpo.progress import counted
from scpo.records import State
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
from scpo.schema import MACHINE_SECTIONS

from analysis.sources import ranges
from analysis.sources.run_records import ExperimentRecord, Problem, Run, RunHead, setting_of

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
    {"run": pa.string(), "metric": pa.string(), "step": pa.int64(), "value": pa.float64()}
)
RUNS_A_GROUP = 32  # what one flipped bit costs at most; groups of 16 make the files 6 % larger
TIMES, KEPT_TIMES = "timing_s/", ("timing_s/step",)
NAMED = 6  # damaged runs that one sentence names


@dataclass(frozen=True)
class Archive:
    """What was read.

    ``runs``: by id; one whose metrics are damaged is in state DAMAGED, one whose line is damaged is
    not there. ``metrics``: of the whole runs. ``damaged``: ids of all that are not whole.
    ``index_problems``: what is wrong with the index, among ``problems``.
    """

    runs: dict[str, Run]
    metrics: pd.DataFrame
    experiments: tuple[ExperimentRecord, ...]
    damaged: tuple[str, ...] = ()
    index_problems: tuple[Problem, ...] = ()
    problems: tuple[Problem, ...] = ()


EMPTY = Archive({}, METRIC_SCHEMA.empty_table().to_pandas(), ())


def read_archive(folder: Path) -> Archive:
    """Read all that is whole.

    Raises:
        RecordError: The index or the table of runs cannot be read at all.
    """
    index, damage = read_index(folder)
    problems = [Problem(f"{folder}/{INDEX}", damage)] if damage else []
    experiments = tuple(_read_experiments(folder, index, problems))
    index_problems = tuple(problems)
    lines = _read_lines(folder, index, problems)
    table = _read_metrics(folder, index, problems)
    reasons = _damaged_metrics(
        index, lines, table, whole=locate(folder, METRICS, index) is not None
    )
    runs: dict[str, Run] = {}
    for run_id, line in lines.items():
        try:
            run = _run(folder, line)
        except (ValueError, TypeError, KeyError, RecursionError) as error:
            what = (
                first_complaint(error) if isinstance(error, ValidationError) else first_line(error)
            )
            problems.append(
                Problem(f"{folder}/{run_id}", f"its line in {RUNS} is no run's: {what}")
            )
            continue
        if reason := reasons.get(run_id):
            run = replace(run, state=State.DAMAGED, damage=f"{reason}. {_restore(folder)}")
        runs[run_id] = run
    problems += _told(folder, [run for run in runs.values() if run.damage])
    whole = {run.id for run in runs.values() if not run.damage}
    damaged = tuple(run for run in index.runs if run not in whole)
    return Archive(
        runs, table[table["run"].isin(whole)], experiments, damaged, index_problems, tuple(problems)
    )


def _restore(folder: Path) -> str:
    return f"Restore the archive's files (git checkout {folder}) or add the run again (python -m analysis study --add)"


def _told(folder: Path, damaged: list[Run]) -> list[Problem]:
    """A problem for each damaged run; one for all where there are many."""
    if len(damaged) <= NAMED:
        return [Problem(run.id, str(run.damage)) for run in damaged]
    names = ", ".join(run.id for run in damaged)
    return [Problem(str(folder), f"{len(damaged)} runs are damaged ({damaged[0].damage}): {names}")]


def _read_experiments(
    folder: Path, index: ArchiveIndex, problems: list[Problem]
) -> Iterator[ExperimentRecord]:
    for place, record in enumerate(index.experiments):
        try:
            yield ExperimentRecord.model_validate(unsealed(record))
        except (ValueError, TypeError) as error:
            name = str(record.get("experiment"))[:60]
            what = (
                first_complaint(error) if isinstance(error, ValidationError) else first_line(error)
            )
            reason = (
                f"record {place + 1}, of experiment {name}, is damaged: {what}. {_restore(folder)}"
            )
            problems.append(Problem(f"{folder}/{INDEX}", reason))


def _read_lines(
    folder: Path, index: ArchiveIndex, problems: list[Problem]
) -> dict[str, dict[str, Any]]:
    """The lines of the runs that are as they were written; the others are named."""
    path = locate(folder, RUNS, index)
    groups = list(_row_groups(path or folder / RUNS))
    if not groups:
        raise unreadable(folder, f"{RUNS}: no run in it can be read")
    found: dict[str, dict[str, Any]] = {}
    for line in (line for group in groups for line in group.to_pylist()):
        known = index.runs.get(str(line.get("id")))
        if known and line["id"] not in found and _line_sum(line) == known.line:
            found[line["id"]] = line
    if lost := [run for run in index.runs if run not in found]:
        reason = (
            f"the lines of {counted(len(lost), 'run')} in {RUNS} are damaged: "
            f"{', '.join(lost)}. {_restore(folder)}"
        )
        problems.append(Problem(f"{folder}/{RUNS}", reason))
    return found


def _read_metrics(folder: Path, index: ArchiveIndex, problems: list[Problem]) -> pd.DataFrame:
    """All rows that can be read, sorted by run, metric and step."""
    path = locate(folder, METRICS, index)
    if path is None:
        problems.append(
            Problem(f"{folder}/{METRICS}", f"is damaged or missing. {_restore(folder)}")
        )
    groups = []
    for group in _row_groups(path or folder / METRICS):
        with contextlib.suppress(pa.ArrowException, KeyError):  # columns of another name or kind
            groups.append(group.select(METRIC_SCHEMA.names).cast(METRIC_SCHEMA))
    table = pa.concat_tables(groups) if groups else METRIC_SCHEMA.empty_table()
    return table.to_pandas().sort_values(
        ["run", "metric", "step"], kind="stable", ignore_index=True
    )


def _row_groups(path: Path) -> Iterator[pa.Table]:
    """The row groups that can be read: each page has a checksum."""
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except Exception:  # noqa: BLE001 (whatever a damaged file makes the reader raise: nothing of it can be read)
        return
    with file:
        for place in range(file.num_row_groups):
            with contextlib.suppress(
                Exception
            ):  # the same for one group; its runs are missed and named
                yield file.read_row_group(place)


def _damaged_metrics(
    index: ArchiveIndex, lines: Mapping[str, Mapping[str, Any]], table: pd.DataFrame, *, whole: bool
) -> dict[str, str]:
    """Run id -> what is wrong with its rows.

    Args:
        index: The checksums.
        lines: What is known of each run.
        table: Sorted by run, metric and step.
        whole: The file has the checksum that the index names: those of its runs need not be
            computed.
    """
    reasons = content_damage(table, {run: line["last_step"] for run, line in lines.items()})
    if not whole:
        sums = metric_sums(table)
        for run in lines:
            if sums.get(run) != index.runs[run].metrics:
                reasons.setdefault(
                    run, f"its rows in {METRICS} are not those that were written (sha256)"
                )
    return reasons


def content_damage(table: pd.DataFrame, last_steps: Mapping[str, int | None]) -> dict[str, str]:
    """Run id -> what its rows cannot be, whatever their checksums are: none, doubled, cut short or out of range.

    Args:
        table: (run, metric, step, value), sorted by the first three.
        last_steps: The runs, with the step that each ended at.
    """
    reasons: dict[str, str] = {}
    bounds = {
        metric: ranges.allowed(metric) or (-np.inf, np.inf) for metric in table["metric"].unique()
    }
    low = table["metric"].map({metric: bound[0] for metric, bound in bounds.items()}).astype(float)
    high = table["metric"].map({metric: bound[1] for metric, bound in bounds.items()}).astype(float)
    value = table["value"]
    inside = (
        np.isfinite(value) & (value >= low - ranges.ROUNDING) & (value <= high + ranges.ROUNDING)
    )
    for row in table[~inside].itertuples():
        reasons.setdefault(row.run, str(ranges.complaint(row.metric, row.step, row.value)))
    key = ["run", "metric", "step"]
    same = table[key].eq(table[key].shift()).all(axis=1)  # sorted: equal ones follow each other
    for row in table[same].itertuples():
        reasons.setdefault(row.run, f"it has two values of {row.metric} at step {row.step}")
    logged = table.groupby("run")["step"].max()
    for run, last in last_steps.items():
        if run not in logged.index:
            reasons.setdefault(run, "it has no metric rows")
        elif last is not None and logged[run] != last:
            reasons.setdefault(
                run, f"its metric rows end at step {logged[run]}, the run ended at {last}"
            )
    return reasons


def _line_sum(line: Mapping[str, Any]) -> str:
    content = {name: line.get(name) for name in RUN_SCHEMA.names}
    return text_sum(json.dumps(content, sort_keys=True, default=str).encode())


def metric_sums(table: pd.DataFrame) -> dict[str, str]:
    """Checksums of each run's rows; ``table`` is sorted by run, metric and step."""
    sums: dict[str, str] = {}
    steps, values = table["step"].to_numpy("<i8"), table["value"].to_numpy("<f8")
    for run, rows in table.groupby("run", sort=True).indices.items():
        first, end = rows[0], rows[-1] + 1
        names = "\n".join(table["metric"].iloc[first:end])
        sums[str(run)] = text_sum(
            names.encode() + steps[first:end].tobytes() + values[first:end].tobytes()
        )
    return sums


def _run(folder: Path, line: Mapping[str, Any]) -> Run:
    config, panels = json.loads(line["config"]), json.loads(line["panels"])
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


def write_archive(
    runs: Iterable[Run],
    metrics: pd.DataFrame,
    experiments: Iterable[ExperimentRecord],
    folder: Path,
) -> tuple[Path, ...]:
    """Write the finished runs with all that was planned beside them; equal records give equal bytes.

    Seconds of stages are left out, those of a whole training step stay; so do no paths of the
    machine that ran.

    Raises:
        RecordError: A run's rows are damaged, or it was logged by verl-agent; nothing was written.
    """
    finished = {
        run.id: run for run in sorted(runs, key=lambda run: run.id) if run.state == State.DONE
    }
    if foreign := [run.id for run in finished.values() if run.foreign]:
        raise RecordError(
            f"run {foreign[0]} was logged by verl-agent; an archive holds runs of this project"
        )
    table = _kept(metrics, finished)
    if damage := content_damage(table, {run.id: run.step for run in finished.values()}):
        raise RecordError(
            "; ".join(f"run {run} cannot be archived: {reason}" for run, reason in damage.items())
        )
    lines = [_line(run) for run in finished.values()]
    contents = {METRICS: _metrics_file(table, list(finished)), RUNS: _runs_file(lines)}
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


def _kept(metrics: pd.DataFrame, finished: Mapping[str, Run]) -> pd.DataFrame:
    """The rows of these runs that an archive keeps, sorted by run, metric and step."""
    table = metrics[metrics["run"].isin(finished.keys())]
    names = table["metric"].astype(str)
    table = table[~names.str.startswith(TIMES) | names.isin(KEPT_TIMES)]
    table = table[METRIC_SCHEMA.names].astype({"run": str, "metric": str})
    return table.sort_values(["run", "metric", "step"], kind="stable", ignore_index=True)


def _metrics_file(table: pd.DataFrame, ids: list[str]) -> bytes:
    """Groups of runs, inside them sorted by metric, run and step: equal metrics lie together and compress best."""
    buffer = io.BytesIO()
    options = {"use_dictionary": ["run", "metric", "step"], "write_page_checksum": True}
    with pq.ParquetWriter(
        buffer, METRIC_SCHEMA, compression="zstd", compression_level=19, **options
    ) as writer:
        for first in range(0, len(ids), RUNS_A_GROUP):
            rows = table[table["run"].isin(ids[first : first + RUNS_A_GROUP])]
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
        compression="zstd",
        compression_level=19,
        use_dictionary=False,
        write_statistics=False,  # the least and the greatest configuration, which nobody asks for
        write_page_checksum=True,
    )
    return buffer.getvalue()


def _index_file(index: ArchiveIndex) -> bytes:
    """JSON with a line for each file, run and experiment, so that a diff shows which have changed."""
    content = sealed(index.model_dump(mode="json"))
    parts = []
    for key, value in content.items():
        if isinstance(value, dict):
            lines = ",\n".join(
                f"  {json.dumps(name)}: {_compact(item)}" for name, item in value.items()
            )
            parts.append(f' "{key}": {{\n{lines}\n }}')
        elif isinstance(value, list):
            lines = ",\n".join(f"  {_compact(item)}" for item in value)
            parts.append(f' "{key}": [\n{lines}\n ]')
        else:
            parts.append(f' "{key}": {json.dumps(value)}')
    return ("{\n" + ",\n".join(parts) + "\n}\n").encode()


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _replace(folder: Path, contents: Mapping[str, bytes], index: bytes) -> None:
    """Replace the three files together: a reader sees all of the old or all of the new, whatever dies in between."""
    settle(folder)
    for name, content in contents.items():
        write_bytes(folder / f"{name}{STAGED}", content, readable=True)
    write_bytes(folder / INDEX, index, readable=True)
    settle(folder)


def settle(folder: Path) -> None:
    """Finish or undo a change that was broken off: files that the index names take their names, others are removed."""
    for name in (METRICS, RUNS):
        staged = folder / f"{name}{STAGED}"
        if not staged.exists():
            continue
        named = (folder / INDEX).is_file() and locate(folder, name, read_index(folder)[0]) == staged
        with naming_write_errors(folder / name, staged.stat().st_size):
            if named:
                os.replace(staged, folder / name)
            else:
                staged.unlink()
            sync(folder)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock: two commands that add runs would each write the archive without the other's."""
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _line(run: Run) -> dict[str, Any]:
    """Its values by the names of ``RUN_SCHEMA``."""
    config = {key: value for key, value in run.config.items() if key not in MACHINE_SECTIONS}
    panels = {
        name: {"sha256": panel.get("sha256")}
        for name, panel in run.panels.items()
        if isinstance(panel, dict)
    }
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
    """One record for each experiment, scale and overrides, with the runs that any of its records planned."""
    found: dict[tuple[str, str, tuple[str, ...]], ExperimentRecord] = {}
    for record in experiments:
        key = (record.experiment, record.scale, record.overrides)
        found[key] = _joined(found[key], record) if key in found else record
    return [found[key] for key in sorted(found)]


def _joined(first: ExperimentRecord, second: ExperimentRecord) -> ExperimentRecord:
    rows = {row.name: row for row in first.rows}
    for row in second.rows:
        known = rows.setdefault(row.name, row)
        planned = {(run.env, run.model, run.seed): run for run in (*row.runs, *known.runs)}
        rows[row.name] = known.model_copy(
            update={"runs": tuple(planned[place] for place in sorted(planned))}
        )
    return first.model_copy(
        update={"rows": tuple(rows.values()), "primary": first.primary or second.primary}
    )
