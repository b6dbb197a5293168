"""Comparisons that a record of an experiment refused, because they were named after their results.

Another record of the same experiment may have named one of them in time, in another folder.
"""

from collections.abc import Collection, Iterable

from analysis.sources.run_records import ExperimentRecord

Pair = tuple[str, str]


def has_pair(pairs: Iterable[Pair], pair: Pair) -> bool:
    """True if a pair, in either order, is among these."""
    return any(pair in (known, known[::-1]) for known in pairs)


def only_rows(record: ExperimentRecord, pair: Pair) -> ExperimentRecord:
    """The record with the rows of a pair only."""
    rows = tuple(row for row in record.rows if row.name in pair)
    return record.model_copy(update={"rows": rows})


def refused(record: ExperimentRecord) -> tuple[Pair, ...]:
    """The comparisons that a record has as named late, and does not test.

    A measure that was changed after results makes a comparison late by the new one, while it is
    still tested by the earlier one.
    """
    tested = record.primary.comparisons if record.primary else ()
    return tuple(pair for pair in record.named_late if not has_pair(tested, pair))


def refusing(record: ExperimentRecord, pairs: Collection[Pair]) -> ExperimentRecord:
    """The record with these comparisons as named late and not tested."""
    primary = record.primary
    if primary is not None:
        tested = tuple(pair for pair in primary.comparisons if not has_pair(pairs, pair))
        primary = primary.model_copy(update={"comparisons": tested}) if tested else None
    late = tuple(dict.fromkeys((*record.named_late, *pairs)))
    withdrawn = tuple(pair for pair in record.withdrawn if not has_pair(pairs, pair))
    names = {"primary": primary, "named_late": late, "withdrawn": withdrawn}
    return record.model_copy(update=names)
