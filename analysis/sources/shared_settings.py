"""Settings that runs share although their methods differ, and in which they should be equal.

A method that adds credit, such as SCPO, has the estimator of its host. Rows of both are compared,
so their settings of the estimator should be equal, and those of one row on both benchmarks, too.
They differ if a file of conf/ was changed and only some of the runs were run again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from analysis.sources.configurations import leaves, shown_value
from analysis.sources.rows import DEFAULT, Row, Section, first_names
from analysis.sources.run_records import Run
from analysis.sources.settings import COMPARED_BY, OF_THE_METHOD, differing_leaves
from scpo.benchmarks import BENCHMARKS
from scpo.progress import counted
from scpo.schema.method import METHOD_LABELS

# Prefixes of the settings of the trainer that a scale or an experiment chooses for each benchmark.
CHOSEN_PER_BENCHMARK = (
    "trainer.optimizer.learning_rate",
    "trainer.mini_batch_rows",
    "trainer.max_prompt_tokens",
    "trainer.max_response_tokens",
    "trainer.validation.",
)
SECTIONS = ("method", "trainer", "scorer")

# Number of settings that a note on both benchmarks names.
MOST_SETTINGS = 3


class _Hosted(NamedTuple):
    """A row with the parts of its method's configuration that are compared."""

    row: Row
    method: str
    estimator: Mapping[str, Any]
    has_shaper: bool
    config: Mapping[str, Any]

    @property
    def is_host(self) -> bool:
        """True for a row of the method that the estimator is named after."""
        return not self.has_shaper and self.method == self.estimator.get("name")

    @property
    def is_plain(self) -> bool:
        """True if the row is the method's own, so its label promises no change of settings."""
        return self.row.name == self.method or self.row.only_of_method


def estimator_differences(
    config: Mapping[str, Any], other: Mapping[str, Any], others: str = "the others"
) -> str:
    """Describe the settings of the estimator in which runs of two methods differ.

    Args:
        config: The configuration to describe.
        other: Configuration of the run that it is compared with.
        others: What the other is called in print.

    Returns:
        For example ``method.estimator.omega=1.0 (GiGPO: 2.0)``; empty if nothing differs, and for
        two estimators. Identities of states are left out: ``unusual_comparison`` names them.
    """
    first, second = _estimator(config), _estimator(other)
    if not first or first.get("name") != second.get("name"):
        return ""
    own, compared = dict(leaves(first)), dict(leaves(second))
    parts = []
    for key in differing_leaves(own, compared):
        if f"estimator.{key}" not in COMPARED_BY:
            value, usual = shown_value(own, key), shown_value(compared, key)
            parts.append(f"method.estimator.{key}={value} ({others}: {usual})")
    return "; ".join(parts)


def host_notes(rows: Iterable[Row], configs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Row name -> settings of its estimator that no row of its host has.

    A row is compared with the rows of the method that its estimator is named after, or without any
    with the first row of another method. A row named as its method is compared with the host's row
    of that kind, for example ``scpo`` with ``gigpo``. Other rows may have changed a setting, for
    example the normalisation, together with a row of the host, so they need to equal only one of
    these.

    Args:
        rows: Rows that are compared with each other.
        configs: Row name -> configuration of one of its runs.
    """
    by_estimator: dict[str, dict[str, _Hosted]] = {}
    for row in rows:
        config = configs.get(row.name)
        estimator = _estimator(config) if config else {}
        if config and estimator:
            method = config["method"]
            entry = _Hosted(row, str(method["name"]), estimator, bool(method.get("shaper")), config)
            by_estimator.setdefault(str(estimator.get("name")), {}).setdefault(row.name, entry)
    notes = {}
    for group in by_estimator.values():
        entries = list(group.values())
        for entry in entries:
            if note := _host_note(entry, entries):
                notes[entry.row.name] = note
    return notes


def _host_note(entry: _Hosted, group: Sequence[_Hosted]) -> str:
    if entry.is_host:
        return ""
    hosts = [other for other in group if other.is_host]
    plain = [host for host in hosts if host.is_plain]
    if not hosts:
        # Of two other methods the later row has the note.
        hosts = [other for other in group[:1] if other.method != entry.method]
    elif entry.is_plain and plain:
        hosts = plain
    hosts.sort(key=lambda host: not host.is_plain)
    notes = [estimator_differences(entry.config, host.config, host.row.label) for host in hosts]
    return notes[0] if notes and all(notes) else ""


def shaper_notes(rows: Iterable[Row], configs: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Row name -> all settings of the shaper, and the host, that differ from SCPO's default row.

    For rows of the user's methods only: of a row of SCPO the label names what it changes.
    ``unusual_comparison`` names the settings of ``COMPARED_BY``.
    """
    usual = configs.get(DEFAULT)
    if usual is None or not _shaper(usual):
        return {}
    label = next(row.label for row in rows if row.name == DEFAULT)
    notes = {}
    for name, config in configs.items():
        own = config.get("method")
        if not isinstance(own, dict) or own.get("name") in METHOD_LABELS or not _shaper(config):
            continue
        first, second = dict(leaves(_shaper(config))), dict(leaves(_shaper(usual)))
        parts = []
        host = _estimator(config).get("name")
        usual_host = _estimator(usual).get("name")
        if host != usual_host:
            parts.append(f"method.estimator={host} ({label}: {usual_host})")
        for key in differing_leaves(first, second):
            if f"shaper.{key}" not in COMPARED_BY:
                value, other = shown_value(first, key), shown_value(second, key)
                parts.append(f"method.shaper.{key}={value} ({label}: {other})")
        notes[name] = "; ".join(parts)
    return notes


def _shaper(config: Mapping[str, Any]) -> Mapping[str, Any]:
    method = config.get("method")
    shaper = method.get("shaper") if isinstance(method, dict) else None
    return shaper if isinstance(shaper, dict) else {}


def _estimator(config: Mapping[str, Any]) -> Mapping[str, Any]:
    method = config.get("method")
    estimator = method.get("estimator") if isinstance(method, dict) else None
    return estimator if isinstance(estimator, dict) else {}


def notes_across(first: Section, second: Section, runs: Mapping[str, Run]) -> Iterator[str]:
    """Yield notes on rows that an experiment ran on two benchmarks with different settings.

    A table may show both benchmarks of such a row in one line. Settings whose values the benchmarks
    define, such as ``${env.training.normalisation}``, are left out.
    """
    same_place = (first.scale, first.model) == (second.scale, second.model)
    together = set(first.experiments) & set(second.experiments)
    if first.env == second.env or not same_place or not together:
        return
    labels: dict[str, list[str]] = {}
    for row in first.rows:
        other = second.row(row.name)
        if not row.finished or not other.finished:
            continue
        own, others = runs[row.finished[0]], runs[other.finished[0]]
        if own.foreign or others.foreign:
            continue
        places = (_place(first), _place(second))
        if text := "; ".join(_differing(own.config, others.config, places)):
            labels.setdefault(text, []).append(row.label)
    for text, rows in labels.items():
        yield f"{first_names(rows)}: {text}"


def _differing(
    config: Mapping[str, Any], other: Mapping[str, Any], places: tuple[str, str]
) -> list[str]:
    """The settings that differ, each with both values."""
    own, others = _compared_leaves(config), _compared_leaves(other)
    games = dict(leaves(config.get("env") or {}))
    other_games = dict(leaves(other.get("env") or {}))
    texts = []
    for key in differing_leaves(own, others):
        # A label has no effect, and the upper clip range is a setting of the method as well.
        if key in (*OF_THE_METHOD, "method.label") or key.startswith(CHOSEN_PER_BENCHMARK):
            continue
        if not _is_of_benchmark(key, (own, others), (games, other_games)):
            first, second = shown_value(own, key), shown_value(others, key)
            name = key.removesuffix(".name")
            texts.append(f"{name}={first} on {places[0]}, {second} on {places[1]}")
    more = len(texts) - MOST_SETTINGS
    return texts[:MOST_SETTINGS] + ([counted(more, "more setting")] if more > 0 else [])


def _compared_leaves(config: Mapping[str, Any]) -> dict[str, Any]:
    """Values of ``SECTIONS`` by their dotted keys."""
    return dict(leaves({name: config[name] for name in SECTIONS if name in config}))


def _is_of_benchmark(
    key: str,
    values: tuple[Mapping[str, Any], Mapping[str, Any]],
    games: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> bool:
    """True if a setting has on both benchmarks the value of one setting of ``env``.

    Configurations are recorded without interpolations, so the setting is recognised by its name:
    ``shaper.alpha`` is ``${env.shaper_alpha}``.
    """
    name = key.rpartition(".")[2]
    (first, second), (first_games, second_games) = values, games
    for of_env in first_games.keys() & second_games.keys():
        is_equal = first.get(key) == first_games[of_env] and second.get(key) == second_games[of_env]
        if of_env.endswith(name) and is_equal:
            return True
    return False


def _place(part: Section) -> str:
    return BENCHMARKS[part.env].label if part.env in BENCHMARKS else part.env
