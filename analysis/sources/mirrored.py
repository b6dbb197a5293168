"""Runs without the record of an experiment: those of W&B, by this project or by verl-agent, and those of train.py.

The row of such a run is read off its id (ours) or its method (verl-agent).
"""

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from scpo.errors import RecordError
from scpo.progress import counted
from scpo.records import State
from scpo.records.files import first_complaint
from scpo.records.manifest import PlannedRow, PlannedRun
from scpo.records.wandb_mirror import read_configuration
from scpo.schema import TUNING, method_label

from analysis.sources import verl_agent_logs
from analysis.sources.run_records import (
    SINGLE,
    WANDB,
    ExperimentRecord,
    Problem,
    Run,
    RunHead,
    setting_of,
)

ABLATION_LABELS = {
    "no_monotonicity": "− monotonicity",
    "chronological": "chronological order",
    "shortest_reference": "shortest reference",
}


def mirrored_run(
    run_id: str,
    config: Mapping[str, Any],
    *,
    folder: Path,
    logs: tuple[str, ...],
    state: str,
    step: int | None,
    project: str,
) -> Run:
    """A run from its W&B configuration; RecordError if that is neither ours nor verl-agent's.

    A run counts as finished when W&B says so or when its last planned step is logged: verl's
    processes often die on their way out, after all the work.
    """
    foreign = verl_agent_logs.is_verl_agent(config)
    commit = None
    if not foreign:
        run_id, config, commit = read_configuration(config, run_id)
    try:
        head = RunHead.model_validate(verl_agent_logs.head_of(config) if foreign else config)
    except (ValidationError, KeyError) as error:
        what = f"no {error.args[0]}" if isinstance(error, KeyError) else first_complaint(error)
        raise RecordError(
            f"W&B run {run_id} has a configuration that is neither scpo's nor verl-agent's "
            f"({what}); left out"
        ) from error
    planned = (
        verl_agent_logs.steps_of(config) if foreign else config.get("trainer", {}).get("steps")
    )
    return Run(
        id=run_id,
        folder=folder,
        head=head,
        config=dict(config),
        setting=verl_agent_logs.setting_of(config) if foreign else setting_of(dict(config), {}),
        state=State.DONE if planned and (step or 0) >= planned else state,
        step=step,
        commit=commit,
        logs=logs,
        foreign=foreign,
        project=project,
    )


def implied_records(runs: Iterable[Run]) -> tuple[ExperimentRecord, ...]:
    """One record for each W&B project and scale, its rows in order of appearance; of no project: those of train.py."""
    found: dict[tuple[str, Any], dict[str, list[Run]]] = {}
    for run in runs:
        source = SINGLE if run.project is None else WANDB + run.project
        found.setdefault((source, run.head.scale), {}).setdefault(row_name(run), []).append(run)
    return tuple(_record(source, scale, rows) for (source, scale), rows in found.items())


def without_record(
    runs: Iterable[Run], records: Iterable[ExperimentRecord]
) -> tuple[tuple[ExperimentRecord, ...], tuple[Problem, ...]]:
    """Records of the runs that no experiment asked for: of train.py, of a copied folder; a search's trials are named.

    A trial is evaluated on games that were held out of training for the search, so no figure of
    results may hold it.
    """
    asked = {run.id for record in records for row in record.rows for run in row.runs}
    left = [run for run in runs if run.id not in asked]
    trials = [run for run in left if is_trial(run)]
    reason = f"{counted(len(trials), 'trial')} of a search, judged on its own games: the search's summary.md has them"
    problems = (Problem("searches", reason),) if trials else ()
    return implied_records(run for run in left if not is_trial(run)), problems


def is_trial(run: Run) -> bool:
    """Whether a run was evaluated on a search's tuning panel alone."""
    env = run.config.get("env")
    panels = env.get("validation_panels") if isinstance(env, dict) else None
    return isinstance(panels, dict) and set(panels) == {TUNING}


def row_name(run: Run) -> str:
    """``no_monotonicity`` from ``alfworld-tiny-scpo-no_monotonicity-s0-4c541560``; else the method's name."""
    words = run.id.split("-")
    if not run.foreign and re.fullmatch(r"s\d+", words[-2] if len(words) > 1 else ""):
        choices = (
            words[words.index(run.head.method.name) + 1 : -2]
            if run.head.method.name in words
            else []
        )
        return "_".join(choices) or run.head.method.name
    return run.head.method.name


def _record(source: str, scale: Any, rows: Mapping[str, list[Run]]) -> ExperimentRecord:
    planned = []
    for name, runs in rows.items():
        heads = {run.id: run.head for run in runs}
        of = (
            PlannedRun(id=run, env=one.env.name, model=one.model.name, seed=one.seed)
            for run, one in heads.items()
        )
        planned.append(PlannedRow(name=name, label=_label(name, runs), runs=tuple(of)))
    return ExperimentRecord(experiment=source, title=source, scale=scale, rows=tuple(planned))


def _label(name: str, runs: list[Run]) -> str:
    method = runs[0].head.method.name
    return (
        method_label(name)
        if name == method
        else ABLATION_LABELS.get(name, f"{method_label(method)}, {name}")
    )
