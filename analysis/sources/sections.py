"""Group runs into rows of tables, and find the runs that are missing.

A section is a set of rows that may share a table: their runs have the same scale, environment and
model, and configurations that differ in method and seed only. There is one exception: a row that an
experiment runs under a setting of its own (another trainer, another scorer) stays with the others,
and a footnote names the difference. Runs that differ in anything else (training steps, panels, ...)
get sections of their own.

A row has one configuration in a section. An experiment that has a row of the same name with other
settings of the method therefore gets another section, with all of its rows.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from analysis.sources.configurations import configuration_of, is_prompted, reworded_dose, same_games
from analysis.sources.rows import (
    DEFAULT,
    MAIN,
    Family,
    Rollouts,
    Row,
    RowRun,
    Section,
    first_names,
    more_rollouts,
)
from analysis.sources.run_records import (
    SINGLE,
    ExperimentRecord,
    Problem,
    Run,
    contradiction,
    is_implied,
)
from analysis.sources.settings import (
    differing_keys,
    method_settings,
    own_method_differences,
    setting_differences,
    unusual_comparison,
)
from analysis.sources.shared_settings import host_notes, shaper_notes
from scpo.records.identity import method_choices
from scpo.records.manifest import PlannedRun
from scpo.records.status import State

Runs: TypeAlias = Mapping[str, Run]

# (scale, environment, model, setting)
_Key: TypeAlias = tuple[str, str, str, str | None]

# (scale, environment, model) -> usual setting of a record -> its (row, setting) pairs
_Established: TypeAlias = dict[tuple[str, str, str], dict[str, set[tuple[str, str]]]]

# (experiment, environment, model, row) of each row that is its experiment's only one of a method.
_OnlyRows: TypeAlias = frozenset[tuple[str, str, str, str]]

# How a run that only prompts differs from one that trains, and this one from it, if they agree in
# all settings that both read.
PROMPTING, TRAINING = "no training", "training"


def record_rows(record: ExperimentRecord, runs: Runs, env: str, model: str) -> tuple[Row, ...]:
    """Rows of one experiment on one environment and model."""
    rows = []
    for row in record.rows:
        own = []
        for run in row.runs:
            if (run.env, run.model) == (env, model):
                own.append(RowRun(run.id, run.seed, _state(run, runs, record.scale)))
        rows.append(Row(row.name, row.label, tuple(own)))
    return tuple(rows)


def benchmarks(record: ExperimentRecord) -> tuple[tuple[str, str], ...]:
    """(environment, model) pairs of an experiment in order of appearance."""
    pairs = ((run.env, run.model) for row in record.rows for run in row.runs)
    return tuple(dict.fromkeys(pairs))


def sections(
    records: Iterable[ExperimentRecord],
    runs: Runs,
    rollouts: Rollouts = lambda run: None,
    left_out: Collection[str] = (),
) -> tuple[tuple[Section, ...], tuple[Problem, ...]]:
    """Merge experiments into sections; runs that contradict their record become problems.

    Args:
        records: The experiments.
        runs: Every run by its id.
        rollouts: Rollouts per training step of a run, for the notes on rows with more than others.
        left_out: Ids of runs that cannot be read. No sweep makes them again.
    """
    drafts: dict[_Key, list[_Draft]] = {}
    problems: list[Problem] = []
    records = tuple(records)
    established = _established(records, runs)
    only = (_only_rows(records, runs), _only_rows(records, runs, single_runs=False))
    for record in records:
        settings = _settings(record, runs, established)
        planned: dict[_Key, list[_Planned]] = {}
        for row in record.rows:
            for run in row.runs:
                # Left out, because the run does not belong to this row and seed.
                if run.id in runs and (reason := contradiction(runs[run.id], run, record)):
                    problems.append(Problem(run.id, reason))
                    continue
                key: _Key = (record.scale, run.env, run.model, settings[run.id])
                planned.setdefault(key, []).append(_Planned(row.name, row.label, run))
        for key, own in planned.items():
            _agreeing_draft(drafts.setdefault(key, []), own, runs).add(record, own)

    parts = []
    for key, of_key in drafts.items():
        for draft in of_key:
            part, displaced = draft.section(key, runs, only, left_out)
            parts.append(part)
            problems += displaced

    # Sorted first, because differences are relative to the first section of each benchmark.
    parts.sort(key=_order)
    different = _with_differences(parts, runs)
    return tuple(_noted(part, runs, rollouts) for part in different), tuple(problems)


def _order(part: Section) -> tuple[str, str, str, bool, int, str]:
    """Sort key: on each benchmark and model the main table's section first, then by finished rows.

    The main table is not always the one with most rows: a tuning of learning rates may have more.
    """
    finished = sum(bool(row.finished) for row in part.rows)
    aside = MAIN not in part.experiments
    return (part.scale, part.env, part.model, aside, -finished, part.setting or "")


def _with_differences(parts: Iterable[Section], runs: Runs) -> Iterator[Section]:
    """Yield each section with its differences from the first of its benchmark and model.

    ``reworded`` is set in every section, because no difference names the dose if all sections have
    the same.
    """
    first: dict[tuple[str, str, str], Section] = {}
    with_setting: dict[_Key, Section] = {}
    for part in parts:
        main = first.setdefault((part.scale, part.env, part.model), part)
        alike = with_setting.setdefault((part.scale, part.env, part.model, part.setting), part)
        own = _example_run(part, runs)
        shown = replace(part, reworded=reworded_dose(own.config) if own else 0.0)
        if main is not part and main.setting != part.setting:
            shown = _different(shown, own, _example_run(main, runs), runs)
        if alike is not part:
            shown = _with_apart_rows(shown, alike, runs)
        yield shown


def _with_apart_rows(part: Section, alike: Section, runs: Runs) -> Section:
    """The section with its differences from one of the same setting: those of rows of one name."""

    def apart(show_others: bool) -> str:
        texts = []
        for row in part.rows:
            own = next(_settled_runs(row.runs, runs), None)
            other = next(_settled_runs(alike.row(row.name).runs, runs), None)
            if own is None or other is None:
                continue
            of_method = own_method_differences(own.config, other.config, show_others=show_others)
            trained = method_settings(own.config, other.config)
            if text := "; ".join(filter(None, (of_method, trained))):
                texts.append(f"{row.label}: {text}")
        return "; ".join(texts) or f"of {first_names(part.experiments)}"

    return replace(
        part,
        differs="; ".join(filter(None, (part.differs, apart(show_others=True)))),
        differs_alone="; ".join(filter(None, (part.differs_alone, apart(show_others=False)))),
    )


def _different(part: Section, own: Run | None, other: Run | None, runs: Runs) -> Section:
    """The section with its differences from the first one of its benchmark and model.

    They are printed in a heading, which is about all rows. If some rows have another value of a
    key, each row therefore has a note on it, and the heading only names the key ("as marked").

    Args:
        part: The section.
        own: A run with the setting of the section; None before any has started.
        other: A run with the setting of the first section; None before any has started.
        runs: Every run by its id.
    """
    without_marks = replace(
        part,
        differs=_differences(own, other),
        differs_alone=_differences(own, other, show_others=False),
    )
    if own is None or other is None or own.foreign != other.foreign:
        return without_marks
    configs = _configs_of_rows(part, runs)
    # Keys in which some row differs from the setting of the section.
    mixed = {key for config in configs.values() for key in differing_keys(config, own.config)}
    differing = list(differing_keys(own.config, other.config))
    at_rows = [key for key in differing if key in mixed]
    in_heading = [key for key in differing if key not in mixed]
    if not at_rows:
        return without_marks

    def heading(show_others: bool) -> str:
        games = (own.panels, other.panels)
        text = setting_differences(own.config, other.config, games, at_rows, show_others)
        as_marked = f"{', '.join(key.removesuffix('.name') for key in at_rows)} as marked"
        return "; ".join(filter(None, (text, as_marked)))

    def with_mark(row: Row) -> Row:
        if row.name not in configs:
            return row
        mark = setting_differences(configs[row.name], other.config, without=in_heading)
        return replace(row, differs=mark)

    return replace(
        part.with_each_row(with_mark),
        differs=heading(show_others=True),
        differs_alone=heading(show_others=False),
    )


def _configs_of_rows(part: Section, runs: Runs) -> dict[str, Mapping[str, Any]]:
    """Row -> configuration of its first run; rows of which none has started are left out."""
    configs: dict[str, Mapping[str, Any]] = {}
    for row in part.rows:
        run = next(_settled_runs(row.runs, runs), None)
        if run is not None:
            configs[row.name] = run.config
    return configs


def _example_run(part: Section, runs: Runs) -> Run | None:
    """The first run with the setting of its section; None before any has started."""
    planned = (run for row in part.rows for run in row.runs)
    settled = _settled_runs(planned, runs)
    return next((run for run in settled if run.setting == part.setting), None)


def _differences(run: Run | None, other: Run | None, show_others: bool = True) -> str:
    """How one setting differs from another, in words. The two settings must not be equal.

    Args:
        run: A run with the setting; None before any has started.
        other: A run with the other setting; None before any has started.
        show_others: Name the values of the other setting, too.
    """
    if run is None or other is None:
        return "not started yet"
    if run.foreign != other.foreign:
        if run.foreign:
            return "logged by verl-agent"
        return "not logged by verl-agent"
    games = (run.panels, other.panels)
    text = setting_differences(run.config, other.config, games, show_others=show_others)
    text = text or method_settings(run.config, other.config)
    if text:
        return text
    same_panels = run.panels.keys() == other.panels.keys()
    prompted = is_prompted(run.config)
    if same_panels and (prompted or is_prompted(other.config)):
        return PROMPTING if prompted else TRAINING
    return "other validation panels"


def _noted(part: Section, runs: Runs, rollouts: Rollouts) -> Section:
    """The section with notes at the rows on what is unusual for their method."""
    configs: dict[str, Mapping[str, Any]] = {}
    for row in part.all_rows():
        run = next(_settled_runs(row.runs, runs), None)
        if run is not None and not run.foreign:
            configs.setdefault(row.name, run.config)
    rows = list(part.all_rows())
    shared = host_notes(rows, configs)
    shapers = shaper_notes(rows, configs)

    def with_notes(row: Row) -> Row:
        own = next(_settled_runs(row.runs, runs), None)
        compared = unusual_comparison(own.config) if own and not own.foreign else ""
        own_shared = shared.get(row.name, "")
        rolled = _more_rollouts(row, runs, rollouts)
        unusual = "; ".join(filter(None, (own_shared, compared, shapers.get(row.name), rolled)))
        differs = "; ".join(filter(None, (row.differs, unusual)))
        return replace(row, differs=differs, shared=own_shared, unusual=unusual)

    return part.with_each_row(with_notes)


def _more_rollouts(row: Row, runs: Runs, rollouts: Rollouts) -> str:
    """Note on a row with more rollouts per training step than it plans; empty for other rows."""
    more = more_rollouts(row, runs, rollouts)
    return f"{more[0]:.0f} rollouts per training step instead of {more[1]}" if more else ""


@dataclass(frozen=True)
class _Planned:
    """A run of a record, with the name and the label of its row."""

    row: str
    label: str
    run: PlannedRun


@dataclass(frozen=True)
class _Asked:
    """A run that an experiment planned as a seed of a row."""

    experiment: str
    run: PlannedRun


@dataclass(frozen=True)
class _Draft:
    """Section under construction.

    Attributes:
        labels: Row name -> label.
        asked: Row name -> seed -> the planned runs, in the order of the experiments.
        experiments: Name -> record.
    """

    labels: dict[str, str] = field(default_factory=dict)
    asked: dict[str, dict[int, list[_Asked]]] = field(default_factory=dict)
    experiments: dict[str, ExperimentRecord] = field(default_factory=dict)

    def add(self, record: ExperimentRecord, planned: Iterable[_Planned]) -> None:
        """Add the runs of a record."""
        self.experiments.setdefault(record.experiment, record)
        for own in planned:
            self.labels.setdefault(own.row, own.label)
            seeds = self.asked.setdefault(own.row, {})
            seeds.setdefault(own.run.seed, []).append(_Asked(record.experiment, own.run))

    def agrees(self, planned: Iterable[_Planned], runs: Runs) -> bool:
        """True if rows of one name have one configuration here and among these runs."""
        rows: dict[str, list[PlannedRun]] = {}
        for own in planned:
            rows.setdefault(own.row, []).append(own.run)
        return all(self._agrees(name, own, runs) for name, own in rows.items())

    def _agrees(self, name: str, planned: Sequence[PlannedRun], runs: Runs) -> bool:
        seeds = self.asked.get(name, {})
        known = [entry.run for asked in seeds.values() for entry in asked]
        # A configuration of verl-agent holds names and paths of its run, so no two are equal.
        if any(run.id in runs and runs[run.id].foreign for run in (*known, *planned)):
            return True
        own, other = _configuration(planned, runs), _configuration(known, runs)
        if own is not None and other is not None:
            return own == other
        # The configuration of a run that has not started is not known here, but its id is a hash
        # of it.
        for run in planned:
            ids = {entry.run.id for entry in seeds.get(run.seed, ())}
            if ids and run.id not in ids:
                return False
        return True

    def section(
        self, key: _Key, runs: Runs, only: tuple[_OnlyRows, _OnlyRows], left_out: Collection[str]
    ) -> tuple[Section, list[Problem]]:
        """The section, and the problems of runs that it does not show.

        ``only``: rows with ``only_of_method`` and those with ``only_of_experiments``.
        """
        scale, env, model, setting = key
        chosen, problems = self._choose(scale, runs)
        problems += self._not_shown(chosen)
        planned = (run for seeds in chosen.values() for run in seeds.values())
        settled = _settled_runs(planned, runs)
        usual = next((run for run in settled if run.setting == setting), None)
        every: dict[str, Row] = {}
        for name, seeds in chosen.items():
            row = self._row(name, list(seeds.values()), scale, runs, usual)
            experiments = {
                entry.experiment for asked in self.asked[name].values() for entry in asked
            }
            places = {(experiment, env, model, name) for experiment in experiments}
            of_method, of_experiments = (bool(places & rows) for rows in only)
            every[name] = replace(
                row,
                only_of_method=of_method,
                only_of_experiments=of_experiments,
                is_single=experiments == {SINGLE},
                is_planned=not all(map(is_implied, experiments)),
            )
        families = []
        for record in self.experiments.values():
            families.append(self._family(record, every))
        section = Section(
            *key,
            experiments=tuple(self.experiments),
            rows=tuple(self._with_seeds_of(self._owner(name), row) for name, row in every.items()),
            commands=tuple(self._commands(every.values(), left_out)),
            families=tuple(families),
            unnamed=frozenset(n for n, record in self.experiments.items() if record.asked_as),
        )
        return section, problems

    def _choose(
        self,
        scale: str,
        runs: Runs,
    ) -> tuple[dict[str, dict[int, PlannedRun]], list[Problem]]:
        """Choose one run per row and seed: the first finished one, else the first.

        So a failed run never hides a result. Runs that are not chosen become problems.
        """
        chosen: dict[str, dict[int, PlannedRun]] = {}
        problems: list[Problem] = []
        for name, seeds in self.asked.items():
            chosen[name] = {}
            for seed, asked in sorted(seeds.items()):
                # Several experiments may plan the same row and seed, with different run ids.
                states = {entry.run.id: _state(entry.run, runs, scale) for entry in asked}
                # Among equals, min returns the first: that of the experiment read first.
                best = min(asked, key=lambda entry: states[entry.run.id] != State.DONE)
                chosen[name][seed] = best.run
                for run_id, state in states.items():
                    if run_id != best.run.id:
                        reason = (
                            f"{state}; row {name}, seed {seed} is run {best.run.id} "
                            f"({states[best.run.id]}) of {best.experiment}"
                        )
                        problems.append(Problem(run_id, reason))
        return chosen, problems

    def _family(self, record: ExperimentRecord, every: Mapping[str, Row]) -> Family:
        own = []
        for planned in record.rows:
            if planned.name in every:
                row = self._with_seeds_of(record.experiment, every[planned.name])
                if row.runs:
                    own.append(row)
        return Family(
            experiment=record.experiment,
            title=record.title,
            rows=tuple(row.name for row in record.rows if row.name in self.labels),
            seeds=frozenset(run.seed for row in record.rows for run in row.runs),
            primary=record.primary,
            runs=tuple(own),
        )

    def _not_shown(self, chosen: Mapping[str, Mapping[int, PlannedRun]]) -> Iterator[Problem]:
        """Yield a problem for each single run whose seed the row's experiment does not plan.

        No table or figure shows these runs.
        """
        for name, seeds in chosen.items():
            owner = self._owner(name)
            shown = self._seeds(owner, name)
            for seed, run in seeds.items():
                asked = self.asked[name][seed]
                if seed not in shown and all(is_implied(entry.experiment) for entry in asked):
                    reason = (
                        f"row {name} shows the seeds of {owner}, and seed {seed} is none of them"
                    )
                    yield Problem(run.id, reason)

    def _owner(self, row: str) -> str:
        """Experiment whose seeds a row shows: the main table, else the first one with the row.

        Another experiment may have run more seeds of the row, but a mean over more seeds should not
        be compared with rows of fewer.
        """
        own = [name for name in self.experiments if self._seeds(name, row)]
        return MAIN if MAIN in own else own[0]

    def _with_seeds_of(self, experiment: str, row: Row) -> Row:
        seeds = self._seeds(experiment, row.name)
        return replace(row, runs=tuple(run for run in row.runs if run.seed in seeds))

    def _seeds(self, experiment: str, row: str) -> set[int]:
        seeds = set()
        for seed, asked in self.asked[row].items():
            if any(entry.experiment == experiment for entry in asked):
                seeds.add(seed)
        return seeds

    def _row(
        self,
        name: str,
        planned: Sequence[PlannedRun],
        scale: str,
        runs: Runs,
        usual: Run | None,
    ) -> Row:
        # All runs of a row have the same setting, so the first one with a known setting will do.
        own = next(_settled_runs(planned, runs), None)
        alike = own is None or usual is None or own.setting == usual.setting
        differences = _differences(own, usual)
        return Row(
            name=name,
            label=self.labels[name],
            runs=tuple(RowRun(run.id, run.seed, _state(run, runs, scale)) for run in planned),
            method=own.head.method.name if own else "",
            # The method of a row already implies that it only prompts.
            differs="" if alike or differences in (PROMPTING, TRAINING) else differences,
        )

    def _commands(self, rows: Iterable[Row], left_out: Collection[str]) -> Iterator[str]:
        """Yield one command for the missing runs of each experiment.

        Runs that cannot be read are not among them: no sweep makes these again, but reading a W&B
        project again does.
        """
        missing: dict[str, set[int]] = {}
        for row in rows:
            for run in row.missing:
                asked = self.asked[row.name][run.seed]
                # Of several experiments that plan the run, the first one is enough.
                first = next(entry for entry in asked if entry.run.id == run.id)
                cannot_be_read = run.id in left_out or run.state == State.DAMAGED
                if not cannot_be_read or is_implied(first.experiment):
                    missing.setdefault(first.experiment, set()).add(run.seed)
        for name, seeds in missing.items():
            if command := self.experiments[name].command(sorted(seeds)):
                yield command


def _agreeing_draft(drafts: list[_Draft], planned: Sequence[_Planned], runs: Runs) -> _Draft:
    """The first draft whose rows have the same configurations; a new one if none has."""
    for draft in drafts:
        if draft.agrees(planned, runs):
            return draft
    drafts.append(_Draft())
    return drafts[-1]


def _configuration(planned: Iterable[PlannedRun], runs: Runs) -> str | None:
    """Configuration of the first run that has one, without seed and machine; None before that."""
    for run in planned:
        if run.id in runs and runs[run.id].state != State.DAMAGED:
            return configuration_of(runs[run.id].config)
    return None


def _state(run: PlannedRun, runs: Runs, scale: str) -> str:
    if run.id not in runs:
        return State.PENDING
    known = runs[run.id]
    if known.head.scale == scale:
        return known.state
    return f"of scale {known.head.scale}"


# Rows of methods


def _only_rows(
    records: Sequence[ExperimentRecord], runs: Runs, *, single_runs: bool = True
) -> _OnlyRows:
    """Rows that are their experiment's only one of a method and change none of its settings.

    ``single_runs``: runs in no experiment, too, show the method's settings.
    """
    # Each experiment's rows by their place and method, with a run of each.
    of_method: dict[tuple[str, str, str, str], dict[str, Run]] = {}
    # (scale, environment, model, method) -> a run of a row that is named as the method.
    usual: dict[tuple[str, str, str, str], Run] = {}
    for record in records:
        for (env, model), here in _by_benchmark(record).items():
            for name, run_id in here:
                if run_id not in runs or runs[run_id].foreign:
                    continue
                run = runs[run_id]
                method = run.head.method.name
                if record.experiment != SINGLE:
                    rows = of_method.setdefault((record.experiment, env, model, method), {})
                    rows.setdefault(name, run)
                if name == method and (single_runs or not is_implied(record.experiment)):
                    usual.setdefault((record.scale, env, model, method), run)
    only = set()
    for (experiment, env, model, method), rows in of_method.items():
        for name, run in rows.items():
            place = (run.head.scale, env, model, method)
            if len(rows) == 1 and not _changes_method(run, usual.get(place)):
                only.add((experiment, env, model, name))
    return frozenset(only)


def _changes_method(run: Run, usual: Run | None) -> bool:
    """True if a run has other settings of its method than the paper or a run of the method's row.

    Args:
        run: The run.
        usual: A run of a row that is named as the method; None without one.
    """
    if unusual_comparison(run.config) or method_choices(run.config["method"]):
        return True
    return usual is not None and bool(
        own_method_differences(run.config, usual.config, without=("method.label",))
    )


# Settings


def _established(records: Iterable[ExperimentRecord], runs: Runs) -> _Established:
    """Settings that most rows of a record have, each with the settings of the record's rows."""
    established: _Established = {}
    for record in records:
        for benchmark, here in _by_benchmark(record).items():
            known = [(row, runs[run]) for row, run in here if _settled(run, runs)]
            usual = _usual_settings(known)
            if len(usual) == 1 and not is_implied(record.experiment):
                rows = {(row, run.setting) for row, run in known}
                of_all = established.setdefault((record.scale, *benchmark), {})
                of_all.setdefault(usual[0], set()).update(rows)
    return established


def _by_benchmark(record: ExperimentRecord) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """(row, run id) of a record by environment and model."""
    runs: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for row in record.rows:
        for planned in row.runs:
            runs.setdefault((planned.env, planned.model), []).append((row.name, planned.id))
    return runs


def _settings(
    record: ExperimentRecord, runs: Runs, established: _Established
) -> dict[str, str | None]:
    """Run id -> setting of the section that the run belongs to.

    The usual setting of an experiment is that of most of its rows on a benchmark.

    - A row of which no run has the usual setting was planned under another one on purpose. It joins
      the usual section if it played the same games.
    - Runs of train.py and of W&B were not planned to be compared, so they join only runs with an
      equal setting.
    - A run that is damaged or has not started gets the usual setting.
    """
    settings: dict[str, str | None] = {}
    # Per benchmark, because the settings of ALFWorld and WebShop always differ.
    for benchmark, here in _by_benchmark(record).items():
        known = [(row, runs[run]) for row, run in here if _settled(run, runs)]
        usual = _usual(known, established.get((record.scale, *benchmark), {}))
        for _, run_id in here:
            settings[run_id] = usual.setting if usual else None
        for name, run in known:
            settings[run.id] = run.setting
            if usual is None or is_implied(record.experiment):
                continue
            if _on_purpose(name, run, usual, known):
                settings[run.id] = usual.setting
    return settings


def _settled(run: str, runs: Runs) -> bool:
    """True if a run's setting is known: it has recorded its panels and is not damaged."""
    return run in runs and runs[run].settled and runs[run].state != State.DAMAGED


def _settled_runs(planned: Iterable[RowRun | PlannedRun], runs: Runs) -> Iterator[Run]:
    """Yield the planned runs whose settings are known."""
    for entry in planned:
        if _settled(entry.id, runs):
            yield runs[entry.id]


def _usual_settings(known: Iterable[tuple[str, Run]]) -> list[str]:
    """Settings that most rows have: several, if as many rows have them; none without runs."""
    rows: dict[str, set[str]] = {}
    for name, run in known:
        rows.setdefault(run.setting, set()).add(name)
    most = max(map(len, rows.values()), default=0)
    return [setting for setting, names in rows.items() if len(names) == most]


def _usual(
    known: Sequence[tuple[str, Run]], established: Mapping[str, set[tuple[str, str]]]
) -> Run | None:
    """A run with the setting of most rows; None without runs.

    If several settings have as many rows, one that another record has with the same rows comes
    first, because the same runs would otherwise be in two sections; then the default row's; then
    that of the first run.
    """
    usual = _usual_settings(known)
    own = {(row, run.setting) for row, run in known}
    names = {row for row, _ in own}

    def rank(entry: tuple[str, Run]) -> tuple[bool, int, bool]:
        name, run = entry
        # This record's rows in the records whose usual setting this is.
        elsewhere = set()
        for row, setting in established.get(run.setting, ()):
            if row in names:
                elsewhere.add((row, setting))
        # A row with a setting that it does not have here is of other runs.
        same_rows = len(elsewhere) if elsewhere <= own else 0
        return (run.setting not in usual, -same_rows, name != DEFAULT)

    return min(known, key=rank)[1] if known else None


def _on_purpose(row: str, run: Run, usual: Run, known: Sequence[tuple[str, Run]]) -> bool:
    """True if the row was planned under a setting of its own, and the run has that setting."""
    # The intended setting of a row is that of most of its runs.
    own = Counter(other.setting for name, other in known if name == row)
    # A row with a run in the usual setting was not planned under another one.
    if usual.setting in own or run.setting != own.most_common(1)[0][0]:
        return False
    return run.foreign == usual.foreign and same_games(run.panels, usual.panels)
