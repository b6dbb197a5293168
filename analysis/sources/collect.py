"""Collect runs of all sources into one long table (run, step, metric, value) and a table of runs.

Sources are folders of run folders, archives and W&B projects.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.sources.archive import read_archive
from analysis.sources.archive_writing import merged
from analysis.sources.collected import Collected, ids_left_out
from analysis.sources.configurations import configuration_of
from analysis.sources.named_late import Pair, has_pair, only_rows, refused, refusing
from analysis.sources.near_misses import is_offline
from analysis.sources.rows import ROLLOUTS, Section
from analysis.sources.run_records import (
    OFFLINE,
    ExperimentRecord,
    Problem,
    Run,
    noted,
    read_experiments,
    read_numbers,
    read_runs,
)
from analysis.sources.sections import sections
from analysis.sources.series import Series, make_series
from analysis.sources.two_results import Copies
from analysis.sources.unrecorded import without_record
from analysis.sources.wandb_project import Settings, read_project, run_of
from scpo.errors import RecordError
from scpo.records.archive_index import INDEX, METRICS, RUNS, is_archive, lost_index
from scpo.records.files import check_readable
from scpo.records.status import State, state_of

NO_INDEX = (
    f"has {METRICS} or {RUNS}, and no {INDEX} to check them by: a folder of built tables, or an "
    "archive that lost it. Name the folder of the runs, or restore the file"
)
RUN_COLUMNS = (
    "id",
    "rows",
    "env",
    "model",
    "method",
    "seed",
    "state",
    "scale",
    "setting",
    "last_step",
    "commit",
    "panel_hashes",
    "finished",
)
COLUMN_TYPES = {
    "step": "int64",
    "value": "float64",
    "run": "category",
    "metric": "category",
}


def collect(
    folders: Path | Iterable[Path],
    projects: Iterable[str] = (),
    settings: Settings | None = None,
) -> Collected:
    """Read every run of the sources; runs and files that cannot be read become ``problems``.

    Args:
        folders: Folders of run folders, or archives.
        projects: W&B projects, ``entity/project``.
        settings: Settings of reading W&B projects, such as the folder of local copies.

    Raises:
        RecordError: A project cannot be read at all.
    """
    sources = [_read_folder(folder) for folder in _listed(folders)]
    sources += [_read_project(name, settings or Settings()) for name in projects]
    found = _joined(sources)
    copies = Copies(found.archived, _logged)
    runs, metrics, damaged = _best_copies(found, copies)
    by_metric = _series_by_run(metrics)

    def rollouts(run: str) -> float | None:
        return by_metric.get(run, {}).get(ROLLOUTS, Series()).mean

    left_out = ids_left_out((*found.problems, *damaged)).keys()
    parts, conflicts = sections(found.experiments, runs, rollouts, left_out)
    return Collected(
        by_id=runs,
        runs=_runs_table(runs, parts),
        metrics=metrics,
        sections=parts,
        problems=(*found.problems, *damaged, *copies.problems(), *conflicts),
        by_metric=by_metric,
        experiments=found.experiments,
        two_results=copies.notes(),
    )


# Sources


@dataclass(frozen=True)
class Found:
    """Content of one source, or of several joined.

    Attributes:
        copies: Run id -> copies of the run, the best one first.
        experiments: Records of experiments.
        problems: Runs and files that could not be read.
        archived: Archive folder -> long table of its undamaged runs.
    """

    copies: Mapping[str, tuple[Run, ...]]
    experiments: tuple[ExperimentRecord, ...]
    problems: tuple[Problem, ...]
    archived: Mapping[Path, pd.DataFrame] = field(default_factory=dict, repr=False)


def _listed(folders: Path | Iterable[Path]) -> Iterable[Path]:
    return [folders] if isinstance(folders, Path) else folders


def _joined(sources: Iterable[Found]) -> Found:
    """Join sources. Of a run's copies, finished ones come first and damaged ones last.

    Among equals, the order of the sources decides; those with other numbers become problems
    (``analysis.sources.two_results``).
    """
    copies: dict[str, list[Run]] = {}
    problems: list[Problem] = []
    archived: dict[Path, pd.DataFrame] = {}
    sources = tuple(sources)
    for source in sources:
        for run_id, known in source.copies.items():
            copies.setdefault(run_id, []).extend(known)
        problems += source.problems
        archived |= source.archived
    ordered = {run_id: tuple(sorted(copies[run_id], key=_rank)) for run_id in sorted(copies)}
    best = {run_id: known[0] for run_id, known in ordered.items()}
    experiments = _one_for_each(_after_refusals(sources, best), best)
    downloaded = [run for known in ordered.values() for run in known if run.project is not None]
    single, trials = without_record(best.values(), experiments, downloaded)
    return Found(ordered, (*experiments, *single), (*problems, *trials), archived)


def _after_refusals(
    sources: Sequence[Found], runs: Mapping[str, Run]
) -> Iterator[ExperimentRecord]:
    """Yield all records, without the comparisons that another source refused as named late.

    The rule is that of ``study --add``: the refusal of one source remains, unless an archive has
    named the comparison in time and has all finished runs of the source that refused it.
    """
    for source in sources:
        for record in source.experiments:
            late = [pair for other in sources for pair in _refused_by(other, record, source, runs)]
            yield refusing(record, late) if late else record


def _refused_by(
    other: Found, record: ExperimentRecord, source: Found, runs: Mapping[str, Run]
) -> Iterator[Pair]:
    """Yield the comparisons of a source's record that another source refused as named late."""
    for known in other.experiments:
        if known.key != record.key:
            continue
        for pair in record.primary.comparisons if record.primary else ():
            if not has_pair(refused(known), pair):
                continue
            theirs = only_rows(known, pair)
            planned = theirs.run_ids & other.copies.keys()
            finished = {run for run in planned if other.copies[run][0].state == State.DONE}
            has_all = source.archived and finished <= source.copies.keys()
            # A later edition of the experiment, with other settings, compares something else.
            if not has_all and _same_rows(theirs, only_rows(record, pair), runs):
                yield pair


def _one_for_each(
    records: Iterable[ExperimentRecord], runs: Mapping[str, Run]
) -> list[ExperimentRecord]:
    """Join the records of one experiment, which an archive and a folder of runs may both have.

    Two records are not joined if they have different runs of one row and seed, or different
    configurations of one row: a later edition of an experiment is not the same experiment, even if
    it has no seed in common with the earlier one.
    """
    kept: list[ExperimentRecord] = []
    for record in records:
        place = _place_of(record, kept, runs)
        if place is None:
            kept.append(record)
        elif kept[place] != record:
            (kept[place],) = merged((kept[place], record))
    return kept


def _place_of(
    record: ExperimentRecord, kept: Sequence[ExperimentRecord], runs: Mapping[str, Run]
) -> int | None:
    """Place of the first kept record that is equal to this one or may be joined with it."""
    for place, known in enumerate(kept):
        if known == record or _agree(known, record, runs):
            return place
    return None


def _agree(record: ExperimentRecord, other: ExperimentRecord, runs: Mapping[str, Run]) -> bool:
    """True if two records of one experiment may be joined (``_one_for_each``)."""
    if record.key != other.key or record.primary != other.primary:
        return False
    return _same_rows(record, other, runs)


def _same_rows(record: ExperimentRecord, other: ExperimentRecord, runs: Mapping[str, Run]) -> bool:
    """True if rows of one name have the same configuration, and one run for each seed."""
    planned: dict[tuple[str, str, str, int], str] = {}
    for each in (record, other):
        for row in each.rows:
            for run in row.runs:
                place = (row.name, run.env, run.model, run.seed)
                known_id = planned.setdefault(place, run.id)
                if known_id != run.id:
                    return False
    first, second = _configurations(record, runs), _configurations(other, runs)
    return all(first[row] & second[row] for row in first.keys() & second.keys())


def _configurations(
    record: ExperimentRecord, runs: Mapping[str, Run]
) -> dict[tuple[str, str, str], set[str]]:
    """(row, environment, model) -> configurations of its runs; rows that have none are left out."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for row in record.rows:
        for planned in row.runs:
            run = runs.get(planned.id)
            if run is not None and run.state != State.DAMAGED:
                place = (row.name, planned.env, planned.model)
                found.setdefault(place, set()).add(configuration_of(run.config))
    return found


def _rank(run: Run) -> int:
    """Sort key of a run's copies: finished ones first, damaged ones last."""
    if run.damage or run.state == State.DAMAGED:
        return 2
    return 0 if run.state == State.DONE else 1


def _single_copies(runs: Iterable[Run]) -> dict[str, tuple[Run, ...]]:
    return {run.id: (run,) for run in runs}


def _read_folder(folder: Path) -> Found:
    check_readable(folder)
    if is_archive(folder):
        try:
            archive = read_archive(folder)
        except RecordError as error:
            return Found({}, (), (Problem(str(folder), str(error)),))
        return Found(
            copies=_single_copies(archive.runs.values()),
            experiments=archive.experiments,
            problems=archive.problems,
            archived={folder: archive.metrics},
        )

    runs, unreadable = read_runs(folder)
    experiments, broken = read_experiments(folder)
    problems = unreadable + broken
    if not runs and lost_index(folder):
        problems = (Problem(str(folder), NO_INDEX), *problems)
    if not runs and is_offline(folder):
        # Its own folders ("files", "logs") are no run folders that could be restored.
        problems = (Problem(str(folder), OFFLINE),)
    return Found(_single_copies(runs.values()), experiments, problems)


def _read_project(name: str, settings: Settings) -> Found:
    downloads, noticed = read_project(name, settings)
    runs: dict[str, Run] = {}
    problems = list(noticed)
    for download in downloads:
        path = f"{name}/{download.id}"
        with noted(problems, path):
            run = run_of(download, name)
            known = runs.get(run.id)
            if known is not None:
                reason = f"is {run.id} again; the copy with the later last step is used"
                problems.append(Problem(path, reason))
            if known is None or (run.step or 0) >= (known.step or 0):
                runs[run.id] = run
    return Found(_single_copies(runs.values()), (), tuple(problems))


# The long table


def _best_copies(
    found: Found, compared: Copies
) -> tuple[dict[str, Run], pd.DataFrame, list[Problem]]:
    """Choose the first copy of each run with undamaged metrics, and build the long table.

    A run without such a copy is in state DAMAGED, and the table has no numbers of it. ``compared``
    notes the runs of which another copy has other numbers.
    """
    runs: dict[str, Run] = {}
    problems: list[Problem] = []
    columns = _empty_columns()
    archived: dict[Path, list[str]] = {}
    for run_id, copies in found.copies.items():
        run, logged = _first_undamaged(copies, found.archived, problems)
        if run is None:
            runs[run_id] = replace(copies[0], state=State.DAMAGED)
            continue
        runs[run_id] = run
        compared.compare(run, logged, copies[copies.index(run) + 1 :])
        if run.folder in found.archived:
            archived.setdefault(run.folder, []).append(run_id)
        for name, values in logged.items():
            columns[name] += values

    parts = [pd.DataFrame(columns)]
    for folder, ids in archived.items():
        table = found.archived[folder]
        parts.append(table[table["run"].isin(ids)])
    return runs, _long_table(parts), problems


def _first_undamaged(
    copies: Iterable[Run], archived: Collection[Path], problems: list[Problem]
) -> tuple[Run | None, dict[str, list[Any]]]:
    """The first copy with undamaged metrics, and the numbers that it logged; None without one.

    An archived copy has no numbers here, because they are in the table of its archive. Damage that
    is found in a log is added to ``problems``.
    """
    for run in copies:
        if run.damage:
            # The problems of its source name the damage already.
            continue
        if run.folder in archived:
            return run, {}
        try:
            return run, _logged(run)
        except RecordError as error:
            problems.append(Problem(run.id, str(error), state=state_of(error)))
    return None, {}


def _long_table(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Join the numbers of several sources, in the order of runs, metrics and steps."""
    # pandas warns about empty parts, whose columns have no type.
    filled = [part for part in parts if len(part)] or parts[:1]
    table = pd.concat(filled).astype(COLUMN_TYPES)

    # Stable, so that of two values at one step the one written later stays the later one.
    return table.sort_values(["run", "metric", "step"], kind="stable", ignore_index=True)


def _empty_columns() -> dict[str, list[Any]]:
    return {"run": [], "step": [], "metric": [], "value": []}


def _logged(run: Run) -> dict[str, list[Any]]:
    """Read the numbers that a run logged, as columns of the long table.

    Raises:
        RecordError: A log is damaged, or holds a value that cannot have been measured.
    """
    columns = _empty_columns()
    for metric, step, value in read_numbers(run):
        columns["run"].append(run.id)
        columns["step"].append(step)
        columns["metric"].append(metric)
        columns["value"].append(value)
    return columns


def _series_by_run(metrics: pd.DataFrame) -> dict[str, dict[str, Series]]:
    """Split the long table into one series per run and metric."""
    # Lists, because indexing single values in pandas is several times slower.
    steps = metrics["step"].tolist()
    values = metrics["value"].tolist()
    series: dict[str, dict[str, Series]] = {}
    groups = metrics.groupby(["run", "metric"], observed=True).indices
    for (run, metric), rows in groups.items():
        points = ((steps[row], values[row]) for row in rows.tolist())
        series.setdefault(run, {})[metric] = make_series(points)
    return series


def _runs_table(runs: Mapping[str, Run], parts: tuple[Section, ...]) -> pd.DataFrame:
    names: dict[str, list[str]] = {run: [] for run in runs}
    for section in parts:
        for row in section.all_rows():
            for planned in row.runs:
                known = names.setdefault(planned.id, [])
                if row.name not in known:
                    known.append(row.name)
    lines = [_runs_line(run, names[run.id]) for run in runs.values()]
    return pd.DataFrame(lines, columns=list(RUN_COLUMNS))


def _runs_line(run: Run, rows: list[str]) -> dict[str, Any]:
    hashes = []
    for name, panel in sorted(run.panels.items()):
        if isinstance(panel, dict):
            hashes.append(f"{name}:{panel.get('sha256')}")
    return {
        "id": run.id,
        "rows": rows,
        "env": run.head.env.name,
        "model": run.head.model.name,
        "method": run.head.method.name,
        "seed": run.head.seed,
        "state": run.state,
        "scale": run.head.scale,
        "setting": run.setting,
        "last_step": run.step,
        "commit": run.commit,
        "panel_hashes": hashes,
        "finished": run.state == State.DONE,
    }
