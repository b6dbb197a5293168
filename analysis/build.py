"""Build every table and figure that the records allow; say what is missing for the others.

A builder is a module in ``analysis/tables`` or ``analysis/figures`` with ``build(data)`` that gives a Table or a
Drawing (a figure with its numbers). It is called once for each scale; the paper's scale gets the plain name, so that
no paper includes a mini-scale file by it. One whose module has a ``SCALE`` is of that scale alone, and says it in its
name.
"""

import importlib
import pkgutil
import sys
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl

import analysis.figures
import analysis.tables
from analysis.built_from import Sources
from analysis.rendering.style import Drawing
from analysis.rendering.table import Table
from analysis.sources.collect import Collected, write_parquet
from analysis.sources.rows import MissingRunsError, Row
from analysis.sources.run_records import Problem
from scpo.errors import RecordError
from scpo.records import State
from scpo.records.files import write_bytes

Made: TypeAlias = Table | Drawing
Builder: TypeAlias = Callable[[Collected], Made]
DEFAULT_COMMAND = "python sweep.py +experiment=ablation"


@dataclass(frozen=True)
class Output:
    """One table or figure, with what it was made from; ``made`` is None for a figure that stands as it was."""

    name: str
    files: tuple[Path, ...]
    runs: tuple[str, ...]
    sources: dict[str, Any]
    made: Made | None


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
        for name in sorted(module.name for module in pkgutil.iter_modules(package.__path__)):
            if name.startswith(("tab_", "fig_")):
                found[name] = importlib.import_module(f"{package.__name__}.{name}").build
    return found


def build_from(
    data: Collected,
    out: Path,
    tell: Callable[[Output | Failure], None] = lambda result: None,
    only: Collection[str] = (),
) -> Report:
    """Write every output into ``out``, with ``sources.json`` and the parquet tables.

    ``tell`` is called with each result as soon as it is there; ``only`` names the builders, none: all of them.
    """
    mpl.use("agg")
    sources = Sources(out)
    results = []
    for result in _results(data, sources, only):
        tell(result)
        results.append(result)
    outputs = [result for result in results if isinstance(result, Output)]
    failures = [result for result in results if isinstance(result, Failure)]
    write_parquet(data, out)
    sources.write({output.name: output.sources for output in outputs}, keep=bool(only))
    unfinished, commands = _unfinished(data)
    return Report(tuple(outputs), tuple(failures), data.problems, unfinished, commands)


def _results(data: Collected, known: Sources, only: Collection[str]) -> Iterator[Output | Failure]:
    for name, build in builders().items():
        if only and name not in only:
            continue
        if not data.scales:
            yield Failure(name, "no experiment is recorded", DEFAULT_COMMAND)
        own = getattr(sys.modules[build.__module__], "SCALE", None)
        for scale in data.scales:
            if own in (None, scale):
                plain = scale == "paper" or own
                yield _build_one(name if plain else f"{name}_{scale}", build, data.at_scale(scale), known)


def _build_one(name: str, build: Builder, data: Collected, known: Sources) -> Output | Failure:
    """Figures take seconds and stand if nothing of theirs has changed; tables are made anew, it takes no time."""
    if name.startswith("fig_") and (before := known.unchanged(name, data)):
        return Output(name, tuple(known.out / file for file in before["files"]), tuple(before["runs"]), before, None)
    try:
        made = build(data)
    except MissingRunsError as missing:
        return Failure(name, f"no {missing.needed}", missing.command)
    except RecordError as error:
        return Failure(name, str(error), "fix or delete the record, then build again")
    contents = {f"{name}.{ending}": content for ending, content in made.files().items()}
    for file, content in contents.items():
        write_bytes(known.out / file, content, readable=True)
    entry = known.entry(data, contents)
    return Output(name, tuple(known.out / file for file in contents), tuple(entry["runs"]), entry, made)


def _unfinished(data: Collected) -> tuple[tuple[str, ...], tuple[str, ...]]:
    lines = (line for part in data.sections for row in part.rows for line in _missing(row, part.scale))
    commands = (command for part in data.sections for command in part.commands)
    return tuple(dict.fromkeys(lines)), tuple(dict.fromkeys(commands))


def _missing(row: Row, scale: str) -> list[str]:
    """A line for each run that was started and is not finished, and one for all that were not."""
    waiting = [str(run.seed) for run in row.missing if run.state == State.PENDING]
    started = [run for run in row.missing if run.state != State.PENDING]
    lines = [f"{row.label}, seed {run.seed} ({scale} scale): {run.id} is {run.state}" for run in started]
    if waiting:
        lines.append(f"{row.label} ({scale} scale): not started: seed{'s' * (len(waiting) > 1)} {', '.join(waiting)}")
    return lines
