"""The named comparisons of an archive's experiments, which added records must not change at will.

A record of another folder may name a comparison whose results the archive has had since before.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from analysis.sources.named_late import Pair, has_pair, only_rows
from analysis.sources.run_records import ExperimentRecord
from scpo.records.manifest import PrimaryComparisons

REFUSED = "the added record named it after runs of both rows had finished"

# What identifies the record of an experiment in an archive.
Key = tuple[str, str, tuple[str, ...]]


def kept_names(
    records: Iterable[ExperimentRecord],
    archived: Iterable[ExperimentRecord],
    held: Collection[str],
    new: Collection[str],
    *,
    adding: bool,
) -> tuple[ExperimentRecord, ...]:
    """Added records, with the named comparisons that their experiments have in the archive then.

    A comparison is late if the archive has it as late, or if it had runs of both rows before it was
    named. One that the archive has as named in time remains so, unless it was taken out of the
    file before there were results, or the added record refused it and brings new runs of its rows.

    Args:
        records: Records to add.
        archived: Records of the archive.
        held: Ids of the runs that the archive had before.
        new: Ids of the added runs that it did not have.
        adding: False if no run is added or repaired; then nothing changes.
    """
    known = {_key(record): record for record in archived}
    kept = []
    for record in records:
        before = known.get(_key(record))
        kept.append(record if before is None else _kept(record, before, held, new, adding=adding))
    return tuple(kept)


def newly_named(
    records: Iterable[ExperimentRecord],
    archived: Sequence[ExperimentRecord],
    held: Collection[str],
) -> Iterator[str]:
    """Yield lines on the changes that these records make to an archive's named comparisons."""
    known = {_key(record): record for record in archived}
    # A new archive has none that could change.
    for record in records if known else ():
        before = known.get(_key(record))
        old = _named(before) if before else ()
        refused = [pair for pair in old if has_pair(record.named_late, pair)]
        new = [pair for pair in _named(record) if not has_pair(old, pair)]
        named = (*_named(record), *refused)
        gone = [pair for pair in old if not has_pair(named, pair)] if record.primary else []
        late = [pair for pair in new if _have_results(record, pair, held)]
        if new:
            after = f"; its runs were in the archive before: {_shown(late)}" if late else ""
            yield f"{record.experiment}: now named: {_shown(new)}{after}"
        if gone:
            yield f"{record.experiment}: no longer named: {_shown(gone)}"
        if refused:
            yield f"{record.experiment}: no longer tested: {_shown(refused)} ({REFUSED})"


def _kept(
    record: ExperimentRecord,
    before: ExperimentRecord,
    held: Collection[str],
    new: Collection[str],
    *,
    adding: bool,
) -> ExperimentRecord:
    if not adding:
        former = {"former": before.former, "superseded": before.superseded}
        record = record.model_copy(update=former)
        return _with_names(record, before.primary, before.named_late, before.withdrawn)
    old = _named(before)
    results = [pair for pair in old if _have_results(before, pair, held)]
    refused = [pair for pair in old if has_pair(record.named_late, pair)]
    # The record brings no new run of these, so they stay as the archive has them.
    kept = [pair for pair in refused if only_rows(record, pair).run_ids.isdisjoint(new)]
    has_measure = bool(results or kept)
    replaced = has_measure and _measure(record) not in (None, _measure(before))
    late = list(before.named_late)
    late += [pair for pair in record.named_late if not has_pair((*kept, *late), pair)]
    named = list(kept)
    for pair in _named(record):
        if has_pair(old, pair):
            named.append(pair)
        elif not has_pair(late, pair):
            is_late = replaced or _have_results(before, pair, held)
            (late if is_late else named).append(pair)
    withdrawn = [pair for pair in results if not has_pair((*named, *late), pair)]
    measure = _measure(before) if has_measure else _measure(record)
    tested = (*named, *withdrawn)
    primary = None
    if measure and tested:
        primary = PrimaryComparisons(measure=measure, comparisons=tested)
    listed = dict.fromkeys((*before.withdrawn, *record.withdrawn, *withdrawn))
    return _with_names(record, primary, late, [pair for pair in listed if pair in tested])


def _with_names(
    record: ExperimentRecord,
    primary: PrimaryComparisons | None,
    late: Iterable[Pair],
    withdrawn: Iterable[Pair],
) -> ExperimentRecord:
    names = {"primary": primary, "named_late": tuple(late), "withdrawn": tuple(withdrawn)}
    return record.model_copy(update=names)


def _key(record: ExperimentRecord) -> Key:
    return record.experiment, record.scale, record.overrides


def _named(record: ExperimentRecord) -> tuple[Pair, ...]:
    return record.primary.comparisons if record.primary else ()


def _measure(record: ExperimentRecord) -> str | None:
    return record.primary.measure if record.primary else None


def _have_results(record: ExperimentRecord, pair: Pair, held: Collection[str]) -> bool:
    """True if the archive has runs of both rows on one benchmark."""
    benchmarks = []
    for name in pair:
        runs = [run for row in record.rows if row.name == name for run in row.runs]
        benchmarks.append({(run.env, run.model) for run in runs if run.id in held})
    return bool(benchmarks[0] & benchmarks[1])


def _shown(pairs: Iterable[Pair]) -> str:
    return ", ".join(f"{first} − {second}" for first, second in pairs)
