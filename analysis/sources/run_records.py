"""Reading run folders: what a run is and how far it came. No pandas, so that `sweep.py` may use it.

Readers here are tolerant where a crash may have happened (a torn last line, a status that was never written) and
lenient about configs of other versions: only the keys that analysis needs are read, so old runs can still be drawn.
"""

import hashlib
import json
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from scpo.errors import RecordError
from scpo.schema import MACHINE_SECTIONS, Scale
from scpo.tracking import State

EXPERIMENTS = "experiments"
LOGS = ("metrics.jsonl", "timing.jsonl")
WANDB = "W&B "  # begins the name of an experiment that a W&B project stands for
SINGLE = "single runs"  # of train.py, or copied here without their experiment


def is_implied(experiment: str) -> bool:
    """Whether an experiment was read off the runs alone: nobody asked for it by name."""
    return experiment.startswith(WANDB) or experiment == SINGLE


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Named(_Lenient):
    name: str


class _Benchmark(_Named):
    """An environment; one that has settings is called by its setting too, for these never share a table."""

    @model_validator(mode="before")
    @classmethod
    def _with_its_setting(cls, data: Any) -> Any:
        paper = isinstance(data, dict) and data.get("setting") == "paper"
        return {"name": f"{data.get('name')}_paper"} if paper else data


class _Method(_Lenient):
    name: str
    shaper: dict[str, Any] | None = None


class RunHead(_Lenient):
    """The part of a run's config that analysis reads."""

    scale: Scale
    seed: int
    method: _Method
    env: _Benchmark
    model: _Named


class PlannedRun(_Lenient):
    """One run of an experiment's row, whether or not it has started."""

    id: str
    env: str
    model: str
    seed: int


class PlannedRow(_Lenient):
    """One row of an experiment."""

    name: str
    label: str
    runs: tuple[PlannedRun, ...]


class PrimaryComparisons(_Lenient):
    """What the experiment was run for: pairs of rows, each the first minus the second, and the measure."""

    measure: str
    comparisons: tuple[tuple[str, str], ...]


class ExperimentRecord(_Lenient):
    """``runs/experiments/<name>.json``: which run is which row."""

    experiment: str
    title: str
    scale: Scale
    overrides: tuple[str, ...] = ()
    rows: tuple[PlannedRow, ...]
    primary: PrimaryComparisons | None = None

    def command(self, seeds: Iterable[int]) -> str | None:
        """What makes its runs of these seeds; None for what cannot be asked again."""
        if is_implied(self.experiment):
            project = self.experiment.removeprefix(WANDB)
            asked = self.experiment.startswith(WANDB) and "/" in project
            return f"python -m analysis figures --wandb {project} --refresh" if asked else None
        scale = () if self.scale == "mini" else (f"scale={self.scale}",)
        others = (word for word in self.overrides if word not in scale)
        words = (f"+experiment={self.experiment}", *scale, *others, f"seeds=[{','.join(map(str, seeds))}]")
        return f"python sweep.py {shlex.join(words)}"


@dataclass(frozen=True)
class Run:
    """One run, its metrics aside (see ``analysis.sources.logged_lines``)."""

    id: str
    folder: Path
    head: RunHead
    config: dict[str, Any]  # all of it, in the words of the trainer that wrote it
    setting: str  # hash of all that the rows of one table must share
    state: str
    step: int | None
    commit: str | None
    panels: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: tuple[str, ...] = LOGS  # in ``folder``
    foreign: bool = False  # logged by verl-agent, in its own words
    project: str | None = None  # of a run that was read from W&B
    processor: str | None = None  # that its last attempt ran on
    dirty: bool = False  # with uncommitted changes of the code


@dataclass(frozen=True)
class Problem:
    """Something under the runs folder that was left out, and why."""

    path: str
    reason: str


def read_runs(runs_dir: Path) -> tuple[dict[str, Run], tuple[Problem, ...]]:
    """Every readable run folder under ``runs_dir``, and what could not be read."""
    runs: dict[str, Run] = {}
    problems = []
    for folder in sorted(runs_dir.iterdir()) if runs_dir.is_dir() else ():
        if not folder.is_dir() or folder.name == EXPERIMENTS or folder.name.startswith("."):
            continue
        if any(folder.glob("*.wandb")):  # W&B's: analysis.sources.sources reads it
            continue
        try:
            runs[folder.name] = read_run(folder)
        except RecordError as error:
            problems.append(Problem(folder.name, str(error)))
    return runs, tuple(problems)


def read_run(folder: Path) -> Run:
    """Read one run folder; a folder that is none raises RecordError."""
    config = _read_config(folder / "config.yaml")
    try:
        head = RunHead.model_validate(config)
    except ValidationError as error:
        first = error.errors()[0]
        raise RecordError(
            f"{folder.name}/config.yaml is not a run's config: {'.'.join(map(str, first['loc']))}: {first['msg']}. "
            "Move the folder elsewhere, or delete it."
        ) from error
    status, panels = _json_or_empty(folder / "status.json"), _json_or_empty(folder / "panels.json")
    attempts = list(_json_or_empty(folder / "provenance.json").get("attempts", {}).values())
    return Run(
        id=folder.name,
        folder=folder,
        head=head,
        config=config,
        setting=setting_of(config, panels),
        state=str(status.get("state", State.UNKNOWN)),
        step=status.get("step"),
        commit=status.get("commit"),
        panels=panels,
        processor=attempts[-1].get("cpu") if attempts else None,
        dirty=any(attempt.get("dirty") for attempt in attempts),
    )


def read_experiments(runs_dir: Path) -> tuple[tuple[ExperimentRecord, ...], tuple[Problem, ...]]:
    """Every experiment record, sorted by name and scale, and what could not be read."""
    records, problems = [], []
    for path in sorted((runs_dir / EXPERIMENTS).glob("*.json")):
        try:
            records.append(ExperimentRecord.model_validate_json(path.read_bytes()))
        except (ValidationError, OSError) as error:
            problems.append(Problem(f"{EXPERIMENTS}/{path.name}", f"not an experiment record: {error}"))
    return tuple(sorted(records, key=lambda record: (record.experiment, record.scale))), tuple(problems)


def _read_config(path: Path) -> Any:
    try:
        return yaml.load(path.read_bytes(), Loader=_YAML_LOADER)  # noqa: S506 - CSafeLoader is the safe loader in C
    except (OSError, yaml.YAMLError) as error:
        raise RecordError(
            f"{path.parent.name} is no run folder: config.yaml cannot be read ({type(error).__name__}). "
            "Move the folder elsewhere, or delete it."
        ) from error


def _json_or_empty(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def setting_of(config: dict[str, Any], panels: dict[str, Any]) -> str:
    """Hash of the panels and of the config without seed, method and machine: equal for runs that may be compared."""
    shared = {key: value for key, value in config.items() if key not in ("seed", "method", *MACHINE_SECTIONS)}
    hashes = {name: panel.get("sha256") for name, panel in panels.items() if isinstance(panel, dict)}
    text = json.dumps([shared, hashes], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


_YAML_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
