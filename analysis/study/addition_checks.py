"""Refuse additions to an archive that would pool runs which do not belong together."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from analysis.sources.named_late import has_pair
from analysis.sources.run_records import ExperimentRecord, Run
from analysis.sources.settings import configuration_of, own_settings
from analysis.study.kept_names import have_results, named_pairs, record_key
from scpo.errors import ConfigError
from scpo.progress import counted
from scpo.records.manifest import PlannedRow


def refuse_mixed_rows(
    records: Iterable[ExperimentRecord], runs: Mapping[str, Run], added: Collection[str]
) -> None:
    """Refuse an added run of another configuration than the other runs of its row.

    Args:
        records: The experiments as the archive would have them.
        runs: The finished runs that it would have, by id.
        added: Ids of those that are added.

    Raises:
        ConfigError: There is such a run.
    """
    texts = []
    for record in records:
        for row in record.rows:
            for env, configurations in _configurations(row, runs):
                ids = {run_id for own in configurations.values() for run_id in own}
                if len(configurations) > 1 and not ids.isdisjoint(added):
                    named = _in_words(configurations)
                    texts.append(f"{record.experiment}, {row.name}, {env}: {named}")
    if texts:
        raise ConfigError(
            f"a row has one configuration, and with the added runs would have several: "
            f"{'; '.join(texts)}. Give the experiment or the row another name, or make another "
            "archive (--archive, --create)"
        )


def refuse_unnamed(
    sources: Sequence[ExperimentRecord], archived: Sequence[ExperimentRecord], new: Collection[str]
) -> None:
    """Refuse runs of both rows of a comparison that another record names and their own does not.

    The test of a comparison is valid on the seeds that were run after it was named, and these may
    be why it was named. In an archive they would be among its pairs.

    Args:
        sources: The added records as their sources have them.
        archived: The records of the archive.
        new: Ids of the added runs that the archive does not have.

    Raises:
        ConfigError: There are such runs.
    """
    texts = []
    for record in sources:
        own = [*named_pairs(record), *record.named_late]
        for other in (*archived, *sources):
            if record_key(other) != record_key(record):
                continue
            for pair in named_pairs(other):
                if not has_pair(own, pair) and have_results(record, pair, new):
                    texts.append(f"{record.experiment}, {' − '.join(pair)}")
    if texts:
        raise ConfigError(
            "an added record has runs of both rows of a comparison that it does not name, and "
            f"another record names it: {'; '.join(dict.fromkeys(texts))}. Its runs would be among "
            "the pairs of that test. Leave them out, or make another archive (--archive, "
            "--create); `python -m analysis figures` with both folders does not pool them"
        )


def _configurations(
    row: PlannedRow, runs: Mapping[str, Run]
) -> list[tuple[str, dict[str, list[str]]]]:
    """Environment, and configuration -> ids of its runs, for each benchmark of a row."""
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    for run in row.runs:
        if run.id in runs:
            configurations = found.setdefault((run.env, run.model), {})
            configurations.setdefault(configuration_of(runs[run.id].config), []).append(run.id)
    return [(env, configurations) for (env, _), configurations in found.items()]


def _in_words(configurations: Mapping[str, Sequence[str]]) -> str:
    """Each configuration by what differs: ``alpha=0.5 (6 runs), alpha=1.0 (4 runs)``."""
    named = []
    for own, ids in configurations.items():
        settings = ", ".join(own_settings(own, list(configurations)).values())
        named.append(f"{settings} ({counted(len(ids), 'run')})")
    return ", ".join(named)
