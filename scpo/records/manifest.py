"""``runs/experiments/<name>-<scale>.json``: the runs of each row of an experiment."""

import contextlib
import fnmatch
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from scpo.errors import ConfigError, RecordError, UnreadableError
from scpo.records import named_comparisons
from scpo.records.archive_index import read_index
from scpo.records.files import check_readable, read_record, text_sum, unsealed, write_json
from scpo.records.named_comparisons import (
    Call,
    Known,
    NamedComparison,
    Side,
    Sides,
    SupersededComparison,
    Verdict,
)
from scpo.records.run_folders import RunFolder, finished_in, list_runs
from scpo.strict import Scale

# Folder of the manifests, among the run folders.
EXPERIMENTS = "experiments"
SWEEP_AGAIN = (
    "Delete it: the same sweep writes it again (runs stay; repeat what was swept with other seeds; "
    "comparisons of settings that rows had before an edit are then not counted any more)"
)


class PlannedRun(BaseModel):
    """One run of an experiment's row, whether or not it has started."""

    model_config = ConfigDict(frozen=True)

    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    env: str
    model: str
    seed: int
    # Hash of the run's configuration without the seed.
    settings: str | None = None


class PlannedRow(BaseModel):
    """One row of an experiment."""

    model_config = ConfigDict(frozen=True)

    name: str
    label: str
    runs: tuple[PlannedRun, ...]
    # False for a row that could run at this scale, but that ``rows=[...]`` left out of the call.
    chosen: bool = Field(default=True, exclude_if=lambda chosen: chosen)
    # Of a row that a call does not run: environment and model -> hash of its present settings, by
    # which runs of earlier calls are recognised as its own. Not in the file.
    settings: dict[tuple[str, str], str] = Field(default_factory=dict, exclude=True)


class PrimaryComparisons(BaseModel):
    """The comparisons that an experiment is run for.

    ``comparisons`` are pairs of row names, the first minus the second, by ``measure``.
    """

    model_config = ConfigDict(frozen=True)

    measure: str
    comparisons: tuple[tuple[str, str], ...]


class Manifest(BaseModel):
    """The rows of an experiment and their runs; the fields are in the order of the file."""

    model_config = ConfigDict(frozen=True)

    experiment: str
    title: str
    scale: Scale
    overrides: tuple[str, ...] = ()
    # Arguments that select the experiment on the command line, if its name does not suffice: its
    # file, or the experiment and axes that were typed (+experiment=one method=gigpo,scpo).
    asked_as: tuple[str, ...] = Field(default=(), exclude_if=lambda words: not words)
    primary: PrimaryComparisons | None = None
    # Comparisons that the experiment's file named only after both of their rows had finished runs:
    # they may have been chosen for their results, and so are not among `primary`.
    named_late: tuple[tuple[str, str], ...] = Field(default=(), exclude_if=lambda pairs: not pairs)
    # Comparisons among `primary` that were taken out of the file after their results: without them,
    # the correction of the others would depend on the results.
    withdrawn: tuple[tuple[str, str], ...] = Field(default=(), exclude_if=lambda pairs: not pairs)
    # Comparisons of former settings of rows that were named before their results, which they have:
    # without them, too, the correction would depend on results.
    superseded: tuple[SupersededComparison, ...] = Field(
        default=(), exclude_if=lambda comparisons: not comparisons
    )
    rows: tuple[PlannedRow, ...]
    # Rows as the experiment's file had them before it was edited, one for each of their former
    # settings, with the runs that still exist. They are in no table of the experiment.
    former: tuple[PlannedRow, ...] = Field(default=(), exclude_if=lambda rows: not rows)

    @property
    def words(self) -> tuple[str, ...]:
        """Arguments of sweep.py that name these rows, without seeds and other axes."""
        # The default scale is left out, to keep the command short.
        scale = () if self.scale == "mini" else (f"scale={self.scale}",)
        others = (word for word in self.overrides if word not in scale)
        return (*(self.asked_as or (f"+experiment={self.experiment}",)), *scale, *others)


def manifest_path(runs_dir: Path, experiment: str, scale: str) -> Path:
    """Path of a manifest; each scale has one of its own."""
    return runs_dir / EXPERIMENTS / f"{experiment}-{scale}.json"


def manifest_paths(runs_dir: Path) -> list[Path]:
    """All manifests among the runs of a folder, by name.

    Raises:
        UnreadableError: This user may not read their folder.
    """
    check_readable(runs_dir / EXPERIMENTS)
    return sorted((runs_dir / EXPERIMENTS).glob("*.json"))


def read(path: Path) -> Manifest:
    """Read a manifest.

    Raises:
        RecordError: It is missing or damaged.
    """
    return read_record(path, Manifest, "manifest of an experiment", SWEEP_AGAIN)


def update(runs_dir: Path, planned: Manifest, archive: str | None = None) -> Manifest | None:
    """Write a manifest, merged with the runs of earlier calls with other axes.

    The manifest of the latest call has the experiment's name. An earlier one with other overrides
    or rows is kept under that name with a hash, because otherwise no table would show its runs.
    Repeating its command gives it the experiment's name again.

    An earlier run is kept if it belongs to the same table: the overrides are the same, its folder
    still exists, and its settings apart from the seed equal those that the same row has now on this
    environment and model, if the call composed these. Otherwise it is listed under ``former``.

    Args:
        runs_dir: Folder of the runs.
        planned: The rows and runs of this call.
        archive: ``machine.archive``, whose runs count as finished, and whose experiments may have
            named the comparisons.

    Returns:
        The renamed manifest of an earlier call, if this call has taken its name just now.
    """
    kept = None
    path = manifest_path(runs_dir, planned.experiment, planned.scale)
    merged, known, verdict = _merged(runs_dir, planned, archive)
    if verdict.new or verdict.forgotten:
        # Written first: if the call is killed in between, its comparisons are already named when it
        # is repeated.
        kept_entries = [entry for entry in known if entry not in verdict.forgotten]
        named_comparisons.write(path.parent, kept_entries, verdict.new)
    if path.exists():
        kept = _keep_aside(runs_dir, read(path), merged)
    write_json(path, merged.model_dump(mode="json"))
    manifest_path(runs_dir, _name_aside(planned), planned.scale).unlink(missing_ok=True)
    return kept


def set_aside_damaged(runs_dir: Path, planned: Manifest) -> list[str]:
    """Rename what ``update`` would read and is damaged: manifests and the named comparisons.

    Returns:
        A note on each: what is wrong, its new name, and how to restore its content.

    Raises:
        UnreadableError: This user may not read one of them.
    """
    notes = []
    for name in (planned.experiment, _name_aside(planned)):
        path = manifest_path(runs_dir, name, planned.scale)
        if not path.exists():
            continue
        try:
            read(path)
        except UnreadableError:
            raise
        except RecordError as error:
            what = str(error).removesuffix(f". {SWEEP_AGAIN}")
            notes.append(
                f"{what}. It is left out and kept as {_rename_damaged(path)}; its runs stay: "
                "repeat the calls of earlier seeds, or restore it"
            )
    try:
        named_comparisons.read(runs_dir / EXPERIMENTS)
    except UnreadableError:
        raise
    except RecordError as error:
        path = named_comparisons.record_path(runs_dir / EXPERIMENTS)
        what = str(error).removesuffix(f". {named_comparisons.RESTORE}")
        notes.append(
            f"{what}. It is kept as {_rename_damaged(path)} and made again from the manifests of "
            "the experiments; restore it if you have a copy"
        )
    return notes


def _rename_damaged(path: Path) -> str:
    """Give a damaged record a name that no command reads (not ``*.json``), and return it."""
    kept = path.with_name(f"{path.name}.damaged")
    path.rename(kept)
    return kept.name


def with_earlier_runs(runs_dir: Path, planned: Manifest, archive: str | None = None) -> Manifest:
    """A call's rows and runs with those of earlier calls that belong to its table (``update``).

    Its ``primary`` has the comparisons that were named before their results, by the record of
    ``named_comparisons``. Comparisons that the file named later are left out; comparisons that were
    taken out of the file after their results are included. Its ``superseded`` has those of
    settings that a row had before the file was edited.

    Raises:
        RecordError: A manifest of the same name or that record is damaged.
        ConfigError: ``archive`` is not an archive, or damaged.
    """
    return _merged(runs_dir, planned, archive)[0]


def _merged(
    runs_dir: Path, planned: Manifest, archive: str | None
) -> tuple[Manifest, tuple[NamedComparison, ...], Verdict]:
    """See ``with_earlier_runs``; also the known named comparisons, and the verdict on all."""
    rows = planned.rows
    for name in (planned.experiment, _name_aside(planned)):
        existing = manifest_path(runs_dir, name, planned.scale)
        if not existing.exists():
            continue
        earlier = read(existing)
        if earlier.overrides == planned.overrides:
            rows = tuple(_join(row, earlier, runs_dir) for row in rows)

    recorded = named_comparisons.read(runs_dir / EXPERIMENTS)
    archived = finished_in(archive)
    known = Known(
        runs_dir,
        record=tuple(_of_manifests(runs_dir)) if recorded is None else recorded,
        named_in_archive=tuple(_of_archive(archive)),
        archived=archived,
    )
    earlier_calls = list(_earlier_calls(runs_dir, planned, archive))
    former = list(_with_existing_runs(_former_rows(rows, earlier_calls), runs_dir, archived))
    call = Call(
        experiment=planned.experiment,
        scale=planned.scale,
        sides=_sides(rows),
        measure=planned.primary.measure if planned.primary else None,
        pairs=planned.primary.comparisons if planned.primary else (),
        deleted=_each_side(_deleted_rows(rows, earlier_calls)),
        former=_each_side(former),
        superseded=tuple(each for earlier in earlier_calls for each in earlier.superseded),
    )
    verdict = named_comparisons.judge(call, known)
    primary = None
    tested = (*verdict.named, *verdict.withdrawn)
    if verdict.measure and tested:
        primary = PrimaryComparisons(measure=verdict.measure, comparisons=tested)
    merged = planned.model_copy(
        update={
            "rows": rows,
            "primary": primary,
            "named_late": tuple(verdict.late),
            "withdrawn": tuple(verdict.withdrawn),
            "superseded": tuple(verdict.superseded),
            "former": tuple(former),
        }
    )
    return merged, known.record, verdict


def _of_manifests(runs_dir: Path) -> Iterator[NamedComparison]:
    """The comparisons of manifests that are older than the record of named comparisons."""
    for manifest in _readable_manifests(runs_dir):
        yield from _named_by(manifest)


def _readable_manifests(runs_dir: Path) -> Iterator[Manifest]:
    for path in manifest_paths(runs_dir):
        # `experiment_members` reports a damaged one.
        with contextlib.suppress(RecordError):
            yield read(path)


def _of_archive(archive: str | None) -> Iterator[NamedComparison]:
    """The comparisons that the experiments of an archive named, early or late."""
    for manifest in _archived_manifests(archive):
        yield from _named_by(manifest)


def _archived_manifests(archive: str | None) -> Iterator[Manifest]:
    if archive is None:
        return
    for record in read_index(Path(archive))[0].experiments:
        # Records that this version cannot read are skipped; their comparisons count as named late.
        with contextlib.suppress(ValueError):
            yield Manifest.model_validate(unsealed(record))


def _earlier_calls(runs_dir: Path, planned: Manifest, archive: str | None) -> Iterator[Manifest]:
    """Yield the manifests of earlier calls with the same overrides, here and in the archive."""
    for manifest in (*_readable_manifests(runs_dir), *_archived_manifests(archive)):
        experiment, overrides = manifest.experiment, sorted(manifest.overrides)
        kept_aside = _name_aside(manifest.model_copy(update={"experiment": planned.experiment}))
        if (
            experiment in (planned.experiment, kept_aside)
            and manifest.scale == planned.scale
            and overrides == sorted(planned.overrides)
        ):
            yield manifest


def _deleted_rows(
    rows: Iterable[PlannedRow], earlier_calls: Iterable[Manifest]
) -> Iterator[PlannedRow]:
    """Yield rows of earlier calls whose names this call does not have."""
    names = {row.name for row in rows}
    for manifest in earlier_calls:
        for row in (*manifest.rows, *manifest.former):
            if row.name not in names:
                yield row


def _former_rows(rows: Iterable[PlannedRow], earlier_calls: Iterable[Manifest]) -> list[PlannedRow]:
    """Rows of earlier calls that have other settings now, one for each of their former settings."""
    present: dict[tuple[str, str, str], set[str | None]] = {}
    for row in rows:
        for (env, model), settings in row.settings.items():
            present.setdefault((row.name, env, model), set()).add(settings)
        for run in row.runs:
            present.setdefault((row.name, run.env, run.model), set()).add(run.settings)

    former: dict[tuple[str, str], PlannedRow] = {}
    for manifest in earlier_calls:
        for row in (*manifest.rows, *manifest.former):
            for run in row.runs:
                now = present.get((row.name, run.env, run.model))
                # Of a benchmark that this call does not run, only what was former before is known.
                is_former = row in manifest.former if now is None else run.settings not in now
                # Records of old versions have no settings.
                if not is_former or run.settings is None:
                    continue
                key = (row.name, run.settings)
                known = former.setdefault(key, row.model_copy(update={"runs": ()}))
                if run not in known.runs:
                    former[key] = known.model_copy(update={"runs": (*known.runs, run)})
    return [former[key] for key in sorted(former)]


def _with_existing_runs(
    rows: Iterable[PlannedRow], runs_dir: Path, archived: Collection[str]
) -> Iterator[PlannedRow]:
    """Yield the rows with those of their runs that have a folder or are archived, if any."""
    for row in rows:
        runs = tuple(run for run in row.runs if run.id in archived or (runs_dir / run.id).is_dir())
        if runs:
            yield row.model_copy(update={"runs": runs})


def _each_side(rows: Iterable[PlannedRow]) -> dict[tuple[str, str], list[Side]]:
    """Sides of rows that may share names, by environment and model; one for each settings."""
    sides: dict[tuple[str, str], dict[tuple[str, str], Side]] = {}
    for row in rows:
        for benchmark, named in _sides([row]).items():
            side = named[row.name]
            of_benchmark = sides.setdefault(benchmark, {})
            known = of_benchmark.setdefault((side.row, side.settings), side)
            runs = tuple(dict.fromkeys((*known.runs, *side.runs)))
            of_benchmark[side.row, side.settings] = replace(known, runs=runs)
    return {benchmark: list(named.values()) for benchmark, named in sides.items()}


def _named_by(manifest: Manifest) -> Iterator[NamedComparison]:
    primary = manifest.primary
    if primary is None:
        # The manifest then has no measure for its late comparisons; `judge` decides on them again.
        return
    in_time = Call(
        experiment=manifest.experiment,
        scale=manifest.scale,
        sides=_sides(manifest.rows),
        measure=primary.measure,
        pairs=primary.comparisons,
    )
    yield from in_time.entries(late=False)
    # A comparison of both is late by a measure that replaced this one; `judge` decides on it again.
    tested = {frozenset(pair) for pair in primary.comparisons}
    late = tuple(pair for pair in manifest.named_late if frozenset(pair) not in tested)
    yield from replace(in_time, pairs=late).entries(late=True)


def _sides(rows: Iterable[PlannedRow]) -> Sides:
    sides: dict[tuple[str, str], dict[str, Side]] = {}
    for row in rows:
        runs: dict[tuple[str, str], list[PlannedRun]] = {}
        for run in row.runs:
            runs.setdefault((run.env, run.model), []).append(run)
        for benchmark, of_row in runs.items():
            # Several hashes if two values of an axis have the same benchmark.
            settings = "+".join(sorted({str(run.settings) for run in of_row}))
            ids = tuple(run.id for run in of_row)
            sides.setdefault(benchmark, {})[row.name] = Side(row.name, settings, ids)
    return sides


def replaced_by(runs_dir: Path, planned: Manifest) -> Manifest | None:
    """The manifest of a later call that has taken the name of this one; None if none has.

    It has other overrides, or lacks a row of this one.
    """
    path = manifest_path(runs_dir, planned.experiment, planned.scale)
    if not path.exists():
        return None
    present = read(path)
    rows = {row.name for row in planned.rows}
    if present.overrides == planned.overrides and rows <= {row.name for row in present.rows}:
        return None
    return present


def kept_as(runs_dir: Path, planned: Manifest) -> str | None:
    """Name under which a replaced manifest was kept; None if it was not."""
    name = _name_aside(planned)
    return name if manifest_path(runs_dir, name, planned.scale).exists() else None


def _name_aside(manifest: Manifest) -> str:
    """Name of a manifest after a later one took its own: the experiment and a hash."""
    distinctive = [manifest.overrides, sorted(row.name for row in manifest.rows)]
    return f"{manifest.experiment}_{text_sum(json.dumps(distinctive).encode())[:6]}"


def _keep_aside(runs_dir: Path, earlier: Manifest, planned: Manifest) -> Manifest | None:
    """Write an earlier manifest of other overrides or rows under its new name, and return it.

    It is dropped if all of its runs that still exist are in the planned one.
    """
    name = _name_aside(earlier)
    own = {row.name for row in earlier.rows}
    if earlier.overrides == planned.overrides and own <= {row.name for row in planned.rows}:
        return None
    listed = {run.id for row in planned.rows for run in row.runs}
    runs = {run.id for row in (*earlier.rows, *earlier.former) for run in row.runs}
    if not any((runs_dir / run).is_dir() for run in runs - listed):
        return None
    given = [word for word in earlier.overrides if not word.startswith("scale=")]
    kept = earlier.model_copy(
        update={
            "experiment": name,
            "title": ", ".join([earlier.title, *given]),
            "asked_as": earlier.asked_as or (f"+experiment={earlier.experiment}",),
        }
    )
    write_json(manifest_path(runs_dir, name, earlier.scale), kept.model_dump(mode="json"))
    return kept


def _join(row: PlannedRow, earlier: Manifest, runs_dir: Path) -> PlannedRow:
    """A row with the runs of an earlier manifest and those planned now."""
    settings = row.settings | {(run.env, run.model): run.settings for run in row.runs}
    present = {(run.env, run.model, run.seed) for run in row.runs}
    runs = list(row.runs)
    for before in (*earlier.rows, *earlier.former):
        if before.name != row.name:
            continue
        for run in before.runs:
            # Without settings of this environment and model, there is nothing to compare with; then
            # what was former remains so.
            unknown = None if before in earlier.former else run.settings
            same_settings = settings.get((run.env, run.model), unknown) == run.settings
            replaced = (run.env, run.model, run.seed) in present
            exists = (runs_dir / run.id).is_dir()
            if same_settings and not replaced and exists:
                runs.append(run)
    # Sorted, so that the order of calls does not change the file.
    runs.sort(key=lambda run: (run.env, run.model, run.seed))
    return row.model_copy(update={"runs": tuple(runs)})


def select(runs_dir: Path, patterns: Sequence[str]) -> list[RunFolder]:
    """Run folders that match any of the patterns (shell wildcards), sorted by name.

    A pattern matches run ids and names of experiments. An experiment's name selects all its runs,
    including those of earlier calls with other overrides or rows. ``+experiment=NAME``, as in the
    command of the sweep, is the same as NAME.

    Raises:
        ConfigError: A pattern matches nothing.
    """
    folders = {folder.run_id: folder for folder in list_runs(runs_dir)}
    members, damaged = experiment_members(runs_dir)
    chosen: set[str] = set()
    for pattern, matches in _matches(runs_dir, folders, patterns, members):
        # Before the first sweep, "*" may match nothing.
        if not matches and pattern != "*":
            known = ", ".join(members) or "none"
            complaint = f"no run in {runs_dir} matches {pattern!r}; experiments there: {known}"
            raise ConfigError("; ".join([complaint, *_with_the_word(folders, pattern), *damaged]))
        chosen |= matches
    return [folders[name] for name in sorted(chosen)]


def select_ids(runs_dir: Path, run_ids: Iterable[str], patterns: Sequence[str]) -> set[str]:
    """Those of the ids that any of the patterns matches, as in ``select``."""
    members = experiment_members(runs_dir)[0]
    return set().union(*(ids for _, ids in _matches(runs_dir, run_ids, patterns, members)))


def _matches(
    runs_dir: Path,
    run_ids: Iterable[str],
    patterns: Sequence[str],
    members: Mapping[str, set[str]],
) -> Iterator[tuple[str, set[str]]]:
    """Yield each pattern with the run ids that it matches; ``members``: ids by experiment."""
    run_ids = set(run_ids)
    others = other_names(runs_dir)
    for word in patterns:
        pattern = _experiment_of(word)
        matches = set(fnmatch.filter(run_ids, pattern))
        for name, runs in members.items():
            if fnmatch.filter([name, *others.get(name, ())], pattern):
                matches |= runs & run_ids
        yield pattern, matches


def _with_the_word(run_ids: Iterable[str], word: str) -> list[str]:
    """Offer the pattern of the runs whose ids contain a word; empty if there are none."""
    containing = [run_id for run_id in sorted(run_ids) if word in run_id]
    if not word or not containing:
        return []
    others = f" and {len(containing) - 1} more" if len(containing) > 1 else ""
    return [
        f"a pattern matches whole ids, with * and ?; '*{word}*' matches {containing[0]}{others}"
    ]


def manifests_of(runs_dir: Path, run_id: str) -> Iterator[Manifest]:
    """Yield the manifests that list a run, without unreadable ones."""
    for manifest in _readable_manifests(runs_dir):
        if any(run.id == run_id for row in manifest.rows for run in row.runs):
            yield manifest


def other_names(runs_dir: Path) -> dict[str, set[str]]:
    """Name of a manifest's experiment -> further names that select its runs; none: left out.

    A manifest that was renamed for a later one can also be selected by its experiment's name, and
    one of typed axes by the typed experiment: ``one`` for ``+experiment=one method=a,b``.
    """
    others: dict[str, set[str]] = {}
    for manifest in _readable_manifests(runs_dir):
        names = set()
        name = manifest.experiment.rpartition("_")[0]
        if manifest.experiment == _name_aside(manifest.model_copy(update={"experiment": name})):
            names.add(name)
        if manifest.asked_as:
            names.add(_experiment_of(manifest.asked_as[0]))
        if names := names - {manifest.experiment}:
            others.setdefault(manifest.experiment, set()).update(names)
    return others


def _experiment_of(word: str) -> str:
    """NAME of ``+experiment=NAME``, as in a command; other patterns are returned unchanged."""
    return re.sub(r"^\+?experiment=", "", word)


def experiment_members(runs_dir: Path) -> tuple[dict[str, set[str]], list[str]]:
    """Ids of the runs of each experiment over all scales, and errors of unreadable manifests."""
    members: dict[str, set[str]] = {}
    damaged = []
    for path in manifest_paths(runs_dir):
        try:
            manifest = read(path)
        except RecordError as error:
            damaged.append(str(error))
            continue
        runs = members.setdefault(manifest.experiment, set())
        for row in manifest.rows:
            runs.update(run.id for run in row.runs)
    return members, damaged
