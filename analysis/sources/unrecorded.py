"""Records for runs that no experiment lists: runs of W&B projects and of train.py.

Tables need rows. The row of such a run is derived from its id (our runs) or its method
(verl-agent).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from analysis.sources.run_records import SINGLE, WANDB, ExperimentRecord, Problem, Run
from scpo.progress import counted
from scpo.records.manifest import EXPERIMENTS, PlannedRow, PlannedRun
from scpo.schema.env import TUNING
from scpo.schema.method import method_label

# Largest number of runs in no experiment that a message names.
MOST_NAMED = 6
ABLATION_LABELS = {
    "no_monotonicity": "− monotonicity",
    "chronological": "chronological order",
    "shortest_reference": "shortest reference",
}


def implied_records(runs: Iterable[Run]) -> tuple[ExperimentRecord, ...]:
    """One record per W&B project and scale, and one per scale for runs of train.py.

    Rows are in order of appearance.
    """
    groups: dict[tuple[str, Any], dict[str, list[Run]]] = {}
    for run in runs:
        source = SINGLE if run.project is None else WANDB + run.project
        rows = groups.setdefault((source, run.head.scale), {})
        rows.setdefault(row_name(run), []).append(run)
    return tuple(_record(source, scale, rows) for (source, scale), rows in groups.items())


def without_record(
    runs: Iterable[Run],
    records: Iterable[ExperimentRecord],
) -> tuple[tuple[ExperimentRecord, ...], tuple[Problem, ...]]:
    """Records of the runs that no experiment plans, and problems about them.

    Trials of a search get no record, only a problem: they are validated on games that the search
    holds out of training, so no table or figure of results may show them.
    """
    asked: set[str] = set()
    for record in records:
        for row in record.rows:
            asked |= {run.id for run in row.runs}

    singles: list[Run] = []
    trials: list[Run] = []
    for run in runs:
        if run.id in asked:
            continue
        if is_trial(run):
            trials.append(run)
        else:
            singles.append(run)
    problems = _noted_singles(singles)
    if trials:
        reason = (
            f"{counted(len(trials), 'trial')} of a search, judged on its own games: "
            "the search's summary.md has them"
        )
        problems = (*problems, Problem("searches", reason))
    return implied_records(singles), problems


def _noted_singles(singles: Iterable[Run]) -> tuple[Problem, ...]:
    """Note on runs without an experiment next to experiments: a record may have been deleted."""
    lone = [run.id for run in singles if (run.folder.parent / EXPERIMENTS).is_dir()]
    if not lone:
        return ()
    named = ", ".join(sorted(lone)[:MOST_NAMED]) + (", ..." if len(lone) > MOST_NAMED else "")
    reason = (
        f"{counted(len(lone), 'run')} in no experiment, of train.py or of a sweep whose record in "
        f"{EXPERIMENTS}/ was deleted (the same sweep writes it again): {named}"
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


def _record(source: str, scale: Any, rows: Mapping[str, list[Run]]) -> ExperimentRecord:
    planned = []
    for name, runs in rows.items():
        own: dict[str, PlannedRun] = {}
        for run in runs:
            head = run.head
            own[run.id] = PlannedRun(
                id=run.id,
                env=head.env.name,
                model=head.model.name,
                seed=head.seed,
            )
        planned.append(PlannedRow(name=name, label=_label(name, runs), runs=tuple(own.values())))
    return ExperimentRecord(experiment=source, title=source, scale=scale, rows=tuple(planned))


def _label(name: str, runs: list[Run]) -> str:
    method = runs[0].head.method.name
    if name == method:
        return method_label(name)
    return ABLATION_LABELS.get(name, f"{method_label(method)}, {name}")
