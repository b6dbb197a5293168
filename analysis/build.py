"""Build every table and figure that the records allow; report what is missing for the others.

A builder is a module in ``analysis/tables`` or ``analysis/figures`` with ``build(data)``, which
returns a ``Table``, a matplotlib ``Figure``, or a ``Drawing`` (a figure with the numbers of its
caption). It is called once for each scale. Outputs of the paper's scale get the module's name.
Names of other outputs end with the scale, so that a paper cannot include them by mistake. A module
with a ``SCALE`` is built only for that scale, under the module's name. If it also sets
``OTHER_SCALES = True``, it is built for other scales when the user names it.

The caption of an output names the rows whose seeds ran under several versions of the code, and the
settings that were given on the command line of an experiment. ``sources.json`` records these notes
and the runs, inputs and code of each output. A figure takes seconds, so it is drawn again only when
one of these has changed.
"""

import hashlib
import importlib
import json
import pkgutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib as mpl
from matplotlib.figure import Figure

import analysis.figures
import analysis.tables
from analysis.rendering.style import FORMATS, Drawing, FigureSizeError, Look, drawn_as
from analysis.rendering.table import Table
from analysis.sources.code_versions import refused_resumes, section_notes
from analysis.sources.collected import LEFT_OUT, Collected, MissingRunsError, write_parquet
from analysis.sources.rows import Row, Section, seed_list
from analysis.sources.run_records import COMMON_SEEDS, Problem
from scpo.errors import RecordError, first_line
from scpo.installed import installed_version
from scpo.records.files import write_bytes
from scpo.records.status import State

Made: TypeAlias = Table | Drawing
Builder: TypeAlias = Callable[[Collected], Made | Figure]
DEFAULT_COMMAND = "python sweep.py +experiment=ablation"
SOURCES = "sources.json"
ROOT = Path(__file__).resolve().parents[1]

# Code that an output depends on; scpo/schema and scpo/advantages define the labels of methods.
CODE = (
    "analysis/**/*.py",
    "paper_figures/published/*.csv",
    "scpo/intervals.py",
    "scpo/schema/env.py",
    "scpo/schema/method.py",
    "scpo/schema/agent.py",
    "scpo/advantages/*.py",
)
LIBRARIES = (
    "matplotlib",
    "numpy",
    "pandas",
    "scikit-learn",
    "scipy",
    "seaborn",
    "sentence-transformers",
    "torch",
)


# Results


@dataclass(frozen=True)
class Output:
    """One table or figure.

    Attributes:
        name: Name of its files without their suffix.
        files: Its files.
        runs: Ids of the runs that it was made from.
        sources: Its entry in ``sources.json``.
        made: Its content; None for a figure that was not drawn again.
        older: Its files in other formats that an earlier build has left there.
    """

    name: str
    files: tuple[Path, ...]
    runs: tuple[str, ...]
    sources: dict[str, Any]
    made: Made | None
    older: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Failure:
    """One table or figure that was not built, with the reason and the remedy."""

    name: str
    reason: str
    remedy: str


@dataclass(frozen=True)
class Report:
    """Result of a build.

    Attributes:
        outputs: Tables and figures that were built.
        failures: Tables and figures that were not built.
        problems: Runs, files and samples that were left out.
        unfinished: Lines about planned runs that are not finished.
        commands: Commands that finish these runs, without those that cannot be read.
        notes: Rows whose runs used several versions of the code.
        damaged: Number of the ``unfinished`` lines about runs that cannot be read: no command
            finishes these.
        refused: Messages of the runs that these commands refuse, being of other code.
    """

    outputs: tuple[Output, ...]
    failures: tuple[Failure, ...]
    problems: tuple[Problem, ...]
    unfinished: tuple[str, ...]
    commands: tuple[str, ...]
    notes: tuple[str, ...] = ()
    damaged: int = 0
    refused: tuple[str, ...] = ()


# Builders


def builders() -> dict[str, Builder]:
    """Every module of ``tables`` and ``figures`` by name, tables first.

    A module that cannot be imported gets a builder that raises its error, so that only its own
    output fails.
    """
    known: dict[str, Builder] = {}
    for package in (analysis.tables, analysis.figures):
        for name in sorted(module.name for module in pkgutil.iter_modules(package.__path__)):
            if name.startswith(("tab_", "fig_")):
                known[name] = _imported(f"{package.__name__}.{name}")
    return known


def _imported(module: str) -> Builder:
    try:
        build: Builder = importlib.import_module(module).build
    except Exception as error:  # noqa: BLE001 (a user's unfinished figure may raise anything)
        problem = error

        def broken(data: Collected) -> Made:
            raise problem

        return broken
    return build


# Building


def build_from(
    data: Collected,
    out: Path,
    report: Callable[[Output | Failure], None] = lambda result: None,
    only: Collection[str] = (),
    look: Look | None = None,
    *,
    debug: bool = False,
) -> Report:
    """Write every output into ``out``, with ``sources.json`` and the parquet tables.

    Args:
        data: The collected runs.
        out: Output folder.
        report: Called with each result as soon as it is known.
        only: Names of builders; empty for all of them.
        look: The user's choices about figures.
        debug: Raise an error of a builder instead of reporting it as a Failure.
    """
    # Figures are written to files; a backend with windows would need a display.
    mpl.use("agg")
    look = look or Look()
    sources = Sources(out, look)
    outputs: list[Output] = []
    failures: list[Failure] = []
    with drawn_as(look):
        for result in _results(data, sources, only, debug=debug):
            report(result)
            if isinstance(result, Output):
                outputs.append(result)
            else:
                failures.append(result)

    write_parquet(data, out)
    sources.write({output.name: output.sources for output in outputs}, keep=bool(only))
    return _report(data, outputs, failures)


def nothing_built(data: Collected) -> Report:
    """Report without outputs, for runs of which none is finished."""
    return _report(data, (), ())


def _report(data: Collected, outputs: Iterable[Output], failures: Iterable[Failure]) -> Report:
    unfinished, commands, damaged = _unfinished(data)
    missing = {run.id for part in data.sections for row in part.rows for run in row.missing}
    return Report(
        outputs=tuple(outputs),
        failures=tuple(failures),
        problems=(*data.problems, *data.sample_problems),
        notes=section_notes(data.sections, data.by_id),
        unfinished=unfinished,
        commands=commands,
        damaged=damaged,
        refused=tuple(refused_resumes(run for run in data.by_id.values() if run.id in missing)),
    )


def _results(
    data: Collected,
    sources: "Sources",
    only: Collection[str],
    *,
    debug: bool,
) -> Iterator[Output | Failure]:
    for name, build in builders().items():
        if only and name not in only:
            continue
        if not data.scales:
            yield Failure(name, "no experiment is recorded", DEFAULT_COMMAND)
        module = sys.modules[build.__module__]
        own_scale = getattr(module, "SCALE", None)
        scales = data.scales
        of_any_scale = name in only and getattr(module, "OTHER_SCALES", False)
        if own_scale is not None and not of_any_scale:
            scales = tuple(scale for scale in scales if scale == own_scale)
            if name in only and data.scales and not scales:
                yield _of_other_scales(name, own_scale, data)
        for scale in scales:
            # Papers include files by the plain name, which other scales must not take.
            plain = scale == (own_scale or "paper")
            output = name if plain else f"{name}_{scale}"
            result = _build_one(output, build, data.at_scale(scale), sources, debug=debug)
            if isinstance(result, Failure):
                yield _naming_older_files(result, sources.out)
            else:
                yield replace(result, older=_older_files(result, sources.out))


def _of_other_scales(name: str, own_scale: str, data: Collected) -> Failure:
    """Failure of an output that the user named, but that is not built at the scale of the runs."""
    experiment = data.asked[0] if data.asked else "main_table"
    return Failure(
        name=name,
        reason=(
            f"it is of runs of {own_scale} scale only, and these are of "
            f"{' and '.join(data.scales)} scale"
        ),
        remedy=f"python sweep.py +experiment={experiment} scale={own_scale}",
    )


def _naming_older_files(failure: Failure, out: Path) -> Failure:
    """Add the files of an earlier build to the reason, because a paper still includes them."""
    older = sorted(path.name for path in out.glob(f"{failure.name}.*"))
    if not older:
        return failure
    reason = f"{failure.reason}; {', '.join(older)} in {out} are of an earlier build"
    return replace(failure, reason=reason)


def _older_files(output: Output, out: Path) -> tuple[Path, ...]:
    """Pictures of an output in formats that this build has not written."""
    written = {path.name for path in output.files}
    present = [out / f"{output.name}.{ending}" for ending in FORMATS]
    return tuple(path for path in present if path.name not in written and path.exists())


def _build_one(
    name: str,
    build: Builder,
    data: Collected,
    sources: "Sources",
    *,
    debug: bool,
) -> Output | Failure:
    # Only figures are reused, because tables are built in no time.
    before = sources.unchanged(name, data) if name.startswith("fig_") else None
    if before:
        files = tuple(sources.out / file for file in before["files"])
        return Output(name, files, tuple(before["runs"]), before, None)

    try:
        made = _checked(build(data))
        numbers = made if isinstance(made, Table) else made.numbers
        omitted = list(data.cut_seeds)
        for problem in data.problems:
            if problem.path == COMMON_SEEDS:
                omitted.append(f"left out ({COMMON_SEEDS}): {problem.reason}")
        if not_shown := data.not_shown(run for run, _ in data.used):
            omitted.append(not_shown)
        no_spread = numbers.no_spread if numbers else ()
        unmarked = data.unmarked(numbers.footnotes.values() if numbers else ())
        notes = (*sources.code_notes(data), *unmarked, *data.given(), *data.damaged(), *omitted)
        notes += no_spread
        made = _with_notes(made, notes)
        contents = {f"{name}.{ending}": content for ending, content in made.files().items()}
    except MissingRunsError as missing:
        return Failure(name, f"no {missing.needed}", missing.command)
    except FigureSizeError as error:
        return Failure(name, str(error), "a larger --size WxH, or a smaller --font-size")
    except RecordError as error:
        return Failure(name, str(error), "fix or delete the record, then build again")
    except Exception as error:
        if debug:
            raise
        return _crashed(name, error)

    for file, content in contents.items():
        write_bytes(sources.out / file, content, readable=True)
    entry = sources.entry(data, contents) | {"notes": list(notes)}
    files = tuple(sources.out / file for file in contents)
    return Output(name, files, tuple(entry["runs"]), entry, made)


def _checked(made: object) -> Made:
    if isinstance(made, Figure):
        return Drawing(made)
    if not isinstance(made, Table | Drawing):
        raise TypeError(
            f"build(data) returned {type(made).__name__}; "
            "allowed are a Figure, a Drawing or a Table"
        )
    return made


def _with_notes(made: Made, notes: Iterable[str]) -> Made:
    """The output with these notes after its caption, if it has one."""
    table = made if isinstance(made, Table) else made.numbers
    if table is None:
        return made
    table = replace(table, notes=tuple(f"Note: {note}." for note in notes))
    return table if isinstance(made, Table) else replace(made, numbers=table)


def _crashed(name: str, error: Exception) -> Failure:
    """Failure for an error inside a builder; names the innermost line of ``analysis``."""
    place = ""
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        # A class that checks its arguments (Table) was called by the line to be corrected.
        if frame.name == "__post_init__":
            continue
        if path.is_relative_to(ROOT / "analysis") and frame.filename != __file__:
            place = f" ({path.name}, line {frame.lineno})"
    # The longest name: tab_study begins the names of outputs of tab_study_effects, too.
    matching = (known for known in builders() if name.startswith(known))
    builder = max(matching, key=len, default=name)
    return Failure(
        name=name,
        reason=f"its builder failed: {type(error).__name__}: {first_line(error)}{place}",
        # Without its options, such as --runs-dir, the command would read other runs.
        remedy=f"the whole traceback: the same command as `figures {builder} --debug`",
    )


def _unfinished(data: Collected) -> tuple[tuple[str, ...], tuple[str, ...], int]:
    """Lines about unfinished runs, and the commands that finish them, each once.

    The number: how many of the lines are about runs that cannot be read.
    """
    lines: dict[str, None] = {}
    damaged: set[str] = set()
    commands: dict[str, None] = {}
    for part in data.sections:
        for row in part.rows:
            found = _missing(row, part.scale, data.left_out)
            lines |= dict.fromkeys(line for line, _ in found)
            damaged.update(line for line, state in found if state in LEFT_OUT)
        commands |= dict.fromkeys(_commands(part, data))
    return tuple(lines), tuple(commands), len(damaged)


def _commands(part: Section, data: Collected) -> Iterable[str]:
    """Commands for the missing runs of a section; only of its shown rows if the user chose rows."""
    if not (data.chosen or data.asked):
        yield from part.commands
        return
    missing = set()
    for row in part.rows:
        for run in row.unfinished(data.left_out):
            if run.state not in LEFT_OUT:
                missing.add(run.id)
    # A run may be of several experiments: the chosen ones come first.
    for record in sorted(data.experiments, key=lambda known: known.experiment not in data.asked):
        own = record.run_ids & missing
        missing -= own
        planned = {run.seed for row in record.rows for run in row.runs if run.id in own}
        if planned and (command := record.command(sorted(planned))):
            yield command


# Runs that their experiment's command leaves as they are.
_HINTS: dict[str, str] = {
    State.FAILED: "; if it failed too often to be tried again: python -m sweeps retry",
    State.CANCELLED: "; to start it again: python -m sweeps retry",
}


def _missing(row: Row, scale: str, left_out: Mapping[str, State]) -> list[tuple[str, str]]:
    """One line and state per started, unfinished run of a row, and one for all not started."""
    lines: list[tuple[str, str]] = []
    waiting: list[int] = []
    for run in row.unfinished(left_out):
        if run.state == State.PENDING:
            waiting.append(run.seed)
        else:
            hint = _HINTS.get(run.state, "")
            line = f"{row.label}, seed {run.seed} ({scale} scale): {run.id} is {run.state}{hint}"
            lines.append((line, run.state))
    if waiting:
        line = f"{row.label} ({scale} scale): not started: {seed_list(waiting)}"
        lines.append((line, State.PENDING))
    return lines


# Sources of outputs


class Sources:
    """Hashes of inputs, code and outputs, recorded in ``sources.json``.

    Each file is hashed once per build, however many figures use it.
    """

    def __init__(self, out: Path, look: Look | None = None) -> None:
        self.out = out
        self._look = look or Look()
        self._hashes: dict[Path, str | None] = {}
        self._before = _read(out / SOURCES)
        # Rows of an output -> its notes: many outputs have the same rows.
        self._notes: dict[tuple[tuple[Row, ...], ...], tuple[str, ...]] = {}

    def unchanged(self, name: str, data: Collected) -> dict[str, Any] | None:
        """The recorded entry of an output; None if its runs, inputs, code or files have changed."""
        entry = self._before.get(name)
        if not entry or entry.get("state") != self._state(data):
            return None
        if entry.get("left_out"):
            # Build again, so that the damaged samples are reported again.
            return None
        for path, recorded in (entry["inputs"] | entry["seen"]).items():
            run, _, file = path.partition("/")
            if run not in data.by_id or self._hash(data.by_id[run].folder / file) != recorded:
                return None
        for file, recorded in entry["files"].items():
            if self._hash(self.out / file) != recorded:
                return None
        return dict(entry)

    def entry(self, data: Collected, contents: Mapping[str, bytes]) -> dict[str, Any]:
        """Entry of one output.

        Args:
            data: The runs, with the files that the builder used or could choose from.
            contents: Content of the output's files by name.
        """
        runs = sorted({run for run, _ in data.used})
        rows = data.runs.set_index("id").loc[runs]
        # Every run's configuration counts as used, because it determines the run's row.
        used = {(run, "config.yaml") for run in runs} | data.used
        files = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
        return {
            "files": files,
            "runs": runs,
            "seeds": int(rows["seed"].nunique()),
            "run_commits": sorted({str(commit) for commit in rows["commit"].dropna()}),
            "runs_with_uncommitted_changes": [run for run in runs if data.by_id[run].dirty],
            "inputs": self._hashed(data, used),
            "seen": self._hashed(data, data.seen - used),
            "state": self._state(data),
            "left_out": [problem.path for problem in data.sample_problems],
        }

    def code_notes(self, data: Collected) -> tuple[str, ...]:
        """``section_notes`` on the runs that the present output used."""
        used = {run for run, _ in data.used}
        parts = []
        for part in data.sections:
            rows = []
            # Not of the shown seeds only: comparisons are on the seeds of their own experiment.
            for row in part.with_all_seeds().rows:
                runs = tuple(run for run in row.runs if run.id in used)
                if runs:
                    rows.append(replace(row, runs=runs))
            parts.append(replace(part, rows=tuple(rows)))
        key = tuple(part.rows for part in parts)
        if key not in self._notes:
            self._notes[key] = section_notes(parts, data.by_id)
        return self._notes[key]

    def write(self, entries: Mapping[str, Any], *, keep: bool = False) -> None:
        """Write ``sources.json``, with the commit of the present code.

        Args:
            entries: Entries by output name.
            keep: Keep the recorded entries of other outputs.
        """
        outputs = {**(self._before if keep else {}), **entries}
        record = {"commit": _commit(), "outputs": outputs}
        text = json.dumps(record, indent=2, sort_keys=True)
        write_bytes(self.out / SOURCES, f"{text}\n".encode(), readable=True)

    def _hashed(self, data: Collected, places: Iterable[tuple[str, str]]) -> dict[str, str]:
        hashes: dict[str, str] = {}
        for run, name in sorted(places):
            known = self._hash(data.by_id[run].folder / name)
            # Files may be missing: an archived run has no config.yaml of its own.
            if known:
                hashes[f"{run}/{name}"] = known
        return hashes

    def _hash(self, path: Path) -> str | None:
        if path not in self._hashes:
            known = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
            self._hashes[path] = known
        return self._hashes[path]

    def _state(self, data: Collected) -> str:
        """Hash of the code, the look, and all runs and samples that a builder may choose from."""
        # Includes runs and samples that the figure did not use: it could choose them now.
        runs = []
        for part in data.sections:
            for row in part.rows:
                runs += [run.id for run in row.runs if run.id in data.by_id]
        samples = []
        for run in runs:
            folder = data.by_id[run].folder / "diagnostics"
            samples.append(sorted(path.name for path in folder.glob("*")))
        # Captions name the rows that ran under several versions of the code.
        codes = [data.by_id[run].code for run in runs]
        given = [(record.experiment, record.given) for record in data.experiments]
        # All rows of the experiments decide which line style is left for a row.
        styled = [[(row.name, row.method) for row in rows] for rows in data.experiment_rows]
        choice = (data.chosen, data.asked_rows, data.asked, data.common_seeds, styled)
        two = sorted(data.two_results.items())
        state = (data.sections, given, choice, runs, samples, codes, two, self._look, self._code)
        return hashlib.sha256(repr(state).encode()).hexdigest()

    @cached_property
    def _code(self) -> tuple[Any, ...]:
        code: list[Any] = []
        for pattern in CODE:
            for path in sorted(ROOT.glob(pattern)):
                code.append((str(path.relative_to(ROOT)), self._hash(path)))
        for name in LIBRARIES:
            code.append((name, installed_version(name)))
        return tuple(code)


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_bytes())["outputs"])
    except (OSError, ValueError, KeyError, TypeError):
        # The file is absent, damaged or of another version: everything is built again.
        return {}


def _commit() -> str | None:
    """Commit of the present code; None outside of a git checkout."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        result = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return result.stdout.strip()
