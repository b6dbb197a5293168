"""``python -m analysis study``: build the study's page and pictures from its archive; ``--add`` adds runs to it first.

Tracked files are written from the archive alone. Runs of a folder enter it only when their names
are given.
"""

import argparse
import fnmatch
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from rich.console import Console
from rich.markup import escape
from scpo.errors import ConfigError, RecordError
from scpo.progress import counted
from scpo.records import State
from scpo.records.archive_index import is_archive
from scpo.records.files import write_bytes

from analysis.answers.document import FIGURES, page, summary
from analysis.answers.written_blocks import with_claims, with_headline
from analysis.build import builders
from analysis.sources.archive import EMPTY, Archive, locked, merged, read_archive, write_archive
from analysis.sources.collect import Collected, collect
from analysis.sources.rows import MissingRunsError
from analysis.sources.run_records import ExperimentRecord, Run

SCALE = "study"
RUNS, ARCHIVE, PAGE, CLAIMS = (
    Path("runs"),
    Path("docs/study"),
    Path("docs/study.md"),
    Path("REPRODUCTION.md"),
)
README = Path("README.md")
NOT_OF_THE_STUDY = ("demo",)  # its panels and steps are smaller


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "--archive", type=Path, default=ARCHIVE, help=f"its files and pictures (default: {ARCHIVE})"
    )
    parser.add_argument(
        "--page", type=Path, help=f"the page; needed with --archive (default: {PAGE})"
    )
    parser.add_argument(
        "--readme", type=Path, help=f"document with the headline (with {PAGE}: {README})"
    )
    parser.add_argument(
        "--claims", type=Path, help=f"document with the table of claims (with {PAGE}: {CLAIMS})"
    )
    parser.add_argument(
        "--add",
        metavar="PATTERN",
        action="append",
        default=[],
        help="add finished runs whose id or experiment matches, e.g. main_table or '*-scpo-*'; may be repeated",
    )
    parser.add_argument(
        "--runs",
        type=Path,
        action="append",
        help="where to look for them: run folders or archives (default: runs)",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="show what would be added and write nothing"
    )
    parser.add_argument(
        "--allow-uncommitted",
        action="store_true",
        help="add runs of code with uncommitted changes, too",
    )
    parser.add_argument("--create", action="store_true", help="make the archive if there is none")


def run(options: argparse.Namespace, console: Console) -> int:
    """Add the runs that were named, then draw and write; 0 when there is a page.

    Raises:
        ConfigError: Options that do not fit together, or a pattern without a run.
        RecordError: There is no archive, some of its runs are damaged, or a source cannot be read.
    """
    _check_options(options)
    if options.add:
        if options.dry_run:
            _add(options, console)
            return 0
        with locked(options.archive):
            _add(options, console)
    _refuse_damaged(options.archive)
    whole = collect(options.archive)
    data = whole.at_scale(SCALE)
    target = options.page or PAGE
    figures = _draw(data, options.archive)
    write_bytes(target, page(data, figures).encode(), readable=True)
    if document := options.claims or (CLAIMS if target == PAGE else None):
        write_bytes(document, with_claims(document.read_text(), whole).encode(), readable=True)
    if document := options.readme or (README if target == PAGE else None):
        write_bytes(document, with_headline(document.read_text(), data).encode(), readable=True)
    console.print(
        f"{counted(len(data.by_id), 'run')} in {escape(str(options.archive))}; page: "
        f"{escape(str(target))}"
    )
    console.print(summary(data), markup=False)
    return 0


def _check_options(options: argparse.Namespace) -> None:
    if options.archive != ARCHIVE and options.page is None and not options.dry_run:
        raise ConfigError(
            f"--archive {options.archive} without --page: {PAGE} is written from {ARCHIVE} only. "
            f"Name another page"
        )
    unused = [
        name
        for name in ("runs", "dry_run", "allow_uncommitted", "create")
        if getattr(options, name)
    ]
    if unused and not options.add:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
        raise ConfigError(
            f"{words} without --add: name the runs to add, e.g. --add main_table; --add '*' for all"
        )
    if not is_archive(options.archive) and not options.create:
        raise RecordError(
            f"there is no archive in {options.archive}. Correct --archive, or make it from "
            f"finished runs: python -m analysis study --archive {options.archive} --create --add "
            f"'*'"
        )


def _refuse_damaged(folder: Path) -> None:
    """A page without the damaged runs would be another study."""
    archive = read_archive(folder)
    if archive.problems:
        first = archive.problems[0]
        more = (
            f" (and {counted(len(archive.problems) - 1, 'more problem')})"
            if archive.problems[1:]
            else ""
        )
        raise RecordError(
            f"{folder} is damaged, nothing was written: {first.path}: {first.reason}{more}"
        )


@dataclass(frozen=True)
class _Addition:
    """What ``--add`` does: runs that are new, runs that take a damaged one's place, runs that are there already."""

    new: tuple[Run, ...]
    repaired: tuple[Run, ...]
    present: tuple[Run, ...]
    records: tuple[ExperimentRecord, ...]

    @property
    def written(self) -> tuple[Run, ...]:
        """The runs that the archive did not have."""
        return (*self.new, *self.repaired)


def _add(options: argparse.Namespace, console: Console) -> None:
    """Add the finished runs that match to the archive.

    Raises:
        ConfigError: No run matches, one ran uncommitted code, or one is another run than the
            archive has in its place.
        RecordError: What is damaged in the archive is not repaired by what is added: it would
            shrink.
    """
    folders = options.runs or [RUNS]
    if missing := [str(folder) for folder in folders if not folder.is_dir()]:
        raise RecordError(
            f"no runs: there is no folder {', '.join(missing)}; make some with `make study-quick`"
        )
    found = collect(folders)
    archive = read_archive(options.archive) if is_archive(options.archive) else EMPTY
    addition = _matching(found, options.add, archive)
    _tell(console, addition)
    for problem in found.problems:
        console.print(f"[yellow]left out[/] {escape(problem.path)}: {escape(problem.reason)}")
    _refuse(addition, archive, allow_uncommitted=options.allow_uncommitted)
    if options.dry_run:
        console.print("Nothing was written (--dry-run).")
        return
    # The added runs come last: one that is in the archive too is there because its copy is damaged.
    runs = archive.runs | {run.id: run for run in addition.written}
    logged = found.metrics[found.metrics["run"].isin([run.id for run in addition.written])]
    metrics = pd.concat([archive.metrics, logged.astype({"run": str, "metric": str})])
    write_archive(
        runs.values(), metrics, (*archive.experiments, *addition.records), options.archive
    )


def _matching(found: Collected, patterns: Iterable[str], archive: Archive) -> _Addition:
    """The study's finished runs whose id or experiment matches, by what becomes of them."""
    records = [record for record in found.experiments if _of_the_study(record)]
    asked: dict[str, set[str]] = {}
    for record in records:
        for run_id in members(record):
            asked.setdefault(run_id, {run_id}).add(record.experiment)
    finished = [
        run for run in found.by_id.values() if run.state == State.DONE and run.head.scale == SCALE
    ]
    known = [run for run in finished if run.id in asked]
    archived = [*archive.runs, *(record.experiment for record in archive.experiments)]
    chosen: dict[str, Run] = {}
    for pattern in patterns:
        matching = [run for run in known if fnmatch.filter(asked[run.id], pattern)]
        if not matching and not fnmatch.filter(archived, pattern):
            names = ", ".join(sorted({record.experiment for record in records})) or "none"
            raise ConfigError(
                f"no finished run of an experiment at scale={SCALE} matches {pattern!r}; "
                f"experiments there: {names}. "
                "Make some with `make study-quick`"
            )
        chosen |= {run.id: run for run in matching}
    whole = archive.runs.keys() - set(archive.damaged)
    return _Addition(
        new=tuple(
            run for run in chosen.values() if run.id not in {*archive.runs, *archive.damaged}
        ),
        repaired=tuple(run for run in chosen.values() if run.id in archive.damaged),
        present=tuple(run for run in chosen.values() if run.id in whole),
        records=tuple(record for record in records if members(record) & chosen.keys()),
    )


def _refuse(addition: _Addition, archive: Archive, *, allow_uncommitted: bool) -> None:
    uncommitted = [run.id for run in addition.written if run.dirty or run.commit is None]
    if uncommitted and not allow_uncommitted:
        raise ConfigError(
            f"{counted(len(uncommitted), 'run')} of code that is in no commit: "
            f"{', '.join(uncommitted)}. "
            "Run them again from a clean checkout, name others, or add --allow-uncommitted"
        )
    planned = set().union(
        *(members(record) for record in merged((*archive.experiments, *addition.records)))
    )
    if replacing := [run.id for run in addition.written if run.id not in planned]:
        raise ConfigError(
            f"{', '.join(replacing)}: the archive has another run of the same row and seed, and "
            f"never loses one. Their "
            "settings differ: make another archive (--archive, --create)"
        )
    lost = set(archive.damaged) - {run.id for run in addition.repaired}
    if lost or archive.index_problems:
        reasons = [*archive.index_problems, *archive.problems]
        raise RecordError(
            f"nothing was added, the archive is damaged: {reasons[0].path}: {reasons[0].reason}"
        )


def _tell(console: Console, addition: _Addition) -> None:
    """Print a line for each row of an experiment that gets runs."""
    places: dict[str, str] = {}
    for record in addition.records:
        for row in record.rows:
            for planned in row.runs:
                places.setdefault(planned.id, f"{record.experiment}, {row.name}, {planned.env}")
    for verb, runs in (("add", addition.new), ("repair", addition.repaired)):
        seeds: dict[str, list[int]] = {}
        for run in runs:
            seeds.setdefault(places[run.id], []).append(run.head.seed)
        for place, of in seeds.items():
            console.print(f"{verb} {place}: seeds {', '.join(map(str, sorted(of)))}", markup=False)
    codes = sorted({str(run.commit)[:7] for run in addition.written})
    console.print(
        f"{counted(len(addition.new), 'run')} to add, {len(addition.repaired)} to repair, "
        f"{len(addition.present)} in the archive already; code: {', '.join(codes) or 'none'}",
        markup=False,
    )


def members(record: ExperimentRecord) -> set[str]:
    """Ids of the runs that an experiment planned."""
    return {run.id for row in record.rows for run in row.runs}


def _of_the_study(record: ExperimentRecord) -> bool:
    """An experiment of this scale as its file says it, without other overrides."""
    plain = set(record.overrides) <= {f"scale={SCALE}"}
    return record.scale == SCALE and plain and record.experiment not in NOT_OF_THE_STUDY


def _draw(data: Collected, folder: Path) -> list[str]:
    """The page's pictures; those that the runs do not allow are left out."""
    mpl.use("agg")
    known, drawn = builders(), []
    for name in FIGURES:
        path = folder / f"{name}.png"
        try:
            picture = known[name](data).files()["png"]
        except MissingRunsError:
            path.unlink(missing_ok=True)
            continue
        write_bytes(path, picture, readable=True)
        drawn.append(name)
    return drawn
