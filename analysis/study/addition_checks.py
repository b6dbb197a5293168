"""Refuse additions to an archive that would pool runs which do not belong together."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from analysis.sources.configurations import configuration_of
from analysis.sources.named_late import Pair, has_pair
from analysis.sources.rows import seed_list
from analysis.sources.run_records import ExperimentRecord, Key, Run
from analysis.sources.settings import own_settings
from analysis.study.kept_names import named_pairs
from scpo.errors import ConfigError
from scpo.progress import counted
from scpo.records.files import text_sum

# Environment, model and seed.
Place = tuple[str, str, int]


def refuse_mixed_rows(
    records: Iterable[ExperimentRecord],
    archived: Iterable[ExperimentRecord],
    runs: Mapping[str, Run],
) -> None:
    """Refuse an addition that gives a row runs of more configurations than it had.

    Args:
        records: The experiments as the archive would have them.
        archived: The experiments as it has them. An older version could mix configurations.
        runs: The finished runs that it would have, by id.

    Raises:
        ConfigError: A row would have further configurations.
    """
    before: dict[tuple[Key, str, str, str], dict[str, list[str]]] = {}
    for record in archived:
        before |= _configurations(record, runs)
    texts = []
    for record in records:
        for place, configurations in _configurations(record, runs).items():
            _, row, env, _ = place
            if len(configurations) > max(1, len(before.get(place, ()))):
                texts.append(f"{record.experiment}, {row}, {env}: {_in_words(configurations)}")
    if texts:
        raise ConfigError(
            "a row has one configuration, and with the added runs would have several: "
            f"{'; '.join(texts)}. Give the experiment or the row another name, or make another "
            "archive (--archive, --create)"
        )


def refuse_two_measures(sources: Iterable[ExperimentRecord]) -> None:
    """Refuse records of one experiment that name their comparisons by different measures.

    Raises:
        ConfigError: There are such records.
    """
    measures: dict[Key, str] = {}
    for record in sources:
        if record.primary is not None:
            known = measures.setdefault(record.key, record.primary.measure)
            if known != record.primary.measure:
                raise ConfigError(
                    f"{record.experiment}: one record names its comparisons by {known}, another "
                    f"by {record.primary.measure}. Add one of them, or make another archive "
                    "(--archive, --create)"
                )


def refuse_unnamed(
    records: Iterable[ExperimentRecord],
    archived: Sequence[ExperimentRecord],
    sources: Sequence[ExperimentRecord],
    held: Collection[str],
    runs: Collection[str],
) -> None:
    """Refuse an addition that gives a test pairs of runs whose records did not name it.

    The test of a comparison is valid on the seeds that were run after it was named. Those of
    another record may be why it was named.

    Args:
        records: The experiments as the archive would have them.
        archived: The experiments as it has them.
        sources: The added records as their sources have them.
        held: Ids of the finished runs that the archive has.
        runs: Ids of those that it would have.

    Raises:
        ConfigError: There are such pairs.
    """
    texts = []
    for record in records:
        before = [each for each in archived if each.key == record.key]
        added = [each for each in sources if each.key == record.key]
        for pair in named_pairs(record):
            named = _runs_that_name(pair, record, before, added, held)
            known = {ids for each in before for _, ids in _pairs_of_runs(each, pair, held)}
            seeds = []
            for (_, _, seed), ids in _pairs_of_runs(record, pair, runs):
                if ids not in known and not named.issuperset(ids):
                    seeds.append(seed)
            if seeds:
                texts.append(f"{record.experiment}, {' − '.join(pair)} ({seed_list(seeds)})")
    if texts:
        raise ConfigError(
            "added runs would be pairs of a comparison that their record does not name, and "
            f"another record does: {'; '.join(texts)}. Leave them out, or make another archive "
            "(--archive, --create); `python -m analysis figures` with both folders does not pool "
            "them"
        )


def _runs_that_name(
    pair: Pair,
    record: ExperimentRecord,
    before: Iterable[ExperimentRecord],
    added: Sequence[ExperimentRecord],
    held: Collection[str],
) -> set[str]:
    """Ids of the runs of an experiment whose own record names a pair (``_names``).

    The archive's record also plans unfinished runs of sources that did not name the pair.
    """
    unnamed: set[str] = set()
    for each in added:
        if not _names(each, pair, record):
            unnamed |= each.run_ids - set(held)
    named: set[str] = set()
    for each in before:
        if _names(each, pair, record):
            named |= each.run_ids - unnamed
    for each in added:
        if _names(each, pair, record):
            named |= each.run_ids
    return named


def _names(record: ExperimentRecord, pair: Pair, tested: ExperimentRecord) -> bool:
    """True if a record names the pair by the measure of ``tested``, or has it as named late."""
    if has_pair(record.named_late, pair):
        return True
    measures = [each.primary.measure for each in (record, tested) if each.primary]
    return has_pair(named_pairs(record), pair) and len(set(measures)) == 1


def _pairs_of_runs(
    record: ExperimentRecord, pair: Pair, runs: Collection[str]
) -> Iterator[tuple[Place, tuple[str, str]]]:
    """Yield each environment, model and seed at which both rows have a run, and the runs' ids."""
    by_place: list[dict[Place, str]] = []
    for name in pair:
        found: dict[Place, str] = {}
        for row in record.rows:
            if row.name == name:
                found |= {(run.env, run.model, run.seed): run.id for run in row.runs}
        by_place.append({place: run_id for place, run_id in found.items() if run_id in runs})
    first, second = by_place
    for place in sorted(first.keys() & second.keys()):
        yield place, (first[place], second[place])


def _configurations(
    record: ExperimentRecord, runs: Mapping[str, Run]
) -> dict[tuple[Key, str, str, str], dict[str, list[str]]]:
    """Record, row, environment and model -> configuration -> ids of its finished runs."""
    found: dict[tuple[Key, str, str, str], dict[str, list[str]]] = {}
    for row in record.rows:
        for run in row.runs:
            if run.id in runs:
                place = (record.key, row.name, run.env, run.model)
                own = configuration_of(runs[run.id].config)
                found.setdefault(place, {}).setdefault(own, []).append(run.id)
    return found


def _in_words(configurations: Mapping[str, Sequence[str]]) -> str:
    """Each configuration by what differs: ``alpha=0.5 (6 runs), alpha=1.0 (4 runs)``."""
    named = []
    for own, ids in configurations.items():
        settings = ", ".join(own_settings(own, list(configurations)).values())
        named.append(f"{settings or text_sum(own.encode())[:6]} ({counted(len(ids), 'run')})")
    return ", ".join(named)
