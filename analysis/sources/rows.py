"""Which runs make which row of a table, and which of them are missing.

A section is a set of rows that may stand under each other: same scale, environment and model, and
configs that differ in method and seed only. A row that its experiment runs under a setting of its
own (another trainer, another scorer) stands with the others and says what differs. Other runs that
differ in anything else (training steps, panels, ...) get sections of their own.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from scpo.errors import ScpoError
from scpo.records import State
from scpo.records.manifest import PlannedRun, PrimaryComparisons

from analysis.sources.differences import same_games, setting_differences
from analysis.sources.run_records import ExperimentRecord, Problem, Run, is_implied

NOT_APPLICABLE = "n/a"
DEFAULT = "scpo"
MAIN = "main_table"  # the experiment whose seeds a row shows that several have


@dataclass(frozen=True)
class RowRun:
    """One seed of a row and its state; PENDING when there is no run folder yet."""

    id: str
    seed: int
    state: str


@dataclass(frozen=True)
class Row:
    """One row of a table: all seeds that were asked for, finished or not.

    ``method`` is that of its runs, empty while none has started; ``differs`` says what sets its
    runs apart from those of the section's other rows besides the method.
    """

    name: str
    label: str
    runs: tuple[RowRun, ...]
    method: str = ""
    differs: str = ""

    @property
    def finished(self) -> tuple[str, ...]:
        """Ids of the finished runs: the only ones that enter a mean."""
        return tuple(run.id for run in self.runs if run.state == State.DONE)

    @property
    def missing(self) -> tuple[RowRun, ...]:
        """Runs that were asked for and are not finished."""
        return tuple(run for run in self.runs if run.state != State.DONE)

    def by_seed(self, number: Callable[[str], float | None]) -> dict[int, float | None]:
        """A number of its finished runs, by seed; None for a run that does not have it."""
        return {run.seed: number(run.id) for run in self.runs if run.state == State.DONE}

    @property
    def count(self) -> str:
        """Seeds finished of seeds asked for, e.g. ``2/3``; ``n/a`` for a row that cannot run here."""
        return f"{len(self.finished)}/{len(self.runs)}" if self.runs else NOT_APPLICABLE


@dataclass(frozen=True)
class Family:
    """An experiment's part in a section: its rows, its seeds, and the comparisons that it named before its runs."""

    experiment: str
    title: str
    rows: tuple[str, ...]
    seeds: frozenset[int]
    primary: PrimaryComparisons | None = None
    runs: tuple[Row, ...] = ()  # its rows with the seeds that it asked for

    def row(self, name: str) -> Row:
        """Its row of this name; one without runs if there is none."""
        return next((row for row in self.runs if row.name == name), Row(name, name, ()))


@dataclass(frozen=True)
class Section:
    """Rows that may be compared, each with the seeds that one experiment asked for.

    Where several experiments have a row, those are the main table's, else the first one's;
    ``families`` has the rows as each experiment asked for them. Of the sections of one benchmark
    and model, the first is the one with most finished rows; ``differs`` says what sets another one
    apart from it.
    """

    scale: str
    env: str
    model: str
    setting: str | None  # None while no run of it has started
    experiments: tuple[str, ...]
    rows: tuple[Row, ...]
    commands: tuple[str, ...] = ()  # that make the missing runs
    families: tuple[Family, ...] = ()  # one for each experiment
    differs: str = ""

    def row(self, name: str) -> Row:
        """The row of this name; one without runs if there is none."""
        return next((row for row in self.rows if row.name == name), Row(name, name, ()))

    def as_asked_by(self, *experiments: str) -> "Section":
        """The same section, the rows of these experiments with the seeds that they ask for."""
        families = [family for family in self.families if family.experiment in experiments]
        own = {row.name: row for family in reversed(families) for row in family.runs}
        return replace(self, rows=tuple(own.get(row.name, row) for row in self.rows))

    @property
    def apart(self) -> str:
        """The end of its name in print, e.g. ``; trainer=local (the others: verl)``."""
        return f"; {self.differs}" if self.differs else ""

    @property
    def sweeps(self) -> tuple[str, ...]:
        """The experiments that a sweep can run again; a W&B project or single runs are none."""
        return tuple(name for name in self.experiments if not is_implied(name))


def record_rows(
    record: ExperimentRecord, runs: Mapping[str, Run], env: str, model: str
) -> tuple[Row, ...]:
    """The rows of one experiment on one environment and model."""
    return tuple(
        Row(
            row.name,
            row.label,
            tuple(
                RowRun(run.id, run.seed, _state(run, runs, record.scale))
                for run in row.runs
                if (run.env, run.model) == (env, model)
            ),
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
    merged: dict[_Key, _Draft] = {}
    problems: list[Problem] = []
    for record in records:
        settings = _settings(record, runs)
        for row in record.rows:
            for run in row.runs:
                key = (record.scale, run.env, run.model, settings[run.id])
                if problem := _wrong_scale(run, record, runs):
                    problems.append(problem)
                else:
                    merged.setdefault(key, _Draft()).add(record, row.name, row.label, run)
    made = []
    for place, draft in merged.items():
        section, displaced = draft.section(place, runs)
        made.append(section)
        problems += displaced
    made.sort(
        key=lambda part: (part.scale, part.env, part.model, -_finished(part), part.setting or "")
    )
    return tuple(_beside_the_first(made, runs)), tuple(problems)


_Key = tuple[str, str, str, str | None]


def _finished(part: Section) -> int:
    return sum(bool(row.finished) for row in part.rows)


def _beside_the_first(parts: Iterable[Section], runs: Mapping[str, Run]) -> Iterator[Section]:
    """Each section with what sets it apart from the first of its benchmark and model."""
    first: dict[tuple[str, str, str], Section] = {}
    for part in parts:
        main = first.setdefault((part.scale, part.env, part.model), part)
        yield (
            part
            if main is part
            else replace(part, differs=_apart(_started(part, runs), _started(main, runs)))
        )


def _started(part: Section, runs: Mapping[str, Run]) -> Run | None:
    """A run of the section that stands for its setting."""
    known = [runs[run.id] for row in part.rows for run in row.runs if _settled(run.id, runs)]
    return next((run for run in known if run.setting == part.setting), None)


def _apart(one: Run | None, other: Run | None) -> str:
    if one is None or other is None:
        return "not started yet"
    if one.foreign != other.foreign:
        return "logged by verl-agent" if one.foreign else "not logged by verl-agent"
    return (
        setting_differences(one.config, other.config, (one.panels, other.panels))
        or "another setting"
    )


@dataclass(frozen=True)
class _Asked:
    """A run that an experiment asked for as a seed of a row."""

    experiment: str
    run: PlannedRun


@dataclass(frozen=True)
class _Draft:
    """Section under construction; the dicts keep the order of insertion.

    ``asked``: by row and seed, the runs that experiments asked for, the first one first.
    """

    labels: dict[str, str] = field(default_factory=dict)
    asked: dict[str, dict[int, list[_Asked]]] = field(default_factory=dict)
    experiments: dict[str, ExperimentRecord] = field(default_factory=dict)

    def add(self, record: ExperimentRecord, name: str, label: str, run: PlannedRun) -> None:
        self.labels.setdefault(name, label)
        self.experiments.setdefault(record.experiment, record)
        self.asked.setdefault(name, {}).setdefault(run.seed, []).append(
            _Asked(record.experiment, run)
        )

    def section(self, key: _Key, runs: Mapping[str, Run]) -> tuple[Section, list[Problem]]:
        """The section, and the runs that another one of the same row and seed displaces."""
        chosen: dict[str, dict[int, PlannedRun]] = {}
        problems = []
        for name, seeds in self.asked.items():
            chosen[name] = {}
            for seed, several in sorted(seeds.items()):
                # The first that is finished, else the first: what failed never hides a result.
                best = min(several, key=lambda asked: _state(asked.run, runs, key[0]) != State.DONE)
                chosen[name][seed] = best.run
                for run_id in dict.fromkeys(asked.run.id for asked in several):
                    if run_id != best.run.id:
                        state = _state(
                            next(one.run for one in several if one.run.id == run_id), runs, key[0]
                        )
                        reason = (
                            f"{state}; row {name}, seed {seed} is run {best.run.id} "
                            f"({_state(best.run, runs, key[0])}) of {best.experiment}; left out"
                        )
                        problems.append(Problem(run_id, reason))
        problems += self._not_shown(chosen)
        known = [
            runs[run.id]
            for row in chosen.values()
            for run in row.values()
            if _settled(run.id, runs)
        ]
        usual = next((run for run in known if run.setting == key[3]), None)
        every = {
            name: self._row(name, seeds.values(), key[0], runs, usual)
            for name, seeds in chosen.items()
        }
        rows = tuple(self._with_its_seeds(row) for row in every.values())
        families = tuple(
            self._family(
                record,
                {name: self._with_seeds_of(record.experiment, row) for name, row in every.items()},
            )
            for record in self.experiments.values()
        )
        section = Section(
            *key, tuple(self.experiments), rows, tuple(self._commands(every.values())), families
        )
        return section, problems

    def _family(self, record: ExperimentRecord, rows: Mapping[str, Row]) -> Family:
        return Family(
            record.experiment,
            record.title,
            tuple(row.name for row in record.rows if row.name in self.labels),
            frozenset(run.seed for row in record.rows for run in row.runs),
            record.primary,
            tuple(
                rows[row.name] for row in record.rows if row.name in rows and rows[row.name].runs
            ),
        )

    def _not_shown(self, chosen: Mapping[str, Mapping[int, PlannedRun]]) -> Iterator[Problem]:
        """Single runs of seeds that the row's experiment does not ask for: no other view has them."""
        for name, seeds in chosen.items():
            owner = self._owner(name)
            shown = self._seeds(owner, name)
            for seed, run in seeds.items():
                if seed not in shown and all(
                    is_implied(asked.experiment) for asked in self.asked[name][seed]
                ):
                    reason = f"row {name} shows the seeds of {owner}, and seed {seed} is none of them; left out"
                    yield Problem(run.id, reason)

    def _with_its_seeds(self, row: Row) -> Row:
        """A row of a section shows the seeds that its experiment asked for.

        Another experiment may have run more seeds of it; a mean over these would be compared with
        rows of fewer.
        """
        return self._with_seeds_of(self._owner(row.name), row)

    def _owner(self, row: str) -> str:
        """The experiment whose seeds a row shows: the main table, else the first that has the row."""
        own = [name for name in self.experiments if self._seeds(name, row)]
        return MAIN if MAIN in own else own[0]

    def _with_seeds_of(self, experiment: str, row: Row) -> Row:
        seeds = self._seeds(experiment, row.name)
        return replace(row, runs=tuple(run for run in row.runs if run.seed in seeds))

    def _seeds(self, experiment: str, row: str) -> set[int]:
        asked = self.asked[row].items()
        return {
            seed for seed, several in asked if any(one.experiment == experiment for one in several)
        }

    def _row(
        self,
        name: str,
        planned: Iterable[PlannedRun],
        scale: str,
        runs: Mapping[str, Run],
        usual: Run | None,
    ) -> Row:
        planned = list(planned)
        own = next((runs[run.id] for run in planned if _settled(run.id, runs)), None)
        alike = own is None or usual is None or own.setting == usual.setting
        return Row(
            name,
            self.labels[name],
            tuple(RowRun(run.id, run.seed, _state(run, runs, scale)) for run in planned),
            own.head.method.name if own else "",
            "" if alike else _apart(own, usual),
        )

    def _commands(self, rows: Iterable[Row]) -> Iterator[str]:
        missing: dict[str, set[int]] = {}
        for row in rows:
            for run in row.missing:
                first = next(one for one in self.asked[row.name][run.seed] if one.run.id == run.id)
                missing.setdefault(first.experiment, set()).add(run.seed)
        for name, seeds in missing.items():
            if command := self.experiments[name].command(sorted(seeds)):
                yield command


def _state(run: PlannedRun, runs: Mapping[str, Run], scale: str) -> str:
    if run.id not in runs:
        return State.PENDING
    head = runs[run.id].head
    return runs[run.id].state if head.scale == scale else f"of scale {head.scale}"


def _settings(record: ExperimentRecord, runs: Mapping[str, Run]) -> dict[str, str | None]:
    """The setting of the section that each run stands in: its own, or that of the rows it is compared with.

    The usual setting of an experiment is that of most of its rows on a benchmark. A row that has no
    run in it was asked for with a setting of its own and stands beside the others all the same, if
    it played the same games. Runs that no experiment asked for stand with their equals alone. One
    that has not started, or is damaged, takes the usual setting.
    """
    found: dict[str, str | None] = {}
    for benchmark in benchmarks(record):
        here = [
            (row.name, run.id)
            for row in record.rows
            for run in row.runs
            if (run.env, run.model) == benchmark
        ]
        known = [(row, runs[run]) for row, run in here if _settled(run, runs)]
        usual = _usual(known)
        found |= dict.fromkeys((run for _, run in here), usual.setting if usual else None)
        for row, run in known:
            found[run.id] = run.setting
            if (
                usual
                and not is_implied(record.experiment)
                and _stands_beside(row, run, usual, known)
            ):
                found[run.id] = usual.setting
    return found


def _settled(run: str, runs: Mapping[str, Run]) -> bool:
    """Whether a run's setting is known: its panels, a part of it, are recorded when it starts."""
    return run in runs and runs[run].settled and runs[run].state != State.DAMAGED


def _usual(known: Sequence[tuple[str, Run]]) -> Run | None:
    """A run of the setting that most rows have; of equals, the one that the default is in, then the first."""
    rows: dict[str, set[str]] = {}
    for row, run in known:
        rows.setdefault(run.setting, set()).add(row)
    ordered = sorted(
        known, key=lambda item: (-len(rows[item[1].setting]), DEFAULT not in rows[item[1].setting])
    )
    return ordered[0][1] if ordered else None


def _stands_beside(row: str, run: Run, usual: Run, known: Sequence[tuple[str, Run]]) -> bool:
    """Whether a row was asked for in another setting than the usual one, and this run has it."""
    own = Counter(other.setting for name, other in known if name == row)
    apart = usual.setting not in own and run.setting == own.most_common(1)[0][0]
    return apart and run.foreign == usual.foreign and same_games(run.panels, usual.panels)


def _wrong_scale(
    run: PlannedRun, record: ExperimentRecord, runs: Mapping[str, Run]
) -> Problem | None:
    if run.id not in runs or runs[run.id].head.scale == record.scale:
        return None
    reason = (
        f"a run of scale {runs[run.id].head.scale} in the {record.scale}-scale record of "
        f"{record.experiment}; left out"
    )
    return Problem(run.id, reason)


class MissingRunsError(ScpoError, LookupError):
    """No finished run has what an output needs; ``command`` makes the runs."""

    def __init__(self, needed: str, command: str) -> None:
        super().__init__(f"no {needed}. Make them with:\n{command}")
        self.needed = needed
        self.command = command


def missing_runs(needed: str, parts: Sequence[Section], *experiments: str) -> MissingRunsError:
    """The error with the commands of these experiments; of none, of the recorded ones that are not finished.

    What W&B lacks (diagnostics are not sent there) only an experiment of ours can make.
    """
    recorded = [name for part in parts for name in part.sweeps]
    names = experiments or tuple(dict.fromkeys(recorded)) or ("ablation",)
    scale = f" scale={parts[0].scale}" if parts and parts[0].scale != "mini" else ""
    return MissingRunsError(
        needed, "\n".join(f"python sweep.py +experiment={name}{scale}" for name in names)
    )
