"""Build every table and figure that the records allow; say what is missing for the others.

A builder is a module in ``analysis/tables`` or ``analysis/figures`` with ``build(data) -> Table | Figure``. It is
called once for each scale; the paper's scale gets the plain name, so that no paper includes a mini-scale file by it.
"""

import hashlib
import importlib
import json
import pkgutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

import analysis.figures
import analysis.tables
from analysis.collect import Collected, collect, write_parquet
from analysis.missing import MissingRunsError
from analysis.outputs import write_atomically
from analysis.records import Problem
from analysis.style import figure_files
from analysis.table import Table
from scpo.errors import RecordError

Builder = Callable[[Collected], Table | Figure]
DEFAULT_COMMAND = "python sweep.py +experiment=ablation"


@dataclass(frozen=True)
class Output:
    """One table or figure that was written, with what it was made from."""

    name: str
    files: tuple[Path, ...]
    runs: tuple[str, ...]
    sources: dict[str, Any]


@dataclass(frozen=True)
class Failure:
    """One table or figure that was not built, why, and what to do about it."""

    name: str
    reason: str
    remedy: str


@dataclass(frozen=True)
class Report:
    """What a build did."""

    outputs: tuple[Output, ...]
    failures: tuple[Failure, ...]
    problems: tuple[Problem, ...]
    unfinished: tuple[str, ...]  # one line for each run that was asked for and is not finished
    commands: tuple[str, ...]  # that make the unfinished runs


def builders() -> dict[str, Builder]:
    """Every module of ``tables`` and ``figures`` by name, tables first."""
    found: dict[str, Builder] = {}
    for package in (analysis.tables, analysis.figures):
        for module in sorted(pkgutil.iter_modules(package.__path__), key=lambda module: module.name):
            found[module.name] = importlib.import_module(f"{package.__name__}.{module.name}").build
    return found


def build_all(runs_dir: Path, out: Path) -> Report:
    """Collect ``runs_dir`` and write every output into ``out``, with ``sources.json`` and the parquet tables."""
    mpl.use("agg")
    data = collect(runs_dir)
    results = list(_results(data, out))
    outputs = [result for result in results if isinstance(result, Output)]
    failures = [result for result in results if isinstance(result, Failure)]
    write_parquet(data, out)
    _write_sources(out, outputs)
    unfinished, commands = _unfinished(data)
    return Report(tuple(outputs), tuple(failures), data.problems, unfinished, commands)


def _results(data: Collected, out: Path) -> Iterator[Output | Failure]:
    for name, build in builders().items():
        if not data.scales:
            yield Failure(name, "no experiment is recorded", DEFAULT_COMMAND)
        for scale in data.scales:
            yield _build_one(name if scale == "paper" else f"{name}_{scale}", build, data.at_scale(scale), out)


def _build_one(name: str, build: Builder, data: Collected, out: Path) -> Output | Failure:
    try:
        made = build(data)
    except MissingRunsError as missing:
        return Failure(name, f"no {missing.needed}", missing.command)
    except RecordError as error:
        return Failure(name, str(error), "mend or delete the record, then build again")
    contents = made.files() if isinstance(made, Table) else figure_files(made)
    paths = tuple(out / f"{name}.{ending}" for ending in contents)
    for path, content in zip(paths, contents.values(), strict=True):
        write_atomically(path, content)
    runs = tuple(sorted({run for run, _ in data.used}))
    return Output(name, paths, runs, _sources(data, runs, paths))


def _sources(data: Collected, runs: tuple[str, ...], paths: tuple[Path, ...]) -> dict[str, Any]:
    rows = data.runs.set_index("id").loc[list(runs)]
    read = {(run, "config.yaml") for run in runs} | data.used
    inputs = {f"{run}/{name}": data.runs_dir / run / name for run, name in sorted(read)}
    return {
        "files": [path.name for path in paths],
        "runs": list(runs),
        "seeds": int(rows["seed"].nunique()),
        "run_commits": sorted({str(commit) for commit in rows["commit"].dropna()}),
        "inputs": {name: _sha256(path) for name, path in inputs.items() if path.is_file()},
    }


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _write_sources(out: Path, outputs: list[Output]) -> None:
    text = {"commit": _commit(), "outputs": {output.name: output.sources for output in outputs}}
    write_atomically(out / "sources.json", (json.dumps(text, indent=2, sort_keys=True) + "\n").encode())


def _commit() -> str | None:
    """The commit of the code that draws; None outside a git checkout."""
    command = ["git", "-C", str(Path(__file__).resolve().parent), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _unfinished(data: Collected) -> tuple[tuple[str, ...], tuple[str, ...]]:
    lines, commands = [], []
    for part in data.sections:
        missing = [(row, run) for row in part.rows for run in row.missing]
        lines += [f"{row.label}, seed {run.seed} ({part.scale} scale): {run.id} is {run.state}" for row, run in missing]
        commands += part.command.splitlines() if missing else []
    return tuple(dict.fromkeys(lines)), tuple(dict.fromkeys(commands))
