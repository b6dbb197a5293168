"""Which runs make which row of a table, and which of them are missing.

A section is a set of rows that may stand under each other: same scale, environment and model, and configs that differ
in method and seed only; one row of an experiment may have a scorer of its own. Runs that differ in anything else
(training steps, panels, ...) get sections of their own.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from analysis.sources.run_records import WANDB, ExperimentRecord, PlannedRun, PrimaryComparisons, Problem, Run
from scpo.tracking import State

NOT_APPLICABLE = "n/a"


@dataclass(frozen=True)
class RowRun:
    """One seed of a row and its state; PENDING when there is no run folder yet."""

    id: str
    seed: int
    state: str


@dataclass(frozen=True)
class Row:
    """One row of a table: all seeds that were asked for, finished or not."""

    name: str
    label: str
    runs: tuple[RowRun, ...]

    @property
    def finished(self) -> tuple[str, ...]:
        """Ids of the finished runs: the only ones that enter a mean."""
        return tuple(run.id for run in self.runs if run.state == State.DONE)

    @property
    def missing(self) -> tuple[RowRun, ...]:
        """Runs that were asked for and are not finished."""
        return tuple(run for run in self.runs if run.state != State.DONE)

    @property
    def count(self) -> str:
        """Seeds finished of seeds asked for, e.g. ``2/3``; ``n/a`` for a row that cannot run here."""
        return f"{len(self.finished)}/{len(self.runs)}" if self.runs else NOT_APPLICABLE


@dataclass(frozen=True)
class Family:
    """An experiment's part in a section: its rows, and the comparisons that it named before its runs."""

    experiment: str
    title: str
    rows: tuple[str, ...]
    primary: PrimaryComparisons | None = None


@dataclass(frozen=True)
class Section:
    """Rows that may be compared."""

    scale: str
    env: str
    model: str
    setting: str | None  # None while no run of it has started
    experiments: tuple[str, ...]
    rows: tuple[Row, ...]
    commands: tuple[str, ...] = ()  # that make the missing runs
    families: tuple[Family, ...] = ()  # one for each experiment

    @property
    def sweeps(self) -> tuple[str, ...]:
        """The experiments of ours that it comes from; a W&B project is none."""
        return tuple(name for name in self.experiments if not name.startswith(WANDB))


def record_rows(record: ExperimentRecord, runs: Mapping[str, Run], env: str, model: str) -> tuple[Row, ...]:
    """The rows of one experiment on one environment and model."""
    return tuple(
        Row(
            row.name,
            row.label,
            tuple(_row_run(run, runs, record.scale) for run in row.runs if (run.env, run.model) == (env, model)),
        )
        for row in record.rows
    )


def benchmarks(record: ExperimentRecord) -> tuple[tuple[str, str], ...]:
    """The (environment, model) pairs of an experiment, in order of appearance."""
    return tuple(dict.fromkeys((run.env, run.model) for row in record.rows for run in row.runs))


def sections(
    records: Iterable[ExperimentRecord], runs: Mapping[str, Run]
) -> tuple[tuple[Section, ...], tuple[Problem, ...]]:
    """Merge experiments into sections; what may not be merged is left out and named."""
    merged: dict[tuple[str, str, str, str | None], _Draft] = {}
    problems: list[Problem] = []
    for record in records:
        settings = _settings(record, runs)
        for row in record.rows:
            for run in row.runs:
                key = (record.scale, run.env, run.model, settings[run.id])
                problem = _wrong_scale(run, record, runs)
                if not problem:
                    problem = merged.setdefault(key, _Draft({}, {}, {}, {})).add(record, row.name, row.label, run)
                problems += [problem] if problem else []
    return tuple(draft.section(key, runs) for key, draft in sorted(merged.items(), key=_section_order)), tuple(problems)


@dataclass(frozen=True)
class _Draft:
    """A section under construction: insertion-ordered dicts of labels, runs by row and seed, experiments by name.

    ``asked_by``: the experiment that first asked for a run, by the run's id.
    """

    labels: dict[str, str]
    planned: dict[str, dict[int, PlannedRun]]
    experiments: dict[str, ExperimentRecord]
    asked_by: dict[str, str]

    def add(self, record: ExperimentRecord, name: str, label: str, run: PlannedRun) -> Problem | None:
        self.labels.setdefault(name, label)
        self.experiments.setdefault(record.experiment, record)
        self.asked_by.setdefault(run.id, record.experiment)
        known = self.planned.setdefault(name, {}).setdefault(run.seed, run)
        if known.id == run.id:
            return None
        place = f"row {name}, seed {run.seed} of {record.experiment}"
        reason = f"{place} is already run {known.id} of another experiment; left out"
        return Problem(run.id, reason)

    def section(self, key: tuple[str, str, str, str | None], runs: Mapping[str, Run]) -> Section:
        rows = tuple(
            Row(name, label, tuple(_row_run(run, runs, key[0]) for _, run in sorted(self.planned[name].items())))
            for name, label in self.labels.items()
        )
        families = tuple(
            Family(
                name, record.title, tuple(row.name for row in record.rows if row.name in self.labels), record.primary
            )
            for name, record in self.experiments.items()
        )
        return Section(*key, tuple(self.experiments), rows, tuple(self._commands(rows)), families)

    def _commands(self, rows: Iterable[Row]) -> Iterator[str]:
        seeds: dict[str, set[int]] = {}
        for run in (run for row in rows for run in row.missing):
            seeds.setdefault(self.asked_by[run.id], set()).add(run.seed)
        for name, missing in seeds.items():
            if command := self.experiments[name].command(sorted(missing)):
                yield command


def _row_run(run: PlannedRun, runs: Mapping[str, Run], scale: str) -> RowRun:
    if run.id not in runs:
        return RowRun(run.id, run.seed, State.PENDING)
    head = runs[run.id].head
    return RowRun(run.id, run.seed, runs[run.id].state if head.scale == scale else f"of scale {head.scale}")


def _settings(record: ExperimentRecord, runs: Mapping[str, Run]) -> dict[str, str | None]:
    """Each run's setting; for one that has not started, that of its experiment on the same benchmark.

    A row that is alone in its setting, for it has another scorer, is a variant: it stands beside the first row.
    """
    planned = [(row.name, run) for row in record.rows for run in row.runs]
    found: dict[str, str | None] = {}
    for benchmark in benchmarks(record):
        here = [(row, run.id) for row, run in planned if (run.env, run.model) == benchmark]
        known = [(row, runs[run]) for row, run in here if run in runs]
        rows: dict[str, set[str]] = {}
        for row, of_row in known:
            rows.setdefault(of_row.setting, set()).add(row)
        first = {one.any_scorer: one.setting for _, one in reversed(known) if one.any_scorer}
        found |= dict.fromkeys((run for _, run in here), known[0][1].setting if known else None)
        for row, one in known:
            beside = first.get(one.any_scorer, one.setting)
            alone = rows[one.setting] == {row} and row not in rows[beside]
            found[one.id] = beside if alone else one.setting
    return found


def _wrong_scale(run: PlannedRun, record: ExperimentRecord, runs: Mapping[str, Run]) -> Problem | None:
    if run.id not in runs or runs[run.id].head.scale == record.scale:
        return None
    reason = (
        f"a run of scale {runs[run.id].head.scale} in the {record.scale}-scale record of {record.experiment}; left out"
    )
    return Problem(run.id, reason)


def _section_order(item: tuple[tuple[str, str, str, str | None], "_Draft"]) -> tuple[str, ...]:
    return tuple(part or "" for part in item[0])
