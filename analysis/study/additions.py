"""Add finished runs to an archive: options, checks, and the addition itself."""

import argparse
import fnmatch
import shlex
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from rich.console import Console
from rich.markup import escape

from analysis.sources.archive import EMPTY, Archive, read_archive
from analysis.sources.archive_writing import locked, merged, write_archive
from analysis.sources.collect import collect
from analysis.sources.collected import Collected
from analysis.sources.named_late import has_pair
from analysis.sources.run_records import ExperimentRecord, Key, Run, is_implied
from analysis.sources.two_results import Columns, differ, listed, place_of, values_of
from analysis.stats.study_rows import is_of_meaning
from analysis.study.addition_checks import (
    refuse_mixed_rows,
    refuse_two_measures,
    refuse_unnamed,
)
from analysis.study.kept_names import kept_names, newly_named
from scpo.errors import ConfigError, RecordError
from scpo.progress import counted
from scpo.records.archive_index import INDEX, is_archive, lost_index, unreadable
from scpo.records.manifest import PrimaryComparisons
from scpo.records.status import State

SCALE = "study"
RUNS = Path("runs")

# What to do with runs of an experiment that was called with overrides.
OVERRIDES_IN_A_FILE = (
    "An archive takes only experiments that ran without overrides besides "
    f"scale={SCALE}, because it knows rows by their experiment. Write the override into the rows "
    "of an experiment of its own (`python -m scpo.new experiment NAME`), run that and add it; "
    "finished runs of the same settings are not run again"
)

# Experiments whose runs are not part of the study: the demo has smaller panels and fewer steps.
NOT_OF_THE_STUDY = ("demo",)


def add_archive_options(parser: argparse.ArgumentParser, archive: Path, page: Path) -> None:
    """Add the options that name an archive, its page and runs to add.

    Args:
        parser: Parser of the command.
        archive: The command's own archive, the default.
        page: The page that is written from it.
    """
    parser.add_argument(
        "--archive",
        type=Path,
        default=archive,
        help=f"its files and pictures (default: {archive})",
    )
    parser.add_argument(
        "--page",
        type=Path,
        help=f"the page; needed with --archive (default: {page})",
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
        help="create the archive if it does not exist",
    )


def check_options(options: argparse.Namespace, archive: Path, page: Path) -> None:
    """Check that the options agree with each other and with the archive.

    Args:
        options: Options of the command line.
        archive: The command's own archive.
        page: The tracked page, which is written from that archive only.

    Raises:
        ConfigError: Another archive is named without a page, or an option that needs ``--add`` is
            given without it.
        RecordError: The archive does not exist, and ``--create`` is not given.
    """
    if options.archive != archive and options.page is None and not options.dry_run:
        raise ConfigError(
            f"--archive {options.archive} without --page: {page} is written from {archive} only. "
            "Name another page"
        )

    needs_add = ("runs", "dry_run", "allow_uncommitted", "create")
    unused = [name for name in needs_add if getattr(options, name)]
    if unused and not options.add:
        words = ", ".join(f"--{name.replace('_', '-')}" for name in unused)
        raise ConfigError(
            f"{words} without --add: name the runs to add, e.g. --add main_table; --add '*' for all"
        )
    if lost_index(options.archive):
        raise unreadable(options.archive, f"{INDEX} is missing")
    if not is_archive(options.archive) and not options.create:
        again = ["python", "-m", "analysis", options.command, "--archive", str(options.archive)]
        if options.page is not None:
            again += ["--page", str(options.page)]
        for folder in options.runs or ():
            again += ["--runs", str(folder)]
        again.append("--create")
        for pattern in options.add or ["*"]:
            again += ["--add", pattern]
        raise RecordError(
            f"there is no archive in {options.archive}. Correct --archive, or make it from "
            f"finished runs: {shlex.join(again)}"
        )


def add_runs(options: argparse.Namespace, console: Console, *, meaning: bool = False) -> bool:
    """Add the runs that ``--add`` names; returns False if nothing may be written (``--dry-run``).

    ``meaning``: add runs of the study of reworded observations instead of all others.

    Raises:
        ConfigError: No run matches, one ran uncommitted code, the archive has another run of the
            same row and seed, or runs would be pooled that do not belong together.
        RecordError: A source cannot be read, or the archive is damaged and the added runs do not
            repair it.
    """
    if options.add and options.dry_run:
        _add(options, console, meaning)
        return False
    if options.add:
        with locked(options.archive):
            _add(options, console, meaning)
    return True


def refuse_damaged(folder: Path) -> None:
    """Raise RecordError for a damaged archive: a page without some runs would be another study."""
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


@dataclass(frozen=True)
class _Addition:
    """Runs that ``--add`` finds.

    Attributes:
        new: Runs that the archive does not have.
        repaired: Runs that replace a damaged copy.
        present: Runs that the archive has already.
        records: Experiments of all of them, with the comparisons that are named in the archive.
        sources: The same as their sources have them.
        left_out: Texts on matching runs of experiments that were called with overrides.
    """

    new: tuple[Run, ...]
    repaired: tuple[Run, ...]
    present: tuple[Run, ...]
    records: tuple[ExperimentRecord, ...]
    sources: tuple[ExperimentRecord, ...]
    left_out: tuple[str, ...] = ()

    @property
    def written(self) -> tuple[Run, ...]:
        """Runs to write into the archive."""
        return (*self.new, *self.repaired)


def _add(options: argparse.Namespace, console: Console, meaning: bool) -> None:
    """Add the finished runs that match to the archive.

    Raises:
        ConfigError: No run matches, one ran uncommitted code, the archive has another run of the
            same row and seed, or runs would be pooled that do not belong together.
        RecordError: The archive is damaged, and the added runs do not repair it.
    """
    folders = options.runs or [RUNS]
    missing = [str(folder) for folder in folders if not folder.is_dir()]
    if missing:
        remedy = "correct --runs" if options.runs else "make some with `make study-quick`"
        raise RecordError(f"no runs: there is no folder {', '.join(missing)}; {remedy}")

    data = collect(folders)
    archive = read_archive(options.archive) if is_archive(options.archive) else EMPTY
    records = [record for record in data.experiments if _belongs(record, meaning)]
    overridden = [record for record in data.experiments if _has_overrides(record, meaning)]
    addition = _matching(data, records, overridden, options.add, archive)
    _print_addition(console, addition, archive)
    _print_new_labels(console, addition, archive)
    _print_other_results(console, addition, data, archive)
    for line in newly_named(addition.records, archive.experiments, archive.runs):
        console.print(f"[yellow]note[/] {escape(line)}")
    if addition.left_out:
        console.print(
            f"[yellow]left out[/] {escape('; '.join(addition.left_out))}. {OVERRIDES_IN_A_FILE}."
        )
    for problem in data.problems:
        console.print(f"[yellow]left out[/] {escape(problem.path)}: {escape(problem.reason)}")
    _check_addition(addition, archive, allow_uncommitted=options.allow_uncommitted)
    if options.dry_run:
        console.print("Nothing was written (--dry-run).")
        return

    # Added runs come second, because a repaired one must replace its damaged copy.
    added = {run.id: run for run in addition.written}
    runs = archive.runs | added
    # Only of the chosen runs, because the folder may have others.
    logged = data.metrics[data.metrics["run"].isin(list(added))]
    logged = logged.astype({"run": str, "metric": str})
    metrics = pd.concat([archive.metrics, logged])
    experiments = (*archive.experiments, *addition.records)
    write_archive(runs.values(), metrics, experiments, options.archive)


def _matching(
    data: Collected,
    records: Sequence[ExperimentRecord],
    overridden: Sequence[ExperimentRecord],
    patterns: Sequence[str],
    archive: Archive,
) -> _Addition:
    """Find the finished runs of these experiments whose id or experiment matches a pattern.

    Args:
        data: The collected runs.
        records: The experiments.
        overridden: Experiments that were called with overrides. Their runs are left out, and named.
        patterns: Patterns of run ids or experiments.
        archive: The archive to which the runs are added.

    Raises:
        ConfigError: A pattern matches no run, or two records of one experiment name their
            comparisons by different measures.
    """
    names = _matchable_names(records, archive)
    candidates = []
    for run in data.by_id.values():
        if run.id in names and run.state == State.DONE and run.head.scale == SCALE:
            candidates.append(run)
    # It is not an error if a pattern matches only runs that are in the archive already.
    archived = [*archive.runs, *(record.experiment for record in archive.experiments)]
    chosen: dict[str, Run] = {}
    for pattern in patterns:
        matching = [run for run in candidates if fnmatch.filter(names[run.id], pattern)]
        if not matching and not fnmatch.filter(archived, pattern):
            if left_out := _left_out(data, overridden, [pattern], names.keys()):
                raise ConfigError(
                    f"{pattern!r} matches only {'; '.join(left_out)}. {OVERRIDES_IN_A_FILE}"
                )
            raise _no_match(pattern, records, overridden)
        chosen |= {run.id: run for run in matching}

    damaged = set(archive.damaged)
    new = []
    repaired = []
    present = []
    for run in chosen.values():
        if run.id in damaged:
            repaired.append(run)
        elif run.id in archive.runs:
            present.append(run)
        else:
            new.append(run)

    added = [record for record in records if record.run_ids & chosen.keys()]
    refuse_two_measures(added)
    return _Addition(
        new=tuple(new),
        repaired=tuple(repaired),
        present=tuple(present),
        records=kept_names(
            _with_all_names(added),
            archive.experiments,
            archive.runs,
            {run.id for run in new},
            adding=bool(new or repaired),
        ),
        sources=tuple(added),
        left_out=tuple(_left_out(data, overridden, patterns, names.keys())),
    )


def _with_all_names(records: Sequence[ExperimentRecord]) -> list[ExperimentRecord]:
    """Records whose sources name the same comparisons for an experiment.

    Each source may name others, or none. All count, so that the tested family does not depend on
    the order in which the sources are given. What one of them refused is not among the others'
    (``collect``).
    """
    named: dict[Key, PrimaryComparisons] = {}
    for record in records:
        if record.primary is not None:
            known = named.setdefault(record.key, record.primary)
            pairs = list(known.comparisons)
            pairs += [pair for pair in record.primary.comparisons if not has_pair(pairs, pair)]
            named[record.key] = known.model_copy(update={"comparisons": tuple(pairs)})
    completed = []
    for record in records:
        primary = named.get(record.key)
        completed.append(record.model_copy(update={"primary": primary}))
    return completed


def _matchable_names(records: Sequence[ExperimentRecord], archive: Archive) -> dict[str, set[str]]:
    """Run id -> the names that a pattern may match: the id and the run's experiments."""
    names: dict[str, set[str]] = {}
    # A new record of an experiment replaces the archive's: its rows may have other settings now.
    recorded = {record.experiment for record in records}
    older = [record for record in archive.experiments if record.experiment not in recorded]
    for record in (*records, *older):
        for run_id in record.run_ids:
            names.setdefault(run_id, {run_id}).add(record.experiment)
    return names


def _no_match(
    pattern: str, records: Iterable[ExperimentRecord], overridden: Iterable[ExperimentRecord]
) -> ConfigError:
    """The error of a pattern that matches no finished run; it names the experiments."""
    there = {record.experiment for record in records}
    there |= {_called_as(record) for record in overridden}
    known = ", ".join(sorted(there)) or "none"
    return ConfigError(
        f"no finished run of an experiment at scale={SCALE} matches {pattern!r}; "
        f"experiments there: {known}. Make some with `make study-quick`"
    )


def _left_out(
    data: Collected,
    overridden: Iterable[ExperimentRecord],
    patterns: Iterable[str],
    taken: Collection[str],
) -> list[str]:
    """Texts on finished runs that match, but are only of experiments called with overrides.

    Args:
        data: The collected runs.
        overridden: The experiments.
        patterns: Patterns of run ids or experiments.
        taken: Runs that another experiment or the archive plans; these are not left out.
    """
    texts = []
    for record in overridden:
        matching = set()
        for run_id in record.run_ids - set(taken):
            run = data.by_id.get(run_id)
            if run is None or run.state != State.DONE:
                continue
            if any(fnmatch.filter((run_id, record.experiment), pattern) for pattern in patterns):
                matching.add(run_id)
        if matching:
            texts.append(f"{counted(len(matching), 'finished run')} of {_called_as(record)}")
    return texts


def _called_as(record: ExperimentRecord) -> str:
    """An experiment with the overrides of its call, e.g. ``main_table trainer.steps=20``."""
    return " ".join((record.experiment, *record.given))


def refuse_other_study(data: Collected, archive: Path, *, meaning: bool) -> None:
    """Refuse to write a page from an archive of the other study: the page would have no results.

    Raises:
        ConfigError: The archive has experiments, and none of them belongs to this study.
    """
    experiments = [record.experiment for record in data.experiments]
    if experiments and all(is_of_meaning(name) != meaning for name in experiments):
        other = "study" if meaning else "meaning"
        raise ConfigError(
            f"{archive} has no experiment of this page, only {', '.join(sorted(experiments))}; "
            f"nothing was written. `python -m analysis {other}` writes the page of these"
        )


def _belongs(record: ExperimentRecord, meaning: bool) -> bool:
    """True for an experiment of this study, at its scale and without other overrides.

    False for the implied experiment of runs whose record is lost: an archive with the record would
    get a second one of the same runs.
    """
    return _is_of_study(record, meaning) and not _overrides_but_scale(record)


def _has_overrides(record: ExperimentRecord, meaning: bool) -> bool:
    """True for an experiment of this study, at its scale, that was called with overrides."""
    return _is_of_study(record, meaning) and bool(_overrides_but_scale(record))


def _is_of_study(record: ExperimentRecord, meaning: bool) -> bool:
    if is_implied(record.experiment) or record.experiment in NOT_OF_THE_STUDY:
        return False
    return is_of_meaning(record.experiment) == meaning and record.scale == SCALE


def _overrides_but_scale(record: ExperimentRecord) -> set[str]:
    return set(record.overrides) - {f"scale={SCALE}"}


def _check_addition(addition: _Addition, archive: Archive, *, allow_uncommitted: bool) -> None:
    # The page's numbers must be reproducible from a commit.
    uncommitted = [run.id for run in addition.written if run.dirty or run.commit is None]
    if uncommitted and not allow_uncommitted:
        raise ConfigError(
            f"{counted(len(uncommitted), 'run')} of code that is in no commit: "
            f"{', '.join(uncommitted)}. Run them again from a clean checkout, name others, "
            "or add --allow-uncommitted"
        )

    # The same merge as in writing shows which run the archive plans for each row and seed.
    records = merged((*archive.experiments, *addition.records), archive.runs)
    planned = set().union(*(record.run_ids for record in records))
    replacing = [run.id for run in addition.written if run.id not in planned]
    if replacing:
        raise ConfigError(
            f"{', '.join(replacing)}: the archive has another run of the same row and seed, and "
            "never loses one. Their settings differ: make another archive (--archive, --create)"
        )
    runs = archive.runs | {run.id: run for run in addition.written}
    refuse_mixed_rows(records, archive.experiments, runs)
    refuse_unnamed(records, archive.experiments, addition.sources, archive.runs.keys(), runs.keys())
    # Writing drops damaged runs, which would make the damage permanent.
    lost = set(archive.damaged) - {run.id for run in addition.repaired}
    if lost or archive.index_problems:
        first = [*archive.index_problems, *archive.problems][0]
        raise RecordError(
            f"nothing was added, the archive is damaged: {first.path}: {first.reason}"
        )


def _print_addition(console: Console, addition: _Addition, archive: Archive) -> None:
    """Print a line for each row that gets runs, and the number of runs."""
    rows: dict[str, str] = {}
    # If a folder has lost its record, the archive's experiments may plan its runs.
    for record in (*addition.records, *archive.experiments):
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

    # The commits are printed, so that runs of different code are noticed before they are pooled.
    codes = sorted({str(run.commit)[:7] for run in addition.written})
    console.print(
        f"{counted(len(addition.new), 'run')} to add, {len(addition.repaired)} to repair, "
        f"{len(addition.present)} in the archive already; code: {', '.join(codes) or 'none'}",
        markup=False,
    )


def _print_new_labels(console: Console, addition: _Addition, archive: Archive) -> None:
    """Print a note on each row of the archive whose label the added records change."""
    labels: dict[tuple[str, str], str] = {}
    for record in archive.experiments:
        labels |= {(record.experiment, row.name): row.label for row in record.rows}
    for record in addition.records:
        for row in record.rows:
            before = labels.get((record.experiment, row.name), row.label)
            if before != row.label:
                console.print(
                    f"note: {record.experiment}, {row.name}: its label is now {row.label!r}, as in "
                    f"the added record; it was {before!r}",
                    markup=False,
                )


def _print_other_results(
    console: Console, addition: _Addition, data: Collected, archive: Archive
) -> None:
    """Print a note on the runs of the archive that have other numbers in the added folders."""
    places: dict[str, list[str]] = {}
    mine, kept = _Numbers(data.metrics), _Numbers(archive.metrics)
    for run in addition.present:
        if differ(values_of(kept.of(run.id)), values_of(mine.of(run.id))):
            places.setdefault(place_of(run), []).append(run.id)
    for place, ids in places.items():
        which = counted(len(ids), "run")
        console.print(
            f"[yellow]note[/] {escape(place)}: {which} with other numbers than in the archive, "
            f"which keeps its own: {escape(listed(ids))}. Add them to another archive (--archive, "
            "--create)"
        )


class _Numbers:
    """Numbers of single runs in a long table."""

    def __init__(self, table: pd.DataFrame) -> None:
        self._table = table
        self._places = table.groupby("run", observed=True).indices

    def of(self, run: str) -> Columns:
        rows = self._table.iloc[self._places.get(run, [])]
        return {name: rows[name].tolist() for name in ("metric", "step", "value")}
