"""Records for runs that no experiment lists: runs of W&B projects and of train.py.

Tables need rows. The row of such a run is derived from its id (our runs) or its method
(verl-agent).
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from analysis.sources.run_records import SINGLE, WANDB, ExperimentRecord, Problem, Run, is_implied
from analysis.sources.settings import configuration_of, variants
from scpo.progress import counted
from scpo.records.manifest import EXPERIMENTS, PlannedRow, PlannedRun
from scpo.records.status import State
from scpo.schema.env import TUNING
from scpo.schema.method import method_label

# Largest number of runs in no experiment that a message names.
MOST_NAMED = 6

# (scale, environment, model, row name)
Place: TypeAlias = tuple[str, str, str, str]

# (key, value) pairs that set a row apart from others of its name.
Variant: TypeAlias = tuple[tuple[str, str], ...]

# Name of an ablation's row -> its label in print.
ABLATION_LABELS = {
    "no_monotonicity": "− monotonicity",
    "chronological": "chronological order",
    "shortest_reference": "shortest reference",
}


def implied_records(
    runs: Iterable[Run], known: Mapping[Place, str]
) -> tuple[ExperimentRecord, ...]:
    """One record per W&B project and scale, and one per scale for runs of train.py.

    Rows are in order of appearance. A row has one configuration on each benchmark: each further
    configuration of a method is a row named by what differs (``scpo_alpha_2.0``: SCPO, alpha=2.0).

    Args:
        runs: The runs.
        known: Configuration of each row of the experiments. Runs of the same row name with another
            configuration get a row of their own.
    """
    groups: dict[tuple[str, Any], dict[tuple[str, str], list[Run]]] = {}
    for run, name, variant in _named(runs, known):
        rows = groups.setdefault(_source(run), {})
        label = _label(name, run)
        if variant:
            label += f", {variant_note(variant)}"
        rows.setdefault((full_name(name, variant), label), []).append(run)
    return tuple(_record(source, scale, rows) for (source, scale), rows in groups.items())


def variant_notes(runs: Mapping[str, Run], records: Sequence[ExperimentRecord]) -> dict[str, str]:
    """Id of a run in no experiment -> what sets its row apart, e.g. ``alpha=2.0``.

    Runs whose row has the plain name are left out.
    """
    known = known_configurations(runs, records)
    ids: dict[str, None] = {}
    for record in records:
        if is_implied(record.experiment):
            for row in record.rows:
                ids.update(dict.fromkeys(run.id for run in row.runs))
    present = [runs[run_id] for run_id in ids if run_id in runs]
    notes = {}
    for run, _, variant in _named(present, known):
        if variant:
            notes[run.id] = variant_note(variant)
    return notes


def names_apart(
    ids: Iterable[str], runs: Mapping[str, Run], records: Sequence[ExperimentRecord]
) -> dict[str, tuple[str, str]]:
    """Row names for runs that no table shows: one name for each configuration, as for single runs.

    For example, two experiments plan a row of one name with different settings. Tables show the
    first one's runs, and the second one's get their names here.

    Returns:
        Id -> name of the row, e.g. ``scpo_matcher_forward``, and what differs from the experiments'
        row of that name, e.g. ``matcher=forward``.
    """
    named = _named([runs[run_id] for run_id in ids], known_configurations(runs, records))
    names = {}
    for run, name, variant in named:
        names[run.id] = (full_name(name, variant), variant_note(variant))
    return names


def variant_note(variant: Variant) -> str:
    """What sets a row apart, in words: ``alpha=2.0, theta=0.5``."""
    return ", ".join(f"{key}={value}" for key, value in variant)


def full_name(name: str, variant: Variant) -> str:
    """Name of a row with what sets it apart: ``scpo_alpha_2.0``."""
    words = (re.sub(r"[^\w.+-]+", "_", f"{key}_{value}") for key, value in variant)
    return "_".join((name, *words))


def _source(run: Run) -> tuple[str, Any]:
    return (SINGLE if run.project is None else WANDB + run.project, run.head.scale)


def _named(runs: Iterable[Run], known: Mapping[Place, str]) -> Iterator[tuple[Run, str, Variant]]:
    """Yield each run, in order, with its ``row_name`` and what sets its configuration apart.

    The latter is empty for the configuration in ``known``. If ``known`` has none for the row name,
    it is empty for the configuration with the most common values. It is always empty for a run of
    verl-agent.
    """
    runs = list(runs)
    places: dict[Place, dict[str, None]] = {}
    for run in runs:
        # A configuration of verl-agent holds names and paths of its run, so no two are equal.
        if not run.foreign:
            places.setdefault(_place(run), {})[configuration_of(run.config)] = None
    variant_of: dict[tuple[Place, str], Variant] = {}
    for place, configurations in places.items():
        usual = known.get(place)
        own = [text for text in configurations if text != usual]
        for text, variant in zip(own, variants(own, usual), strict=True):
            variant_of[place, text] = variant
    for run in runs:
        variant = variant_of.get((_place(run), configuration_of(run.config)), ())
        yield run, row_name(run), variant


def _place(run: Run) -> Place:
    return (str(run.head.scale), run.head.env.name, run.head.model.name, row_name(run))


def without_record(
    runs: Iterable[Run],
    records: Sequence[ExperimentRecord],
    of_projects: Sequence[Run] = (),
) -> tuple[tuple[ExperimentRecord, ...], tuple[Problem, ...]]:
    """Records of the runs that no experiment plans, and problems about them.

    Trials of a search get no record, only a problem: they are validated on games that the search
    holds out of training, so no table or figure of results may show them.

    Args:
        runs: All runs, one copy each.
        records: Records of experiments.
        of_projects: Runs as read from W&B projects. Each project has a record of all its runs.
    """
    by_id = {run.id: run for run in runs}
    recorded = {run.id for run in of_projects}
    for record in records:
        recorded |= record.run_ids

    singles: list[Run] = []
    trials: list[Run] = []
    for run in by_id.values():
        if run.id in recorded:
            continue
        if is_trial(run):
            trials.append(run)
        else:
            singles.append(run)
    problems = _single_problems(singles)
    if trials:
        reason = (
            f"{counted(len(trials), 'trial')} of a search, judged on its own games: "
            "the search's summary.md has them"
        )
        problems = (*problems, Problem("searches", reason))
    known = known_configurations(by_id, records)
    # Named together, so that rows of several sources share a name only with equal configurations.
    unrecorded = [*of_projects, *singles]
    problems = (*problems, *_variant_problems(unrecorded, known))
    return implied_records(unrecorded, known), problems


def known_configurations(
    runs: Mapping[str, Run], records: Iterable[ExperimentRecord]
) -> dict[Place, str]:
    """Configuration of each row of the experiments: that of its first run.

    If several experiments have the row, the first one counts.
    """
    known: dict[Place, str] = {}
    for record in records:
        if is_implied(record.experiment):
            continue
        for row in record.rows:
            for planned in row.runs:
                run = runs.get(planned.id)
                if run and not run.foreign:
                    place = (str(record.scale), run.head.env.name, run.head.model.name, row.name)
                    known.setdefault(place, configuration_of(run.config))
    return known


def _variant_problems(runs: Iterable[Run], known: Mapping[Place, str]) -> Iterator[Problem]:
    """Yield a note on each row name whose runs have several configurations."""
    # Row name -> full name, one for each configuration -> number of runs.
    rows: dict[str, Counter[str]] = {}
    varied: dict[str, None] = {}
    named = list(_named(runs, known))
    with_results = {name for run, name, _ in named if run.state == State.DONE}
    for run, name, variant in named:
        # Unfinished runs, perhaps of another scale, have no results to confuse with finished ones.
        if name in with_results and run.state != State.DONE:
            continue
        rows.setdefault(name, Counter())[full_name(name, variant)] += 1
        if variant:
            varied[name] = None
    for name in varied:
        # One run needs no note: if it differs from an experiment's runs, its row's name shows how.
        if sum(rows[name].values()) == 1:
            continue
        names = list(rows[name])
        listed = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
        if len(names) == 1:
            reason = (
                f"runs of {name} in no experiment differ from the experiments' in more than the "
                f"seed: they are the row {listed}"
            )
        else:
            reason = (
                f"runs of {name} in no experiment differ in more than the seed: they are "
                f"{counted(len(names), 'row')}, {listed}"
            )
        yield Problem(SINGLE, reason)


def _single_problems(singles: Iterable[Run]) -> tuple[Problem, ...]:
    """Note on runs in no experiment, in a folder that holds experiments.

    The record of such a run's experiment may have been deleted.
    """
    ids = sorted(run.id for run in singles if (run.folder.parent / EXPERIMENTS).is_dir())
    if not ids:
        return ()
    named = ", ".join(ids[:MOST_NAMED]) + (", ..." if len(ids) > MOST_NAMED else "")
    reason = (
        f"{counted(len(ids), 'run')} in no experiment, of train.py, of settings that a row had "
        f"before it was edited, or of a sweep whose record in {EXPERIMENTS}/ was deleted (the same "
        f"sweep writes it again): {named}"
    )
    return (Problem(SINGLE, reason),)


def is_trial(run: Run) -> bool:
    """True if a run was validated only on a search's tuning panel."""
    env = run.config.get("env")
    panels = env.get("validation_panels") if isinstance(env, dict) else None
    return isinstance(panels, dict) and set(panels) == {TUNING}


def row_name(run: Run) -> str:
    """Name of the run's row: the choices in its id, or else its method.

    For example ``no_monotonicity`` for ``alfworld-tiny-scpo-no_monotonicity-s0-4c541560``.
    """
    method = run.head.method.name
    # Ids of this project, and only these, are `<env>-<model>-<method>-<choices>-s<seed>-<hash>`.
    words = run.id.split("-")
    has_seed = len(words) > 1 and re.fullmatch(r"s\d+", words[-2])
    if run.foreign or not has_seed or method not in words:
        return method
    choices = words[words.index(method) + 1 : -2]
    return "_".join(choices) or method


def _record(source: str, scale: Any, rows: Mapping[tuple[str, str], list[Run]]) -> ExperimentRecord:
    """Record of a source with these rows, (name, label) -> runs."""
    planned = []
    for (name, label), runs in rows.items():
        own: dict[str, PlannedRun] = {}
        for run in runs:
            head = run.head
            own[run.id] = PlannedRun(
                id=run.id,
                env=head.env.name,
                model=head.model.name,
                seed=head.seed,
            )
        planned.append(PlannedRow(name=name, label=label, runs=tuple(own.values())))
    return ExperimentRecord(experiment=source, title=source, scale=scale, rows=tuple(planned))


def _label(name: str, run: Run) -> str:
    method = run.head.method.name
    if name == method:
        return method_label(name)
    return ABLATION_LABELS.get(name, f"{method_label(method)}, {name}")
