"""``runs/experiments/named/comparisons.json``: when each comparison was first named.

A p-value is valid only if the comparison was chosen before its result was known. An experiment's
file cannot show that, because it can be edited after the runs. So each sweep adds the comparisons
that this record lacks, and whether both of their sides had finished runs at that time, in the
folder or in the sweep's archive. The archive's experiments may have named a comparison earlier. A
comparison is identified by two configurations and a measure: other names of rows, another order of
overrides and a later edit of the file do not make it a new one. An entry is removed only if its
comparison is taken out of the file before it has results. If a row is edited after results, the
comparison of its former settings is superseded: it still counts in the correction.
"""

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from scpo.errors import RecordError
from scpo.records.files import Record, read_record, write_json
from scpo.records.run_folders import RunFolder
from scpo.records.status import State

RESTORE = "Restore it, or delete it: it is then made from the manifests of the experiments"

Pair = tuple[str, str]
"""Names of two rows; the first minus the second."""


@dataclass(frozen=True)
class Side:
    """One row on one benchmark.

    Attributes:
        row: Name of the row.
        settings: Hash of its configuration without the seed.
        runs: Ids of its runs, of all seeds.
    """

    row: str
    settings: str
    runs: tuple[str, ...]


BothSides = tuple[Side, Side]
"""The sides of a pair, in its order."""

Benchmark = tuple[str, str]
"""Environment and model."""

Sides = Mapping[Benchmark, Mapping[str, Side]]
"""Benchmark -> name of the row -> its side."""

Key = tuple[str, ...]
"""Key of a comparison, equal for both orders of its sides."""


class NamedComparison(Record):
    """One entry of the record.

    Attributes:
        experiment: Name of the experiment.
        scale: Its scale.
        env: Environment.
        model: Model.
        measure: Measure by which the sides are compared.
        first: ``Side.settings`` of the minuend.
        second: ``Side.settings`` of the subtrahend.
        late: True if both sides had finished runs when the comparison was named, here or in the
            archive that the sweep was given.
        at: When it was named; None if that was before this record existed.
    """

    experiment: str
    scale: str
    env: str
    model: str
    measure: str
    first: str
    second: str
    late: bool
    at: str | None = None

    @property
    def key(self) -> Key:
        """Key of the comparison."""
        sides = sorted((self.first, self.second))
        return (self.experiment, self.scale, self.env, self.model, self.measure, *sides)


class SupersededComparison(Record):
    """A comparison that was named in time and has results, but of former settings of its rows.

    Attributes:
        rows: Names of its rows, the first minus the second.
        measure: Measure by which they are compared.
        env: Environment.
        model: Model.
        settings: ``Side.settings`` of both.
    """

    rows: Pair
    measure: str
    env: str
    model: str
    settings: Pair

    @property
    def test(self) -> tuple[str, Benchmark, frozenset[str]]:
        """What identifies it, equal for both orders of its rows."""
        return self.measure, (self.env, self.model), frozenset(self.settings)


@dataclass(frozen=True)
class Call:
    """The rows of one call of a sweep, and the comparisons that the experiment's file names.

    Attributes:
        experiment: Name of the experiment.
        scale: Its scale.
        sides: The rows that have runs, including runs of earlier calls.
        measure: Measure that the file names; None if it no longer names a comparison.
        pairs: Comparisons that the file names.
        deleted: Rows that earlier calls had and this one does not have.
        former: Rows of this call with the settings that they had in earlier calls.
        superseded: Comparisons that earlier calls found to be superseded.
    """

    experiment: str
    scale: str
    sides: Sides
    measure: str | None = None
    pairs: tuple[Pair, ...] = ()
    deleted: Mapping[Benchmark, Collection[Side]] = field(default_factory=dict)
    former: Mapping[Benchmark, Collection[Side]] = field(default_factory=dict)
    superseded: tuple[SupersededComparison, ...] = ()

    def compared(self, pair: Pair) -> Iterator[tuple[Benchmark, BothSides]]:
        """Yield each benchmark on which a pair has runs of two configurations, with its sides."""
        for benchmark, rows in self.sides.items():
            first, second = (rows.get(name) for name in pair)
            if first is None or second is None or first.settings == second.settings:
                continue
            yield benchmark, (first, second)

    def entry(self, benchmark: Benchmark, sides: BothSides, *, late: bool) -> NamedComparison:
        """Entry of a pair that the file names, on one benchmark."""
        env, model = benchmark
        first, second = sides
        return NamedComparison(
            experiment=self.experiment,
            scale=self.scale,
            env=env,
            model=model,
            # `str` for mypy: a file that names pairs also names a measure.
            measure=str(self.measure),
            first=first.settings,
            second=second.settings,
            late=late,
        )

    def entries(self, *, late: bool) -> Iterator[NamedComparison]:
        """Entries of all pairs that the file names, all with the same ``late``."""
        for pair in self.pairs:
            for benchmark, sides in self.compared(pair):
                yield self.entry(benchmark, sides, late=late)

    def rows_of(self, entry: NamedComparison, *, with_former: bool = False) -> BothSides | None:
        """The rows of an entry's two configurations, present or deleted; None without both.

        ``with_former``: also rows with the settings of earlier calls.
        """
        benchmark = entry.env, entry.model
        # Of several rows with a configuration, the last one is taken, so present ones come last.
        rows = [*self.deleted.get(benchmark, ()), *self.sides.get(benchmark, {}).values()]
        if with_former:
            rows = [*self.former.get(benchmark, ()), *rows]
        by_settings = {side.settings: side for side in rows}
        first, second = by_settings.get(entry.first), by_settings.get(entry.second)
        return None if first is None or second is None else (first, second)


@dataclass(frozen=True)
class Known:
    """Earlier named comparisons and finished runs, here and in the archive.

    Attributes:
        runs_dir: Folder of the runs.
        record: Entries of the record.
        named_in_archive: Comparisons that the experiments of the archive named.
        archived: Ids of the finished runs in the archive, which need no folder here.
    """

    runs_dir: Path
    record: tuple[NamedComparison, ...]
    named_in_archive: tuple[NamedComparison, ...] = ()
    archived: Collection[str] = ()

    @cached_property
    def recorded(self) -> dict[Key, NamedComparison]:
        """The record's entries by key; of several entries of one comparison, the first."""
        recorded: dict[Key, NamedComparison] = {}
        for entry in self.record:
            recorded.setdefault(entry.key, entry)
        return recorded

    @cached_property
    def entries(self) -> dict[Key, NamedComparison]:
        """All entries by key; where the record and the archive have one, the record's."""
        return {entry.key: entry for entry in self.named_in_archive} | self.recorded

    def both_finished(self, sides: BothSides) -> bool:
        """True if each side has a finished run."""
        return all(any(self._is_finished(run) for run in side.runs) for side in sides)

    def _is_finished(self, run: str) -> bool:
        if run in self.archived:
            return True
        with contextlib.suppress(RecordError):
            return RunFolder(self.runs_dir / run).read_status().state is State.DONE
        return False


@dataclass
class Verdict:
    """The comparisons of a call, as pairs of rows.

    Attributes:
        named: Those that were named before both of their rows had finished runs.
        late: Those that were named after, or by another measure after results by the first one.
        withdrawn: Those that were named before, have results, and are not in the file any more, or
            there with another measure. A row of them may have been deleted, too.
        superseded: Those that were named before and have results, but of former settings of a row.
        measure: Measure of ``named`` and ``withdrawn``; None if both are empty.
        new: Entries that the record lacks.
        forgotten: Entries whose comparison was taken out of the file before it had results.
    """

    measure: str | None = None
    named: list[Pair] = field(default_factory=list)
    late: list[Pair] = field(default_factory=list)
    withdrawn: list[Pair] = field(default_factory=list)
    superseded: list[SupersededComparison] = field(default_factory=list)
    new: list[NamedComparison] = field(default_factory=list)
    forgotten: list[NamedComparison] = field(default_factory=list)


class NamedComparisons(Record):
    """The record; its entries are in the order in which they were named."""

    comparisons: tuple[NamedComparison, ...] = ()


def record_path(experiments: Path) -> Path:
    """Path of the record in the folder of the manifests."""
    return experiments / "named" / "comparisons.json"


def read(experiments: Path) -> tuple[NamedComparison, ...] | None:
    """All entries; None without a record.

    Raises:
        RecordError: It is damaged.
    """
    path = record_path(experiments)
    if not path.exists():
        return None
    return read_record(path, NamedComparisons, "record of comparisons", RESTORE).comparisons


def write(
    experiments: Path, known: Iterable[NamedComparison], new: Iterable[NamedComparison]
) -> None:
    """Write the known entries and, with the present time, the new ones."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    added = (comparison.model_copy(update={"at": now}) for comparison in new)
    record = NamedComparisons(comparisons=(*known, *added))
    write_json(record_path(experiments), record.model_dump(mode="json"))


def judge(call: Call, known: Known) -> Verdict:
    """Decide for each comparison of a call if it was named before its results.

    A comparison on several benchmarks is late if it is late on any of them. A comparison whose rows
    have no runs on a common benchmark gets no entry yet, and is not late.

    An experiment has one measure: that of the comparisons that its file named in time, or else that
    of the first comparison that was taken out. Withdrawn comparisons by another one are left out.
    After results by one measure, all comparisons by another one are late.
    """
    in_time = []
    for entry in known.entries.values():
        # A late comparison is not tested, so it needs not be kept in the correction.
        if not entry.late and (entry.experiment, entry.scale) == (call.experiment, call.scale):
            in_time.append(entry)

    verdict = Verdict()
    replaced = _measure_is_replaced(call, known, in_time)
    named = _judge_named(verdict, call, known, replaced=replaced)
    taken_out = [entry for entry in in_time if entry.key not in named]
    withdrawn = _judge_taken_out(verdict, call, known, taken_out)
    _judge_superseded(verdict, call, known, taken_out, withdrawn)
    return verdict


def _measure_is_replaced(call: Call, known: Known, in_time: Iterable[NamedComparison]) -> bool:
    """True if a comparison that was named in time by another measure has results.

    The call's measure may have been chosen for them, even where the rows of a pair have no results
    yet; with it, the earlier comparisons would leave the correction.
    """
    for entry in in_time:
        rows = call.rows_of(entry, with_former=True)
        if entry.measure != call.measure and rows is not None and known.both_finished(rows):
            return True
    return False


def _judge_named(verdict: Verdict, call: Call, known: Known, *, replaced: bool) -> set[Key]:
    """Set ``named``, ``late`` and ``new``; returns the keys of all comparisons of the file.

    ``replaced``: the file's measure has replaced one that had results.
    """
    # Pairs of the same configurations share an entry.
    of_file: dict[Key, NamedComparison] = {}
    for pair in call.pairs:
        of_pair = []
        for benchmark, sides in call.compared(pair):
            new = call.entry(benchmark, sides, late=replaced or known.both_finished(sides))
            # A comparison that was named before keeps its entry.
            of_pair.append(of_file.setdefault(new.key, known.entries.get(new.key, new)))
        late = any(entry.late for entry in of_pair) if of_pair else replaced
        (verdict.late if late else verdict.named).append(pair)

    verdict.measure = call.measure if verdict.named else None
    verdict.new = [entry for key, entry in of_file.items() if key not in known.entries]
    return set(of_file)


def _judge_taken_out(
    verdict: Verdict, call: Call, known: Known, taken_out: Iterable[NamedComparison]
) -> list[NamedComparison]:
    """Set ``withdrawn`` and ``forgotten``, and ``measure`` if the file named nothing in time.

    ``taken_out``: comparisons that were named in time, and are not in the file any more.

    Returns:
        The entries of ``withdrawn``, one for each pair and benchmark. A deleted row may have been
        edited before: then it is the entry of its last settings.
    """
    withdrawn: dict[tuple[str, str, frozenset[str]], NamedComparison] = {}
    for entry in taken_out:
        rows = call.rows_of(entry)
        if rows is None:
            # It is of other settings of the rows, or of a benchmark that this call does not run.
            continue
        if not known.both_finished(rows):
            # Entries of the archive are not in the record, and cannot be removed from it.
            if entry.key in known.recorded:
                verdict.forgotten.append(entry)
            continue
        verdict.measure = verdict.measure or entry.measure
        if entry.measure != verdict.measure:
            continue
        pair = (rows[0].row, rows[1].row)
        withdrawn[entry.env, entry.model, frozenset(pair)] = entry
        # The file may have named it in the other order when another benchmark was run.
        if pair not in verdict.withdrawn and pair[::-1] not in verdict.withdrawn:
            verdict.withdrawn.append(pair)
    return list(withdrawn.values())


def _judge_superseded(
    verdict: Verdict,
    call: Call,
    known: Known,
    taken_out: Iterable[NamedComparison],
    withdrawn: Collection[NamedComparison],
) -> None:
    """Set ``superseded``: of what was taken out and has results, all that is not tested any more.

    Those of earlier calls remain, also if their runs or the record of their naming are deleted.
    """
    found = list(call.superseded)
    for entry in taken_out:
        rows = call.rows_of(entry, with_former=True)
        if rows is None or not known.both_finished(rows):
            continue
        first, second = rows
        found.append(
            SupersededComparison(
                rows=(first.row, second.row),
                measure=entry.measure,
                env=entry.env,
                model=entry.model,
                settings=(first.settings, second.settings),
            )
        )
    tested = {frozenset((entry.first, entry.second)) for entry in withdrawn}
    distinct = {comparison.test: comparison for comparison in found}
    for comparison in distinct.values():
        benchmark = (comparison.env, comparison.model)
        present = {side.settings for side in call.sides.get(benchmark, {}).values()}
        # A comparison of two present rows is tested, or was left out for another measure.
        if not present.issuperset(comparison.settings) and set(comparison.settings) not in tested:
            verdict.superseded.append(comparison)
