"""An archive of finished runs: three small files from which every table and curve is rebuilt without running anything.

``metrics.parquet`` is the long table (run, step, metric, value), ``runs.parquet`` a line a run with its configuration,
commit and processor, ``experiments.json`` which run is which row. It is read like a folder of run folders, so archives
of several machines and runs that were made since merge by run id. What a run sampled to disk is not in it.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from pydantic import ValidationError

from analysis.sources.run_records import ExperimentRecord, Problem, Run, RunHead, setting_of
from scpo.errors import RecordError, first_line
from scpo.records import State
from scpo.records.files import write_bytes
from scpo.schema import MACHINE_SECTIONS

METRICS, RUNS, EXPERIMENTS = "metrics.parquet", "runs.parquet", "experiments.json"
COLUMNS = ("id", "config", "panels", "last_step", "commit", "processor", "dirty")
TIMES, KEPT_TIMES = "timing_s/", ("timing_s/step",)


def is_archive(folder: Path) -> bool:
    """Whether a folder is one; a folder of built tables has no ``experiments.json``."""
    return (folder / RUNS).is_file() and (folder / EXPERIMENTS).is_file()


def read_archive(folder: Path) -> tuple[dict[str, Run], tuple[ExperimentRecord, ...], tuple[Problem, ...]]:
    """The runs of an archive, the experiments that they are rows of, and what could not be read.

    Raises:
        RecordError: A file of the archive is broken.
    """
    try:
        table = pd.read_parquet(folder / RUNS)
        records = json.loads((folder / EXPERIMENTS).read_bytes())
        experiments = tuple(ExperimentRecord.model_validate(record) for record in records)
        lines = table[[*COLUMNS]].to_dict("records")
    except (OSError, ValueError, KeyError, ValidationError) as error:
        raise RecordError(
            f"{folder} is no archive of runs that can be read: {first_line(error)}. "
            "Restore its three files (git checkout), or delete it and build it again from the run folders."
        ) from error
    runs: dict[str, Run] = {}
    problems = []
    for line in lines:
        try:
            runs[line["id"]] = _run(folder, line)
        except ValueError as error:
            problems.append(Problem(f"{folder.name}/{line['id']}", f"not a run's configuration: {first_line(error)}"))
    return runs, experiments, tuple(problems)


def _run(folder: Path, line: dict[str, Any]) -> Run:
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
        dirty=bool(line["dirty"]),
    )


def archived_metrics(runs: Iterable[Run]) -> pd.DataFrame:
    """The long table of those of the runs that come from archives, each file read once."""
    by_file: dict[Path, set[str]] = {}
    for run in runs:
        if run.logs == (METRICS,):
            by_file.setdefault(run.folder / METRICS, set()).add(run.id)
    tables = []
    for path, wanted in sorted(by_file.items()):
        table = pd.read_parquet(path)
        tables.append(table[table["run"].isin(wanted)].astype({"run": str, "metric": str}))
    return pd.concat(tables) if tables else pd.DataFrame({"run": [], "step": [], "metric": [], "value": []})


def write_archive(
    runs: Iterable[Run], metrics: pd.DataFrame, experiments: Iterable[ExperimentRecord], folder: Path
) -> tuple[Path, ...]:
    """Write the finished runs with all that was planned beside them; equal records give equal bytes.

    Seconds of stages are left out, those of a whole training step stay; so do no paths of the machine that ran.
    """
    finished = {run.id: run for run in sorted(runs, key=lambda run: run.id) if run.state == State.DONE}
    if foreign := [run.id for run in finished.values() if run.foreign]:
        raise RecordError(f"run {foreign[0]} was logged by verl-agent; an archive holds runs of this project")
    lines = [_line(run) for run in finished.values()]
    kept = metrics[metrics["run"].isin(finished.keys())]
    names = kept["metric"].astype(str)
    kept = kept[~names.str.startswith(TIMES) | names.isin(KEPT_TIMES)]
    kept = kept.astype({"run": str, "metric": str}).astype({"run": "category", "metric": "category"})
    kept = kept.sort_values(["metric", "run", "step"], kind="stable", ignore_index=True)
    records = [record.model_dump(mode="json") for record in merged(experiments)]
    contents = {
        METRICS: kept.to_parquet(index=False, compression="zstd", compression_level=19),
        RUNS: pd.DataFrame(lines, columns=[*COLUMNS]).to_parquet(index=False, compression="zstd"),
        EXPERIMENTS: f"{json.dumps(records, indent=1, ensure_ascii=False)}\n".encode(),
    }
    for name, content in contents.items():
        write_bytes(folder / name, content, readable=True)
    return tuple(folder / name for name in contents)


def _line(run: Run) -> tuple[Any, ...]:
    """Its ``COLUMNS``."""
    config = {key: value for key, value in run.config.items() if key not in MACHINE_SECTIONS}
    panels = {name: {"sha256": panel.get("sha256")} for name, panel in run.panels.items() if isinstance(panel, dict)}
    texts = json.dumps(config, sort_keys=True), json.dumps(panels, sort_keys=True)
    return (run.id, *texts, run.step, run.commit, run.processor, run.dirty)


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
        rows[row.name] = known.model_copy(update={"runs": tuple(planned[place] for place in sorted(planned))})
    return first.model_copy(update={"rows": tuple(rows.values()), "primary": first.primary or second.primary})
