"""Where runs come from: folders of run folders, W&B offline folders, and W&B projects; one list of runs from all."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
from scpo.records import State
from scpo.records.archive_index import is_archive

from analysis.sources.archive import read_archive
from analysis.sources.mirrored import implied_records, mirrored_run, without_record
from analysis.sources.run_records import (
    ExperimentRecord,
    Problem,
    Run,
    noted,
    read_experiments,
    read_runs,
)
from analysis.sources.transaction_log import LoggedRun, read_transaction_log
from analysis.sources.wandb_project import HISTORY, Settings, read_project

KILLED = "KILLED"


@dataclass(frozen=True)
class Found:
    """Runs by id, the experiments that they are rows of, and what could not be read.

    ``copies``: of a run that several sources hold, all of them, the best one first. ``archived``:
    the metrics of whole runs by the archive's folder.
    """

    copies: dict[str, tuple[Run, ...]]
    experiments: tuple[ExperimentRecord, ...]
    problems: tuple[Problem, ...]
    archived: dict[Path, pd.DataFrame] = field(default_factory=dict, repr=False)


def read_sources(
    folders: Iterable[Path], projects: Iterable[str] = (), settings: Settings | None = None
) -> Found:
    """Read all sources.

    Of a run that several of them hold, finished copies come before others and damaged ones last; of
    equals, the one of the source that was named first.
    """
    copies: dict[str, list[Run]] = {}
    experiments: list[ExperimentRecord] = []
    problems: list[Problem] = []
    archived: dict[Path, pd.DataFrame] = {}
    for found in (
        *map(_read_folder, folders),
        *(_read_project(name, settings or Settings()) for name in projects),
    ):
        for run_id, known in found.copies.items():
            copies.setdefault(run_id, []).extend(known)
        experiments += found.experiments
        problems += found.problems
        archived |= found.archived
    ordered = {run_id: tuple(sorted(copies[run_id], key=_rank)) for run_id in sorted(copies)}
    single, trials = without_record((known[0] for known in ordered.values()), experiments)
    return Found(ordered, (*experiments, *single), (*problems, *trials), archived)


def _rank(run: Run) -> int:
    if run.damage or run.state == State.DAMAGED:
        return 2
    return 0 if run.state == State.DONE else 1


def _copies(runs: Iterable[Run]) -> dict[str, tuple[Run, ...]]:
    return {run.id: (run,) for run in runs}


def _read_folder(folder: Path) -> Found:
    if is_archive(folder):
        archive = read_archive(folder)
        tables = {folder: archive.metrics}
        return Found(_copies(archive.runs.values()), archive.experiments, archive.problems, tables)
    runs, problems = read_runs(folder)
    logged, unreadable = read_offline(folder)
    experiments, broken = read_experiments(folder)
    implied = implied_records(run for run in logged.values() if run.id not in runs)
    return Found(
        _copies((logged | runs).values()), (*experiments, *implied), problems + unreadable + broken
    )


def read_offline(folder: Path) -> tuple[dict[str, Run], tuple[Problem, ...]]:
    """Runs of the W&B folders in ``folder`` (or of ``folder`` itself), and what is wrong with them.

    A run that was resumed has several folders; where they overlap, the later one stands.
    """
    logs: dict[str, list[tuple[Path, LoggedRun]]] = {}
    problems: list[Problem] = []
    for path in _transaction_logs(folder):
        with noted(problems, path.parent.name):
            logged = read_transaction_log(path)
            logs.setdefault(logged.id, []).append((path, logged))
            if logged.damaged:
                steps = f"{len(logged.lines)} steps were read"
                problems.append(
                    Problem(path.parent.name, f"its log is torn, as by a kill; {steps}")
                )
    runs = {}
    for run_id, attempts in logs.items():
        with noted(problems, run_id):
            runs[run_id] = _offline_run(folder, attempts)
    return runs, tuple(problems)


def _transaction_logs(folder: Path) -> Iterator[Path]:
    yield from sorted(folder.glob("*.wandb"))
    for child in sorted(folder.glob("*run-*")):
        if not child.is_symlink():  # latest-run points at one of the others
            yield from sorted(child.glob("*.wandb"))


def _offline_run(folder: Path, attempts: list[tuple[Path, LoggedRun]]) -> Run:
    last = attempts[-1][1]
    steps = [line["step"] for _, logged in attempts for line in logged.lines]
    return mirrored_run(
        last.id,
        last.config,
        folder=folder,
        logs=tuple(str(path.relative_to(folder)) for path, _ in attempts),
        state=KILLED if last.exit_code is None else State.FAILED if last.exit_code else State.DONE,
        step=max(steps, default=None),
        project=last.project or "offline",
    )


def _read_project(name: str, settings: Settings) -> Found:
    downloads, noticed = read_project(name, settings)
    runs: dict[str, Run] = {}
    problems = [*noticed]
    for download in downloads:
        place = f"{name}/{download.id}"
        with noted(problems, place):
            run = mirrored_run(
                download.id,
                download.config,
                folder=download.folder,
                logs=(HISTORY,),
                state=State.DONE if download.state == "finished" else download.state.upper(),
                step=download.last_step,
                project=name,
            )
            if run.id in runs:
                problems.append(
                    Problem(place, f"is {run.id} again; the one that got further stands")
                )
            runs[run.id] = max(run, runs.get(run.id, run), key=lambda one: one.step or 0)
    return Found(_copies(runs.values()), implied_records(runs.values()), tuple(problems))
