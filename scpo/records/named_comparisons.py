"""``runs/experiments/named/comparisons.json``: when each comparison was first named.

A p-value is valid only if the comparison was chosen before its result was known. An experiment's
file cannot show that, because it can be edited after the runs. So each sweep adds the comparisons
that this record lacks, and whether both of their sides had finished runs at that time, in the
folder or in the sweep's archive. The archive's experiments may have named a comparison earlier. A
comparison is identified by two configurations and a measure: other names of rows, another order of
overrides and a later edit of the file do not make it a new one. An entry is removed only if its
comparison is taken out of the file before it has results.
"""

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType

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


Benchmark = tuple[str, str]
"""Environment and model."""

Sides = Mapping[Benchmark, Mapping[str, Side]]
"""Benchmark -> name of the row -> its side."""


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
    def key(self) -> tuple[str, ...]:
        """Key of the comparison, equal for both orders of its sides."""
        sides = sorted((self.first, self.second))
        return (self.experiment, self.scale, self.env, self.model, self.measure, *sides)


@dataclass
class Verdict:
    """The comparisons of a call, as pairs of rows.

    Attributes:
        named: Those that were named before both of their rows had finished runs.
        late: Those that were named after, or by another measure after results by the first one.
        withdrawn: Those that were named before, have results, and are not in the file any more, or
            there with another measure. A row of them may have been deleted, too.
        measure: Measure of ``named`` and ``withdrawn``; None if both are empty.
        new: Entries that the record lacks.
        forgotten: Entries whose comparison was taken out of the file before it had results.
    """

    measure: str | None
    named: list[Pair] = field(default_factory=list)
    late: list[Pair] = field(default_factory=list)
    withdrawn: list[Pair] = field(default_factory=list)
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


def judge(
    runs_dir: Path,
    known: Iterable[NamedComparison],
    sides: Sides,
    *,
    experiment: str,
    scale: str,
    measure: str | None,
    pairs: Iterable[Pair],
    deleted: Mapping[Benchmark, Collection[Side]] = MappingProxyType({}),
    archived: Collection[str] = (),
    named_in_archive: Iterable[NamedComparison] = (),
) -> Verdict:
    """Decide for each comparison of a call if it was named before its results.

    A comparison on several benchmarks is late if it is late on any of them. A comparison whose rows
    have no runs on a common benchmark gets no entry yet, and is not late.

    An experiment has one measure: that of the comparisons that its file named in time, or else that
    of the first comparison that was taken out. Withdrawn comparisons by another one are left out.
    After results by one measure, all comparisons by another one are late.

    Args:
        runs_dir: Folder of the runs.
        known: The entries of the record.
        sides: The rows of the call that have runs, including runs of earlier calls.
        experiment: Name of the experiment.
        scale: Its scale.
        measure: Measure that the experiment's file names; None if it no longer names a comparison.
        pairs: Comparisons that the experiment's file names, as pairs of rows.
        deleted: Rows that earlier calls had and this one does not have.
        archived: Ids of the finished runs in the archive, which need no folder here.
        named_in_archive: Comparisons that the experiments of the archive named.
    """
    recorded: dict[tuple[str, ...], NamedComparison] = {}
    for entry in known:
        recorded.setdefault(entry.key, entry)
    # If both have a comparison, the record's entry is used.
    entries = {entry.key: entry for entry in named_in_archive} | recorded

    def finished(compared: Iterable[Side]) -> bool:
        return _both_finished(runs_dir, compared, archived)

    def found_rows(entry: NamedComparison) -> tuple[Side, Side] | None:
        # Present rows come last, because `_rows_of` takes the last row of a configuration.
        benchmark = entry.env, entry.model
        configured = (*deleted.get(benchmark, ()), *sides.get(benchmark, {}).values())
        return _rows_of(entry, configured)

    in_time = []
    for entry in entries.values():
        # A late comparison is not tested, so it needs not be kept in the correction.
        if not entry.late and (entry.experiment, entry.scale) == (experiment, scale):
            in_time.append(entry)
    # A new measure may have been chosen for the results by the earlier one, even where the rows of
    # a pair have none yet; with it, the earlier comparisons would leave the correction.
    replaced = any(
        entry.measure != measure and (found := found_rows(entry)) is not None and finished(found)
        for entry in in_time
    )

    verdict = Verdict(measure)
    present: set[tuple[str, ...]] = set()
    for pair in pairs:
        # `str` for mypy: a file that names pairs also names a measure.
        of_pair = list(
            _of_pair(
                sides, pair, finished, experiment=experiment, scale=scale, measure=str(measure)
            )
        )
        late = replaced and not of_pair
        for comparison in of_pair:
            present.add(comparison.key)
            if comparison.key not in entries:
                entry = comparison.model_copy(update={"late": comparison.late or replaced})
                entries[entry.key] = entry
                verdict.new.append(entry)
            late = late or entries[comparison.key].late
        (verdict.late if late else verdict.named).append(pair)

    # Of the comparisons named in time, those whose rows are found were taken out of the file.
    verdict.measure = measure if verdict.named else None
    for entry in in_time:
        if entry.key in present:
            continue
        found = found_rows(entry)
        if found is None:
            # It is of other settings of the rows, or of a benchmark that this call does not run.
            continue
        if not finished(found):
            # Entries of the archive are not in the record, and cannot be removed from it.
            if entry.key in recorded:
                verdict.forgotten.append(entry)
            continue
        pair = (found[0].row, found[1].row)
        verdict.measure = verdict.measure or entry.measure
        # The file may have named it in the other order when another benchmark was run.
        listed = pair in verdict.withdrawn or pair[::-1] in verdict.withdrawn
        if entry.measure == verdict.measure and not listed:
            verdict.withdrawn.append(pair)
    return verdict


def _of_pair(
    sides: Sides,
    pair: Pair,
    late: Callable[[Iterable[Side]], bool],
    *,
    experiment: str,
    scale: str,
    measure: str,
) -> Iterator[NamedComparison]:
    """Yield an entry for each benchmark on which both rows of a pair have runs.

    ``late(both sides)`` decides on each benchmark if the comparison is named late.
    """
    for (env, model), rows in sides.items():
        compared = _compared(rows, pair)
        if compared is not None:
            yield NamedComparison(
                experiment=experiment,
                scale=scale,
                env=env,
                model=model,
                measure=measure,
                first=compared[0].settings,
                second=compared[1].settings,
                late=late(compared),
            )


def _compared(rows: Mapping[str, Side], pair: Pair) -> tuple[Side, Side] | None:
    """Both sides of a pair; None if one has no runs here or both are the same configuration."""
    first, second = (rows.get(name) for name in pair)
    if first is None or second is None or first.settings == second.settings:
        return None
    return first, second


def _rows_of(entry: NamedComparison, rows: Iterable[Side]) -> tuple[Side, Side] | None:
    """The rows of a comparison's two configurations, of several the last; None without both."""
    by_settings = {side.settings: side for side in rows}
    first, second = by_settings.get(entry.first), by_settings.get(entry.second)
    return None if first is None or second is None else (first, second)


def _both_finished(runs_dir: Path, compared: Iterable[Side], archived: Collection[str]) -> bool:
    return all(
        any(run in archived or _is_done(runs_dir, run) for run in side.runs) for side in compared
    )


def _is_done(runs_dir: Path, run: str) -> bool:
    with contextlib.suppress(RecordError):
        return RunFolder(runs_dir / run).read_status().state is State.DONE
    return False


def of_pairs(
    sides: Sides, pairs: Iterable[Pair], *, experiment: str, scale: str, measure: str, late: bool
) -> Iterator[NamedComparison]:
    """Entries for the comparisons of a manifest, all with the same ``late``."""
    for pair in pairs:
        yield from _of_pair(
            sides, pair, lambda _: late, experiment=experiment, scale=scale, measure=measure
        )
