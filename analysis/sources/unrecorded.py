"""Records for runs that no experiment lists: runs of W&B projects and of train.py.

Tables need rows. The row of such a run is derived from its id (our runs) or its method
(verl-agent).
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException
from pydantic import TypeAdapter, ValidationError

from analysis.sources.configurations import configuration_of
from analysis.sources.run_records import SINGLE, WANDB, ExperimentRecord, Problem, Run, is_implied
from analysis.sources.settings import variants
from scpo.errors import ConfigError
from scpo.progress import counted
from scpo.records.identity import PAPERS_HOST, SHAPER_CHOICES
from scpo.records.manifest import EXPERIMENTS, PlannedRow, PlannedRun
from scpo.records.status import State
from scpo.schema.composed import composed
from scpo.schema.env import TUNING
from scpo.schema.method import MethodConfig, method_label

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


@dataclass(frozen=True)
class KnownRows:
    """The rows of the experiments, which single runs must not be taken for.

    Attributes:
        configurations: Configuration of each row: that of its first run. If several experiments
            have the row, the first one counts.
        of_methods: The method's name in place of the row's -> configuration -> name of the first
            row that has it, in the order of the experiments.
    """

    configurations: Mapping[Place, str] = field(default_factory=dict)
    of_methods: Mapping[Place, Mapping[str, str]] = field(default_factory=dict)

    def name_of(self, place: Place, method: str, configuration: str) -> str:
        """Row name of a single run: that of its method's row with equal settings, if there is one.

        ``place`` has the name that the run has otherwise. An experiment's row of this name keeps
        it.
        """
        name = place[-1]
        if place in self.configurations:
            return name
        return self.of_methods.get((*place[:-1], method), {}).get(configuration, name)

    def usual(self, place: Place, method: str) -> str | None:
        """The configuration with which runs of this name are compared.

        It is that of the experiments' row of this name, or else of their first row of the method;
        None if the experiments have neither.
        """
        if place in self.configurations:
            return self.configurations[place]
        return next(iter(self.of_methods.get((*place[:-1], method), {})), None)


def implied_records(runs: Iterable[Run], known: KnownRows) -> tuple[ExperimentRecord, ...]:
    """One record per W&B project and scale, and one per scale for runs of train.py.

    Rows are in order of appearance. A row has one configuration on each benchmark: each further
    configuration of a method is a row named by what differs (``scpo_alpha_2.0``: SCPO, alpha=2.0).

    Args:
        runs: The runs.
        known: The rows of the experiments. Runs of the same row name, or of the method of a row,
            with another configuration get a row of their own.
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
    known = known_rows(runs, records)
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
    named = _named([runs[run_id] for run_id in ids], known_rows(runs, records))
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


def _named(runs: Iterable[Run], known: KnownRows) -> Iterator[tuple[Run, str, Variant]]:
    """Yield each run, in order, with its row's name and what sets its configuration apart.

    The latter is empty for the configuration in ``known``. If ``known`` has none for the row name,
    it is empty for the configuration with the usual settings of the method (``_usual_method``), and
    otherwise the values of the method's first row in ``known`` or else the most common ones. It is
    always empty for a run of verl-agent.
    """
    placed: list[tuple[Run, Place, str]] = []
    configurations: dict[Place, dict[str, None]] = {}
    methods: dict[Place, str] = {}
    for run in runs:
        place, own = _place(run), configuration_of(run.config)
        # A configuration of verl-agent holds names and paths of its run, so no two are equal.
        if not run.foreign:
            place = (*place[:-1], known.name_of(place, run.head.method.name, own))
            configurations.setdefault(place, {})[own] = None
            methods.setdefault(place, run.head.method.name)
        placed.append((run, place, own))
    variant_of: dict[tuple[Place, str], Variant] = {}
    for place, of_place in configurations.items():
        usual = known.usual(place, methods[place])
        method = None
        if place not in known.configurations:
            row = known.configurations.get((*place[:-1], methods[place]))
            method = _usual_method(next(iter(of_place)), row)
        others = [own for own in of_place if own != known.configurations.get(place)]
        for own, variant in zip(others, variants(others, usual, method), strict=True):
            variant_of[place, own] = variant
    for run, place, own in placed:
        yield run, place[-1], variant_of.get((place, own), ())


def _usual_method(configuration: str, row: str | None) -> dict[str, Any] | None:
    """Section ``method`` that a single run is compared with to name its settings.

    This is the section of the row with the method's plain name if it has the same host estimator,
    and otherwise that of the configuration files. Choices that the run's id names are the run's.

    Args:
        configuration: Configuration of the run.
        row: Configuration of the experiments' row with the method's plain name, if there is one.

    Returns:
        The section; None if the configuration files lack the method.
    """
    config = json.loads(configuration)
    env, own = config["env"], config["method"]
    if row is not None:
        method = json.loads(row)["method"]
        if method["name"] == own["name"] and _host(method) == _host(own):
            return _with_choices(method, own)
    choices = [f"scale={config['scale']}", f"env={env['name']}", f"method={own['name']}"]
    host = _host(own)
    # As for the shaper, an id does not name the paper's choice.
    if isinstance(own.get("shaper"), dict) and host not in (None, PAPERS_HOST):
        choices.append(f"estimator@method.estimator={host}")
    try:
        # Settings of a method may refer to those of the environment.
        section = TypeAdapter(MethodConfig).validate_python(composed(*choices, env=env)["method"])
    except (HydraException, OmegaConfBaseException, ConfigError, ValidationError):
        return None
    return _with_choices(section.model_dump(mode="json"), own)


def _host(method: Mapping[str, Any]) -> str | None:
    """Name of the estimator; None for a method without one."""
    estimator = method.get("estimator")
    return str(estimator["name"]) if isinstance(estimator, dict) else None


def _with_choices(method: dict[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Section ``method`` with the label and the choices of a run that its id names."""
    # The label of a method affects no run.
    method.pop("label", None)
    if "label" in own:
        method["label"] = own["label"]
    shaper, own_shaper = method.get("shaper"), own.get("shaper")
    if isinstance(shaper, dict) and isinstance(own_shaper, dict):
        # The id names the choices that are not the paper's, also where the files have other ones.
        for name, paper, _ in SHAPER_CHOICES:
            if own_shaper.get(name, paper) != paper:
                shaper[name] = own_shaper[name]
    return method


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
    known = known_rows(by_id, records)
    # Named together, so that rows of several sources share a name only with equal configurations.
    unrecorded = [*of_projects, *singles]
    problems = (*problems, *_variant_problems(unrecorded, known))
    return implied_records(unrecorded, known), problems


def known_rows(runs: Mapping[str, Run], records: Iterable[ExperimentRecord]) -> KnownRows:
    """The rows of the experiments that have a run among these."""
    configurations: dict[Place, str] = {}
    of_methods: dict[Place, dict[str, str]] = {}
    for record in records:
        if is_implied(record.experiment):
            continue
        for row in record.rows:
            for planned in row.runs:
                run = runs.get(planned.id)
                if run is None or run.foreign:
                    continue
                own = configuration_of(run.config)
                benchmark = (str(record.scale), run.head.env.name, run.head.model.name)
                configurations.setdefault((*benchmark, row.name), own)
                # Another experiment may have given this name to another configuration.
                if configurations[*benchmark, row.name] == own:
                    of_method = of_methods.setdefault((*benchmark, run.head.method.name), {})
                    of_method.setdefault(own, row.name)
    return KnownRows(configurations, of_methods)


def _variant_problems(runs: Iterable[Run], known: KnownRows) -> Iterator[Problem]:
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
    of_experiments = {place[-1] for place in known.configurations}
    for name in varied:
        # One run needs no note: if it differs from an experiment's runs, its row's name shows how.
        if sum(rows[name].values()) == 1:
            continue
        names = list(rows[name])
        listed = ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")
        if len(names) == 1 and name in of_experiments:
            reason = (
                f"runs of {name} in no experiment differ from the experiments' in more than the "
                f"seed: they are the row {listed}"
            )
        elif len(names) == 1:
            reason = (
                f"runs of {name} in no experiment have other settings than {name} has by default "
                f"or in an experiment: they are the row {listed}"
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
