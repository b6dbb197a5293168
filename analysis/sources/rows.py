"""Rows of tables, and the sections whose rows may be compared.

``analysis.sources.sections`` builds them from experiments and runs.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

from analysis.sources.run_records import Run, is_implied
from scpo.intervals import summarise
from scpo.records.manifest import PrimaryComparisons
from scpo.records.status import State

NOT_APPLICABLE = "n/a"
DEFAULT = "scpo"  # name of the row of SCPO with its default settings

# A row of several experiments shows the seeds of this one.
MAIN = "main_table"

# Metric of the number of rollouts per training step.
ROLLOUTS = "train/episodes"

# Run id -> mean number of rollouts per training step, None if the run logged none.
Rollouts: TypeAlias = Callable[[str], float | None]

# A row has more rollouts than planned if their mean exceeds the planned number by this factor.
MORE_ROLLOUTS = 1.05

# Largest number of rows that a sentence names.
MOST_NAMED = 6


@dataclass(frozen=True)
class RowRun:
    """One seed of a row; its state is PENDING before its run folder exists."""

    id: str
    seed: int
    state: str


@dataclass(frozen=True)
class Row:
    """One row of a table: all planned seeds, finished or not.

    Attributes:
        name: Name in the experiment's record.
        label: Label in print.
        runs: Its runs.
        method: Method of its runs; empty while none has started.
        differs: Differences from the section's other rows besides the method; empty if none.
        only_of_method: It is an experiment's only row of its method and changes no setting of it,
            so that it is the method's row, under a name of its own.
        only_of_experiments: The same without regard to single runs: one with the method's default
            settings does not make it a variant, which tables of methods leave out.
        is_single: It has only single runs of train.py, and no experiment plans it.
        is_planned: An experiment plans it; False for single runs and those of W&B projects.
        shared: The part of ``differs`` on settings of the estimator that it shares with its host.
        unusual: The part of ``differs`` on what is unusual for its method.
    """

    name: str
    label: str
    runs: tuple[RowRun, ...]
    method: str = ""
    differs: str = ""
    only_of_method: bool = False
    only_of_experiments: bool = False
    is_single: bool = False
    is_planned: bool = True
    shared: str = ""
    unusual: str = ""

    @property
    def finished(self) -> tuple[str, ...]:
        """Ids of the finished runs. Only these enter means."""
        return tuple(run.id for run in self.runs if run.state == State.DONE)

    @property
    def seeds(self) -> set[int]:
        """All planned seeds."""
        return {run.seed for run in self.runs}

    @property
    def finished_seeds(self) -> set[int]:
        """Seeds of the finished runs."""
        return {run.seed for run in self.runs if run.state == State.DONE}

    @property
    def missing(self) -> tuple[RowRun, ...]:
        """Planned runs that are not finished."""
        return tuple(run for run in self.runs if run.state != State.DONE)

    def unfinished(self, left_out: Mapping[str, State]) -> Iterator[RowRun]:
        """``missing``, in state DAMAGED or UNREADABLE where the folder of a run cannot be read.

        Args:
            left_out: Ids of the folders that were left out, each with that state.
        """
        for run in self.missing:
            unreadable = run.state == State.PENDING and run.id in left_out
            yield replace(run, state=left_out[run.id]) if unreadable else run

    def by_seed(self, number: Callable[[str], float | None]) -> dict[int, float | None]:
        """``number(run id)`` of each finished run, by seed; None for a run without it."""
        return {run.seed: number(run.id) for run in self.runs if run.state == State.DONE}

    @property
    def count(self) -> str:
        """Finished and planned seeds, e.g. ``2/3``; ``n/a`` for a row without runs."""
        if not self.runs:
            return NOT_APPLICABLE
        return f"{len(self.finished)}/{len(self.runs)}"


@dataclass(frozen=True)
class Family:
    """Part of an experiment in a section.

    Attributes:
        experiment: Name of the experiment.
        title: Its title.
        rows: Names of its rows in the section.
        seeds: Its planned seeds.
        primary: Comparisons that it named before its runs.
        runs: Its rows, with its planned seeds only.
    """

    experiment: str
    title: str
    rows: tuple[str, ...]
    seeds: frozenset[int]
    primary: PrimaryComparisons | None = None
    runs: tuple[Row, ...] = ()

    def row(self, name: str) -> Row:
        """Row of this name; an empty one if there is none."""
        return _find(self.runs, name)


@dataclass(frozen=True)
class Section:
    """Rows that may be compared.

    Attributes:
        scale: Scale of all its runs.
        env: Environment.
        model: Model.
        setting: Hash of the shared setting; None while no run of it has started.
        experiments: Experiments with rows in it.
        unnamed: Experiments that ``+experiment=<name>`` does not run, because their axes were given
            on a command line or their file is the user's.
        rows: Rows, each with the seeds of one experiment: the main table, or else the first one.
        commands: Commands for the missing runs.
        families: The rows as each experiment planned them.
        differs: Differences from the first section of its benchmark and model, which is the main
            table's or else the one with most finished rows; empty for that section itself.
        differs_alone: ``differs`` without the values of that first section, for a table without it.
        reworded: Share of the observations that credit reads in other words than the game's.
        seeds: Seeds of its finished rows, if another shown section has rows of the same names and
            settings on other seeds; empty otherwise.
        left_out: Note on the seeds that the choice of common seeds left out and on those that are
            shown; empty without that choice, or if nothing was left out.
        asked_rows: Names of its rows that the user chose by name; empty: all.
    """

    scale: str
    env: str
    model: str
    setting: str | None
    experiments: tuple[str, ...]
    rows: tuple[Row, ...]
    commands: tuple[str, ...] = ()
    families: tuple[Family, ...] = ()
    differs: str = ""
    differs_alone: str = ""
    unnamed: frozenset[str] = frozenset()
    seeds: str = ""
    left_out: str = ""
    reworded: float = 0.0
    asked_rows: tuple[str, ...] = ()

    def row(self, name: str) -> Row:
        """Row of this name; an empty one if there is none."""
        return _find(self.rows, name)

    def all_rows(self) -> Iterator[Row]:
        """Yield its rows as they are shown, then as each experiment planned them.

        A run with a seed that is not shown is only in the latter.
        """
        yield from self.rows
        for family in self.families:
            yield from family.runs

    def with_all_seeds(self) -> "Section":
        """The section with the runs of all of its experiments in its rows, not the shown ones only.

        Outputs that compare the rows of each experiment use these.
        """
        merged: dict[str, Row] = {}
        for row in self.all_rows():
            known = merged.setdefault(row.name, row)
            more = tuple(run for run in row.runs if run not in known.runs)
            merged[row.name] = replace(known, runs=known.runs + more)
        return replace(self, rows=tuple(merged.values()))

    def with_each_row(self, change: Callable[[Row], Row]) -> "Section":
        """The section with ``change(row)`` for each of ``all_rows``."""
        families = []
        for family in self.families:
            families.append(replace(family, runs=tuple(map(change, family.runs))))
        return replace(self, rows=tuple(map(change, self.rows)), families=tuple(families))

    def as_asked_by(self, *experiments: str) -> "Section":
        """The section with the rows of these experiments on the seeds that they plan."""
        own: dict[str, Row] = {}
        for family in self.families:
            if family.experiment in experiments:
                for row in family.runs:
                    own.setdefault(row.name, row)
        # A row without runs of theirs is not theirs, even if they have one of that name.
        return replace(self, rows=tuple(own[row.name] for row in self.rows if row.name in own))

    def by_seeds(self) -> tuple["Section", ...]:
        """Split the section into parts whose rows have seeds in common; the main rows come first.

        A row that has no seed of the main table (or else of the first experiment) moves to a part
        of its own experiment, which has all rows of that experiment on the seeds it planned.
        """
        asides = [row for row in self.rows if self.aside(row)]
        main = tuple(row for row in self.rows if row not in asides)
        parts = [replace(self, rows=main)] if main else []
        left = {row.name: row for row in asides}
        for family in self.families:
            if any(family.row(name).runs == row.runs for name, row in left.items()):
                own = tuple(row for row in family.runs if row.name in family.rows)
                parts.append(replace(self, rows=own, experiments=(family.experiment,)))
                left = {name: row for name, row in left.items() if name not in family.rows}
        return tuple(parts)

    def aside(self, row: Row) -> str:
        """Note on a row's seeds if none is among the main table's; empty otherwise."""
        # Without a main table, ``min`` returns the first experiment.
        main = min(self.families, key=lambda family: family.experiment != MAIN, default=None)
        if main is None or not row.seeds or row.seeds & main.seeds:
            return ""
        return (
            f"on {seed_list(row.seeds)}, the rows of {main.experiment} on {seed_list(main.seeds)}"
        )

    def more_seeds(self, row: Row) -> tuple[set[int], dict[str, set[int]]]:
        """Finished seeds of a row as it is shown, and further ones by experiment, most first.

        An experiment is left out if another one has all of its further seeds.
        """
        own = row.finished_seeds
        further: dict[str, set[int]] = {}
        for family in self.families:
            more = family.row(row.name).finished_seeds - own
            if more and not is_implied(family.experiment):
                further[family.experiment] = more
        most_first = sorted(further, key=lambda name: -len(further[name]))
        left: dict[str, set[int]] = {}
        for name in most_first:
            if not any(further[name] <= seeds for seeds in left.values()):
                left[name] = further[name]
        return own, left

    @property
    def apart(self) -> str:
        """End of its name in print, e.g. ``; trainer=local (the others: verl)``."""
        return f"; {self.differs}" if self.differs else ""

    @property
    def sweeps(self) -> tuple[str, ...]:
        """Experiments that a sweep runs by their names, so neither W&B projects nor single runs."""
        named = [name for name in self.experiments if name not in self.unnamed]
        return tuple(name for name in named if not is_implied(name))


def more_rollouts(
    row: Row, runs: Mapping[str, Run], rollouts: Rollouts
) -> tuple[float, int] | None:
    """Find out whether a row has more rollouts than its configuration plans.

    Dynamic sampling rolls out further groups until enough of them have a success and a failure.

    Returns:
        Mean rollouts per training step, and the planned number (groups x siblings). None if the
        mean exceeds it by at most ``MORE_ROLLOUTS``, or if no run has finished.
    """
    measured = summarise(rollouts(run) for run in row.finished)
    trainer = runs[row.finished[0]].config.get("trainer", {}) if row.finished else {}
    if not measured.n or not {"groups", "group_size"} <= trainer.keys():
        return None
    planned = trainer["groups"] * trainer["group_size"]
    return (measured.mean, planned) if measured.mean > MORE_ROLLOUTS * planned else None


def _find(rows: Iterable[Row], name: str) -> Row:
    return next((row for row in rows if row.name == name), Row(name, name, ()))


def seed_list(seeds: Iterable[int]) -> str:
    """Seeds in order; three or more successive ones become a range: ``seeds 2, 3, 20 to 29``."""
    distinct = set(seeds)
    parts: list[str] = []
    for stretch in stretches(distinct):
        if len(stretch) > 2:
            parts.append(f"{stretch[0]} to {stretch[-1]}")
        else:
            parts += map(str, stretch)
    word = "seeds" if len(distinct) > 1 else "seed"
    return f"{word} {', '.join(parts)}"


def stretches(seeds: Iterable[int]) -> list[list[int]]:
    """Seeds in order, split into stretches of successive ones."""
    found: list[list[int]] = []
    for seed in sorted(seeds):
        if found and seed == found[-1][-1] + 1:
            found[-1].append(seed)
        else:
            found.append([seed])
    return found


def first_names(names: Iterable[str]) -> str:
    """The first ``MOST_NAMED`` names, and the number of the others."""
    every = list(names)
    more = len(every) - MOST_NAMED
    return ", ".join(every[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def with_new_runs(
    parts: Iterable[Section], shown: Callable[[Section], Iterable[Row]]
) -> list[Section]:
    """Drop sections that add no finished run to the sections before them.

    For example, an experiment on the group size shares its rows of the default size with another
    experiment.

    Args:
        parts: Sections in the order of the table.
        shown: Rows of a section that the table shows.
    """
    seen: set[str] = set()
    kept = []
    for part in parts:
        runs = {run for row in shown(part) for run in row.finished}
        if not runs <= seen:
            kept.append(part)
        seen |= runs
    return kept


def compared_with_present(parts: Iterable[Section]) -> tuple[Section, ...]:
    """Replace ``differs`` by ``differs_alone`` in sections whose first section is absent."""
    parts = tuple(parts)
    usual = {(part.scale, part.env, part.model) for part in parts if not part.differs}
    named = []
    for part in parts:
        if (part.scale, part.env, part.model) in usual:
            named.append(part)
        else:
            named.append(replace(part, differs=part.differs_alone))
    return tuple(named)
