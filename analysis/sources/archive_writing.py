"""Write archives (``analysis.sources.archive``); equal records give equal bytes."""

import contextlib
import fcntl
import io
import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.sources.archive import (
    KEY,
    METRIC_SCHEMA,
    RUN_SCHEMA,
    by_key,
    content_damage,
    line_sum,
    metric_sums,
)
from analysis.sources.named_late import refused, refusing
from analysis.sources.run_records import ExperimentRecord, Run
from scpo.errors import RecordError
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
)
from scpo.records.files import RunningSum, naming_write_errors, sealed, sync, write_bytes
from scpo.records.status import State
from scpo.strict import MACHINE_SECTIONS

# Number of runs in a row group. One flipped bit can destroy a whole group, but with groups of 16
# runs the files would be 6 % larger.
RUNS_PER_GROUP = 32

# Metrics in seconds are left out, except KEPT_TIMES: they are half of all rows and differ between
# machines.
TIMES = "timing_s/"
KEPT_TIMES = ("timing_s/step",)
COMPRESSION = {"compression": "zstd", "compression_level": 19}


def write_archive(
    runs: Iterable[Run],
    metrics: pd.DataFrame,
    experiments: Iterable[ExperimentRecord],
    folder: Path,
) -> tuple[Path, ...]:
    """Write an archive of the finished runs and all experiments; returns its files.

    It has no settings of the machine, and no timings of stages (``KEPT_TIMES`` has the exceptions).

    Raises:
        RecordError: The metrics of a run are damaged, or verl-agent logged it. Nothing is written.
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
        runs={line["id"]: RunSums(line=line_sum(line), metrics=sums[line["id"]]) for line in lines},
        experiments=[
            sealed(record.model_dump(mode="json")) for record in merged(experiments, finished)
        ],
    )
    _replace(folder, contents, _index_file(index))
    return tuple(folder / name for name in (METRICS, RUNS, INDEX))


def _archived_rows(metrics: pd.DataFrame, finished: Mapping[str, Run]) -> pd.DataFrame:
    """Metrics of these runs that an archive keeps, sorted by ``KEY``."""
    table = metrics[metrics["run"].isin(finished.keys())]
    names = table["metric"].astype(str)
    table = table[~names.str.startswith(TIMES) | names.isin(KEPT_TIMES)]
    table = table[METRIC_SCHEMA.names].astype({"run": str, "metric": str})
    return by_key(table)


def _metrics_file(table: pd.DataFrame, ids: list[str]) -> bytes:
    """Parquet file of the metrics, with ``RUNS_PER_GROUP`` runs in each row group."""
    buffer = io.BytesIO()
    with pq.ParquetWriter(
        buffer,
        METRIC_SCHEMA,
        use_dictionary=KEY,
        write_page_checksum=True,
        **COMPRESSION,
    ) as writer:
        for first in range(0, len(ids), RUNS_PER_GROUP):
            rows = table[table["run"].isin(ids[first : first + RUNS_PER_GROUP])]
            # Values of one metric next to each other compress best.
            rows = rows.sort_values(["metric", "run", "step"], kind="stable")
            content = pa.Table.from_pandas(rows, METRIC_SCHEMA, preserve_index=False)
            writer.write_table(content, row_group_size=len(rows))
    return buffer.getvalue()


def _runs_file(lines: list[dict[str, Any]]) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist(lines, RUN_SCHEMA),
        buffer,
        row_group_size=RUNS_PER_GROUP,
        use_dictionary=False,
        # Statistics would repeat the lowest and the highest configuration, and no reader uses them.
        write_statistics=False,
        write_page_checksum=True,
        **COMPRESSION,
    )
    return buffer.getvalue()


def _index_file(index: ArchiveIndex) -> bytes:
    """JSON with one line per file, run and experiment, so that a diff shows the changed ones."""
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
    """Replace the three files atomically: a reader sees all old or all new ones.

    The two data files are first written under staged names. Then the index with their checksums is
    written. After a crash at any point, ``settle`` finds the files that belong to the index by
    their checksums.
    """
    settle(folder)
    for name, content in contents.items():
        write_bytes(folder / f"{name}{STAGED}", content, readable=True)
    # Once the index is written, the new files are valid, even under their staged names.
    write_bytes(folder / INDEX, index, readable=True)
    settle(folder)


def settle(folder: Path) -> None:
    """Finish or undo an interrupted change of an archive.

    A staged file with the checksum in the index gets its final name; any other one is deleted.
    """
    for name in (METRICS, RUNS):
        staged = folder / f"{name}{STAGED}"
        if not staged.exists():
            continue
        is_current = False
        if (folder / INDEX).is_file():
            index, _ = read_index(folder)
            is_current = locate(folder, name, index) == staged
        with naming_write_errors(folder / name, staged.stat().st_size):
            if is_current:
                os.replace(staged, folder / name)
            else:
                staged.unlink()
            sync(folder)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock while runs are added.

    Without it, two commands at a time would each write the archive without the other's runs.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # The lock is on the folder itself: a lock file would appear under version control.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    except BaseException:
        # A refused `--create` leaves no folder. A folder with files cannot be removed like this.
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise
    finally:
        os.close(descriptor)


def _line(run: Run) -> dict[str, Any]:
    """Values of a run by the names of ``RUN_SCHEMA``."""
    # Settings of the machine (paths, launcher) are private and not part of the run's id.
    config = {key: value for key, value in run.config.items() if key not in MACHINE_SECTIONS}
    panels = {}
    for name, panel in run.panels.items():
        if isinstance(panel, dict):
            # The hash suffices to compare the games of two runs; ids of tasks would double the
            # file.
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


def merged(
    experiments: Iterable[ExperimentRecord], finished: Collection[str] = ()
) -> list[ExperimentRecord]:
    """Merge records with equal experiment, scale and overrides, which were planned in parts.

    If a setting changed between two records, they name different runs for one row and seed. The
    earlier record's run is kept if it is in ``finished``; otherwise the later record's replaces it.
    """
    records: dict[tuple[str, str, tuple[str, ...]], ExperimentRecord] = {}
    for record in experiments:
        if record.key in records:
            records[record.key] = _joined(records[record.key], record, finished)
        else:
            records[record.key] = record
    return [records[key] for key in sorted(records)]


def _joined(
    first: ExperimentRecord, second: ExperimentRecord, finished: Collection[str]
) -> ExperimentRecord:
    """Merge two records as ``merged`` describes."""
    rows = {row.name: row for row in first.rows}
    for row in second.rows:
        known = rows.setdefault(row.name, row)
        planned = {(run.env, run.model, run.seed): run for run in known.runs}
        for run in row.runs:
            key = (run.env, run.model, run.seed)
            if key not in planned or planned[key].id not in finished:
                planned[key] = run
        runs = tuple(planned[key] for key in sorted(planned))
        rows[row.name] = known.model_copy(update={"label": row.label, "runs": runs})
    # The later record gives the labels and, unless it names none, the primary comparisons.
    named = second if second.primary else first
    former = {(row.name, row.runs): row for row in (*first.former, *second.former)}
    superseded = dict.fromkeys((*first.superseded, *second.superseded))
    joined = first.model_copy(
        update={
            "rows": tuple(rows.values()),
            "primary": named.primary,
            "withdrawn": named.withdrawn,
            "named_late": tuple(dict.fromkeys((*first.named_late, *second.named_late))),
            "former": tuple(former.values()),
            "superseded": tuple(superseded),
        }
    )
    # A comparison that one of them refused as named after its results remains refused.
    return refusing(joined, (*refused(first), *refused(second)))
