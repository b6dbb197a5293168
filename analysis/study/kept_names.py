"""The named comparisons of an archive's experiments, which added records must not change at will.

A record of another folder may name a comparison whose results the archive has had since before.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

from analysis.sources.named_late import Pair, has_pair, only_rows, refused
from analysis.sources.run_records import ExperimentRecord
from scpo.records.manifest import PrimaryComparisons

REFUSED = "the added record named it after runs of both rows had finished"


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
    known = {record.key: record for record in archived}
    kept = []
    for record in records:
        before = known.get(record.key)
        kept.append(record if before is None else _kept(record, before, held, new, adding=adding))
    return tuple(kept)


def newly_named(
    records: Iterable[ExperimentRecord],
    archived: Sequence[ExperimentRecord],
    held: Collection[str],
) -> Iterator[str]:
    """Yield lines on the changes that these records make to an archive's named comparisons."""
    known = {record.key: record for record in archived}
    # A new archive has none that could change.
    for record in records if known else ():
        before = known.get(record.key)
        old = named_pairs(before) if before else ()
        no_longer = [pair for pair in old if has_pair(refused(record), pair)]
        new = [pair for pair in named_pairs(record) if not has_pair(old, pair)]
        named = (*named_pairs(record), *no_longer)
        gone = [pair for pair in old if not has_pair(named, pair)] if record.primary else []
        late = [pair for pair in new if _have_results(record, pair, held)]
        if new:
            after = f"; its runs were in the archive before: {_shown(late)}" if late else ""
            yield f"{record.experiment}: now named: {_shown(new)}{after}"
        known_late = (*old, *no_longer, *(before.named_late if before else ()))
        too_late = [pair for pair in refused(record) if not has_pair(known_late, pair)]
        if too_late and before:
            yield f"{record.experiment}: named after results, and so not tested: {_shown(too_late)}"
        if gone:
            yield f"{record.experiment}: no longer named: {_shown(gone)}"
        if no_longer:
            yield f"{record.experiment}: no longer tested: {_shown(no_longer)} ({REFUSED})"


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
    old = named_pairs(before)
    results = [pair for pair in old if _have_results(before, pair, held)]
    no_longer = [pair for pair in old if has_pair(refused(record), pair)]
    # The record brings no new run of these, so they stay as the archive has them.
    kept = [pair for pair in no_longer if only_rows(record, pair).run_ids.isdisjoint(new)]
    has_measure = bool(results or kept)
    replaced = has_measure and _measure(record) not in (None, _measure(before))
    late = list(refused(before))
    late += [pair for pair in refused(record) if not has_pair((*kept, *late), pair)]
    named = list(kept)
    for pair in named_pairs(record):
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
    # Late by a measure that replaced the one by which they are tested.
    of_new_measure = []
    for each in (before, record):
        of_new_measure += [pair for pair in each.named_late if not has_pair(refused(each), pair)]
    all_late = dict.fromkeys((*late, *of_new_measure))
    return _with_names(record, primary, all_late, [pair for pair in listed if pair in tested])


def _with_names(
    record: ExperimentRecord,
    primary: PrimaryComparisons | None,
    late: Iterable[Pair],
    withdrawn: Iterable[Pair],
) -> ExperimentRecord:
    names = {"primary": primary, "named_late": tuple(late), "withdrawn": tuple(withdrawn)}
    return record.model_copy(update=names)


def named_pairs(record: ExperimentRecord) -> tuple[Pair, ...]:
    """The comparisons that a record tests."""
    return record.primary.comparisons if record.primary else ()


def _measure(record: ExperimentRecord) -> str | None:
    return record.primary.measure if record.primary else None


def _have_results(record: ExperimentRecord, pair: Pair, held: Collection[str]) -> bool:
    """True if both rows of a pair have some of these runs on one benchmark."""
    benchmarks = []
    for name in pair:
        runs = [run for row in record.rows if row.name == name for run in row.runs]
        benchmarks.append({(run.env, run.model) for run in runs if run.id in held})
    return bool(benchmarks[0] & benchmarks[1])


def _shown(pairs: Iterable[Pair]) -> str:
    return ", ".join(f"{first} − {second}" for first, second in pairs)
