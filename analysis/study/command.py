"""``python -m analysis study``: write the study's page and pictures from the archive of its runs.

Tracked files are written from the archive alone, so they never depend on what happens to be in a
folder of runs. Runs of a folder enter the archive only when ``--add`` names them.
"""

import argparse
import fnmatch
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import pandas as pd
from rich.console import Console
from rich.markup import escape

from analysis.build import builders
from analysis.paper.claims import ELSEWHERE, NOT_RUN, Claim, conclusion
from analysis.paper.paper_claims import claims
from analysis.rendering.table import difference
from analysis.sources.archive import EMPTY, Archive, locked, merged, read_archive, write_archive
from analysis.sources.collect import Collected, collect
from analysis.sources.rows import MissingRunsError
from analysis.sources.run_records import ExperimentRecord, Run
from analysis.stats.comparisons import named_comparisons
from analysis.study.page import FIGURES, page, summary
from analysis.study.questions import headline, headlined
from scpo.errors import ConfigError, RecordError
from scpo.progress import counted
from scpo.records.archive_index import is_archive
from scpo.records.files import write_bytes
from scpo.records.status import State

SCALE = "study"
RUNS = Path("runs")
ARCHIVE = Path("docs/study")
PAGE = Path("docs/study.md")
CLAIMS = Path("REPRODUCTION.md")
README = Path("README.md")
NOT_OF_THE_STUDY = ("demo",)  # its panels and steps are smaller
# Markers in other documents, between which the command writes.
CLAIMS_MARKERS = (
    "<!-- claims: written by `python -m analysis study` -->",
    "<!-- end of claims -->",
)
HEADLINE_MARKERS = (
    "<!-- headline: written by `python -m analysis study` -->",
    "<!-- end of headline -->",
)
CLAIMS_HEAD = (
    "| claim (paper) | place | printed | command | paper scale | study scale |\n"
    "|---|---|---|---|---|---|\n"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--archive",
        type=Path,
        default=ARCHIVE,
        help=f"its files and pictures (default: {ARCHIVE})",
    )
    parser.add_argument(
        "--page",
        type=Path,
        help=f"the page; needed with --archive (default: {PAGE})",
    )
    parser.add_argument(
        "--readme",
        type=Path,
        help=f"document with the headline (with {PAGE}: {README})",
    )
    parser.add_argument(
        "--claims",
        type=Path,
        help=f"document with the table of claims (with {PAGE}: {CLAIMS})",
    )
    parser.add_argument(
        "--add",
        metavar="PATTERN",
        action="append",
        default=[],
        help="add finished runs whose id or experiment matches, e.g. main_table or '*-scpo-*'; "
        "may be repeated",
    )
    parser.add_argument(
        "--runs",
        type=Path,
        action="append",
        help="where to look for them: run folders or archives (default: runs)",
    )
    parser.add_argument(
        "--dry-run",
        action="store_true",
        help="show what would be added and write nothing",
    )
    parser.add_argument(
        "--allow-uncommitted",
        action="store_true",
        help="add runs of code with uncommitted changes, too",
    )
    parser.add_argument(
        "--create",
        action="store_true",
        help="make the archive if there is none",
    )


def run(options: argparse.Namespace, console: Console) -> int:
    """Add the runs that were named, then draw and write the page.

    Returns:
        The exit code 0.

    Raises:
        ConfigError: Options contradict each other, or a pattern matches no run.
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
    everything = collect(options.archive)
    data = everything.at_scale(SCALE)
    figures = _draw(data, options.archive)
    target = options.page or PAGE
    write_bytes(target, page(data, figures).encode(), readable=True)
    # The tracked documents belong to the tracked page: another page leaves them alone.
    if document := options.claims or (CLAIMS if target == PAGE else None):
        text = with_claims(document.read_text(), everything)
        write_bytes(document, text.encode(), readable=True)
    if document := options.readme or (README if target == PAGE else None):
        text = with_headline(document.read_text(), data)
        write_bytes(document, text.encode(), readable=True)
    runs = counted(len(data.by_id), "run")
    console.print(f"{runs} in {escape(str(options.archive))}; page: {escape(str(target))}")
    console.print(summary(data), markup=False)
    return 0


def _check_options(options: argparse.Namespace) -> None:
    if options.archive != ARCHIVE and options.page is None and not options.dry_run:
        raise ConfigError(
            f"--archive {options.archive} without --page: {PAGE} is written from {ARCHIVE} only. "
            "Name another page"
        )
    needs_add = ("runs", "dry_run", "allow_uncommitted", "create")
    unused = [name for name in needs_add if getattr(options, name)]
    if unused and not options.add:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
        raise ConfigError(
            f"{words} without --add: name the runs to add, e.g. --add main_table; --add '*' for all"
        )
    if not is_archive(options.archive) and not options.create:
        raise RecordError(
            f"there is no archive in {options.archive}. Correct --archive, or make it from "
            f"finished runs: python -m analysis study --archive {options.archive} --create "
            "--add '*'"
        )


def _refuse_damaged(folder: Path) -> None:
    """Raise if a run is damaged: a page without it would be another study."""
    problems = read_archive(folder).problems
    if not problems:
        return
    first = problems[0]
    more = ""
    if len(problems) > 1:
        more = f" (and {counted(len(problems) - 1, 'more problem')})"
    raise RecordError(
        f"{folder} is damaged, nothing was written: {first.path}: {first.reason}{more}"
    )


def _draw(data: Collected, folder: Path) -> list[str]:
    """Draw the page's pictures; return the names of those that the runs allow."""
    mpl.use("agg")
    known = builders()
    drawn = []
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


# Adding runs


@dataclass(frozen=True)
class _Addition:
    """What ``--add`` does.

    Attributes:
        new: Runs that the archive does not have.
        repaired: Runs that replace a damaged copy.
        present: Runs that the archive has already.
        records: Experiments of all of them.
    """

    new: tuple[Run, ...]
    repaired: tuple[Run, ...]
    present: tuple[Run, ...]
    records: tuple[ExperimentRecord, ...]

    @property
    def written(self) -> tuple[Run, ...]:
        """Runs that are written."""
        return (*self.new, *self.repaired)


def _add(options: argparse.Namespace, console: Console) -> None:
    """Add the finished runs that match to the archive.

    Raises:
        ConfigError: No run matches, one ran uncommitted code, or the archive has another run of the
            same row and seed.
        RecordError: The archive is damaged and the added runs do not repair it: it would shrink.
    """
    folders = options.runs or [RUNS]
    missing = [str(folder) for folder in folders if not folder.is_dir()]
    if missing:
        raise RecordError(
            f"no runs: there is no folder {', '.join(missing)}; make some with `make study-quick`"
        )
    data = collect(folders)
    archive = read_archive(options.archive) if is_archive(options.archive) else EMPTY
    addition = _matching(data, options.add, archive)
    _print_addition(console, addition)
    for problem in data.problems:
        console.print(f"[yellow]left out[/] {escape(problem.path)}: {escape(problem.reason)}")
    _check_addition(addition, archive, allow_uncommitted=options.allow_uncommitted)
    if options.dry_run:
        console.print("Nothing was written (--dry-run).")
        return
    # Added runs come last: one that is in the archive too replaces a damaged copy.
    added = {run.id: run for run in addition.written}
    runs = archive.runs | added
    logged = data.metrics[data.metrics["run"].isin(list(added))]
    logged = logged.astype({"run": str, "metric": str})
    metrics = pd.concat([archive.metrics, logged])
    records = (*archive.experiments, *addition.records)
    write_archive(runs.values(), metrics, records, options.archive)


def _matching(data: Collected, patterns: Iterable[str], archive: Archive) -> _Addition:
    """Find the study's finished runs whose id or experiment matches a pattern."""
    records = [record for record in data.experiments if _is_of_the_study(record)]
    # Run id -> the names that a pattern may match.
    names: dict[str, set[str]] = {}
    for record in records:
        for run_id in members(record):
            names.setdefault(run_id, {run_id}).add(record.experiment)
    candidates = []
    for run in data.by_id.values():
        if run.id in names and run.state == State.DONE and run.head.scale == SCALE:
            candidates.append(run)
    archived = [*archive.runs, *(record.experiment for record in archive.experiments)]
    chosen: dict[str, Run] = {}
    for pattern in patterns:
        matching = [run for run in candidates if fnmatch.filter(names[run.id], pattern)]
        if not matching and not fnmatch.filter(archived, pattern):
            known = ", ".join(sorted({record.experiment for record in records})) or "none"
            raise ConfigError(
                f"no finished run of an experiment at scale={SCALE} matches {pattern!r}; "
                f"experiments there: {known}. Make some with `make study-quick`"
            )
        chosen |= {run.id: run for run in matching}
    damaged = set(archive.damaged)
    new, repaired, present = [], [], []
    for run in chosen.values():
        if run.id in damaged:
            repaired.append(run)
        elif run.id in archive.runs:
            present.append(run)
        else:
            new.append(run)
    return _Addition(
        new=tuple(new),
        repaired=tuple(repaired),
        present=tuple(present),
        records=tuple(record for record in records if members(record) & chosen.keys()),
    )


def members(record: ExperimentRecord) -> set[str]:
    """Ids of the runs that an experiment planned."""
    return {run.id for row in record.rows for run in row.runs}


def _is_of_the_study(record: ExperimentRecord) -> bool:
    """Whether it is an experiment of this scale without other overrides."""
    plain = set(record.overrides) <= {f"scale={SCALE}"}
    return record.scale == SCALE and plain and record.experiment not in NOT_OF_THE_STUDY


def _check_addition(addition: _Addition, archive: Archive, *, allow_uncommitted: bool) -> None:
    uncommitted = [run.id for run in addition.written if run.dirty or run.commit is None]
    if uncommitted and not allow_uncommitted:
        raise ConfigError(
            f"{counted(len(uncommitted), 'run')} of code that is in no commit: "
            f"{', '.join(uncommitted)}. Run them again from a clean checkout, name others, "
            "or add --allow-uncommitted"
        )
    planned: set[str] = set()
    for record in merged((*archive.experiments, *addition.records)):
        planned |= members(record)
    replacing = [run.id for run in addition.written if run.id not in planned]
    if replacing:
        raise ConfigError(
            f"{', '.join(replacing)}: the archive has another run of the same row and seed, and "
            "never loses one. Their settings differ: make another archive (--archive, --create)"
        )
    lost = set(archive.damaged) - {run.id for run in addition.repaired}
    if lost or archive.index_problems:
        first = [*archive.index_problems, *archive.problems][0]
        raise RecordError(
            f"nothing was added, the archive is damaged: {first.path}: {first.reason}"
        )


def _print_addition(console: Console, addition: _Addition) -> None:
    """Print a line for each row of an experiment that gets runs, and their number."""
    rows: dict[str, str] = {}
    for record in addition.records:
        for row in record.rows:
            for planned in row.runs:
                rows.setdefault(planned.id, f"{record.experiment}, {row.name}, {planned.env}")
    for verb, runs in (("add", addition.new), ("repair", addition.repaired)):
        seeds: dict[str, list[int]] = {}
        for run in runs:
            seeds.setdefault(rows[run.id], []).append(run.head.seed)
        for row_name, own in seeds.items():
            numbers = ", ".join(map(str, sorted(own)))
            console.print(f"{verb} {row_name}: seeds {numbers}", markup=False)
    codes = sorted({str(run.commit)[:7] for run in addition.written})
    console.print(
        f"{counted(len(addition.new), 'run')} to add, {len(addition.repaired)} to repair, "
        f"{len(addition.present)} in the archive already; code: {', '.join(codes) or 'none'}",
        markup=False,
    )


# Blocks of other documents


def with_headline(text: str, data: Collected) -> str:
    """Rewrite the study's first answer in a document, between its markers.

    Args:
        text: The document; without markers it is returned as it is.
        data: Data of the study's scale.
    """
    return _between(text, HEADLINE_MARKERS, " ".join(_headline(data)))


def with_claims(text: str, data: Collected) -> str:
    """Rewrite the table of claims in a document, between its markers.

    Args:
        text: The document; without markers it is returned as it is.
        data: Data of every scale.
    """
    lines = "\n".join(_claim_line(claim, data) for claim in claims())
    return _between(text, CLAIMS_MARKERS, CLAIMS_HEAD + lines)


def _between(text: str, markers: tuple[str, str], content: str) -> str:
    begin, end = markers
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        return text
    return f"{before}{begin}\n{content}\n{end}{after}"


def _headline(data: Collected) -> Iterator[str]:
    """Yield two sentences: the page's headline, and the runs behind it."""
    comparisons = named_comparisons(data)
    yield f"**[The laptop study](docs/study.md): {headline(comparisons)}**"
    planned: set[str] = set()
    for record in data.experiments:
        if record.scale in data.scales:
            planned |= members(record)
    known = [data.by_id[run_id] for run_id in planned if run_id in data.by_id]
    done = sum(run.state == State.DONE for run in known)
    runs = str(done)
    if done < len(planned):
        runs += f" of {len(planned)} planned"
    counts = dict.fromkeys(comparison.pairs.count for comparison in headlined(comparisons))
    pairs = f", {', '.join(counts)} pairs of seeds" if counts else ""
    yield (
        f"{runs} runs of a small policy that chooses among listed commands{pairs}: it says nothing "
        "about the size of effects in language models."
    )


def _claim_line(claim: Claim, data: Collected) -> str:
    cells = (
        claim.text,
        claim.place,
        claim.printed,
        f"`{claim.command(claim.cheapest_scale)}`",
        _conclusion(claim, data, "paper"),
        _conclusion(claim, data, "study"),
    )
    return f"| {' | '.join(cells)} |"


def _conclusion(claim: Claim, data: Collected, scale: str) -> str:
    """Conclusion at a scale, with the number behind it."""
    if not claim.tested_at(scale):
        return ELSEWHERE
    measured = claim.summary(data.at_scale(scale))
    verdict = conclusion(claim, measured, scale)
    if verdict == NOT_RUN:
        return verdict
    shown = difference(measured, claim.factor, claim.digits).text
    return f"{verdict}: {shown}, {measured.n} seeds"
