"""Reading run folders: what a run is and how far it came. No pandas, so that `sweep.py` may use it.

Readers here are lenient about configs of other versions: only the keys that analysis needs are
read, so old runs can still be drawn. They believe nothing that is damaged: such a run enters no
number, and a Problem names it.
"""

import hashlib
import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from scpo.errors import RecordError
from scpo.records import RunFolder, State
from scpo.records.files import (
    RUN_AGAIN,
    FileSum,
    change,
    first_complaint,
    read_json,
    read_record,
    read_yaml,
    text_sum,
)
from scpo.records.identity import is_id_of
from scpo.records.manifest import EXPERIMENTS, Manifest
from scpo.schema import MACHINE_SECTIONS, Scale

BESIDE = (EXPERIMENTS, "searches")  # folders beside the runs
CODE = "code.json"  # checksums of the code's files, by their paths
LOGS = ("metrics.jsonl", "timing.jsonl")
MOVE_AWAY = "Move the folder elsewhere, or delete it."
SWEEP_AGAIN = "Delete it: the same sweep writes it again"
WANDB = "W&B "  # begins the name of an experiment that a W&B project stands for
UNKNOWN = "unknown"
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
    seed: Annotated[int, Field(ge=0, lt=1 << 63)]
    method: _Method
    env: _Benchmark
    model: _Named


class ExperimentRecord(Manifest):
    """``runs/experiments/<name>.json``: which run is which row."""

    def command(self, seeds: Iterable[int]) -> str | None:
        """What makes its runs of these seeds; None for what cannot be asked again."""
        if is_implied(self.experiment):
            project = self.experiment.removeprefix(WANDB)
            asked = self.experiment.startswith(WANDB) and "/" in project
            return f"python -m analysis figures --wandb {project} --refresh" if asked else None
        scale = () if self.scale == "mini" else (f"scale={self.scale}",)
        others = (word for word in self.overrides if word not in scale)
        words = (
            f"+experiment={self.experiment}",
            *scale,
            *others,
            f"seeds=[{','.join(map(str, seeds))}]",
        )
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
    damage: str | None = None  # why nothing of it is believed, and what to do
    lost: tuple[Path, ...] = ()  # samples that it wrote and that are not there any more
    sums: Mapping[str, FileSum] = field(
        default_factory=dict, repr=False
    )  # of its files, by their paths in ``folder``
    foreign: bool = False  # logged by verl-agent, in its own words
    project: str | None = None  # of a run that was read from W&B
    processor: str | None = None  # that its last attempt ran on
    torch_capability: str = UNKNOWN  # the instructions that torch used there, e.g. AVX512
    code: str = UNKNOWN  # checksum of all files of the code that ran
    dirty: bool = False  # with uncommitted changes of the code

    @property
    def settled(self) -> bool:
        """Whether ``setting`` is whole: a run of ours records its panels when it starts, one read from W&B has none."""
        return (
            bool(self.panels)
            or self.foreign
            or self.project is not None
            or self.state == State.DONE
        )


def one_processor_type(one: Run, other: Run) -> bool:
    """Whether two runs had the same processor and, where both recorded it, torch's CPU capability.

    Sums of floats differ between types, so a pair of runs should share one.
    """
    capabilities = {one.torch_capability, other.torch_capability} - {UNKNOWN}
    return one.processor == other.processor and len(capabilities) < 2


@dataclass(frozen=True)
class Problem:
    """Something under the runs folder that was left out, and why."""

    path: str
    reason: str


@contextmanager
def noted(problems: list[Problem], path: str) -> Iterator[None]:
    """What cannot be read inside the ``with`` is left out and becomes a problem of ``path``."""
    try:
        yield
    except RecordError as error:
        problems.append(Problem(path, str(error)))


def read_runs(runs_dir: Path) -> tuple[dict[str, Run], tuple[Problem, ...]]:
    """Every readable run folder under ``runs_dir``, and what could not be read."""
    runs: dict[str, Run] = {}
    problems = []
    for folder in sorted(runs_dir.iterdir()) if runs_dir.is_dir() else ():
        if not folder.is_dir() or folder.name in BESIDE or folder.name.startswith("."):
            continue
        if any(folder.glob("*.wandb")):  # W&B's: analysis.sources.sources reads it
            continue
        try:
            run = runs[folder.name] = read_run(folder)
        except RecordError as error:
            problems.append(Problem(folder.name, str(error)))
        except Exception as error:  # noqa: BLE001 (one folder, whatever is in it, does not take the others along)
            problems.append(
                Problem(
                    folder.name, f"cannot be read ({type(error).__name__}: {error}). {MOVE_AWAY}"
                )
            )
        else:
            problems += [Problem(run.id, run.damage)] if run.damage else []
            problems += [
                Problem(run.id, f"{path} is lost: figures are made without it") for path in run.lost
            ]
    return runs, tuple(problems)


def read_run(folder: Path) -> Run:
    """Read one run folder; a folder that is none raises RecordError.

    A run whose status or panels are damaged is DAMAGED, and says why: it is known, and it enters no
    number.
    """
    records = RunFolder(folder)
    config = _read_config(records)
    try:
        head = RunHead.model_validate(config)
    except ValidationError as error:
        raise RecordError(
            f"{folder.name}/config.yaml is not a run's config: {first_complaint(error)}. "
            f"{MOVE_AWAY}"
        ) from error
    if not is_id_of(folder.name, config):
        raise RecordError(
            f"{folder.name} is not the run that its config.yaml describes: a copy, or renamed. "
            f"Restore its name, "
            "move the folder elsewhere, or delete it."
        )
    panels: dict[str, dict[str, Any]] = {}
    attempts: list[dict[str, Any]] = []
    status, damage = None, None
    try:
        status, panels, attempts = (
            records.read_status(),
            records.read_panels(),
            records.read_attempts(),
        )
        if known := status.sums.get(records.panels.name):
            changed = change(records.panels, known, whole=True)
            damage = f"{records.panels} {changed}. {RUN_AGAIN}" if changed else None
    except RecordError as error:
        damage = str(error)
    samples = [folder / name for name in (status.sums if status else ()) if "/" in name]
    return Run(
        id=folder.name,
        folder=folder,
        head=head,
        config=config,
        setting=setting_of(config, panels),
        state=State.DAMAGED if damage or status is None else status.state,
        step=status.step if status else None,
        commit=status.commit if status else None,
        panels=panels,
        processor=attempts[-1].get("cpu") if attempts else None,
        torch_capability=str(attempts[-1].get("torch_capability") or UNKNOWN)
        if attempts
        else UNKNOWN,
        code=_code_sum(folder),
        dirty=any(attempt.get("dirty") for attempt in attempts),
        damage=damage,
        lost=tuple(path for path in samples if not path.exists()),
        sums=status.sums if status else {},
    )


def _code_sum(folder: Path) -> str:
    """One checksum of the checksums that the run noted of its code's files; of no other use than to compare runs."""
    try:
        files = read_json(folder / CODE)["files"]
    except (RecordError, KeyError):
        return UNKNOWN
    return text_sum(json.dumps(files, sort_keys=True).encode())


def read_experiments(runs_dir: Path) -> tuple[tuple[ExperimentRecord, ...], tuple[Problem, ...]]:
    """Every experiment record, sorted by name and scale, and what could not be read."""
    records, problems = [], []
    for path in sorted((runs_dir / EXPERIMENTS).glob("*.json")):
        try:
            records.append(read_record(path, ExperimentRecord, "experiment record", SWEEP_AGAIN))
        except RecordError as error:
            problems.append(
                Problem(f"{EXPERIMENTS}/{path.name}", f"not an experiment record: {error}")
            )
    return tuple(sorted(records, key=lambda record: (record.experiment, record.scale))), tuple(
        problems
    )


def _read_config(records: RunFolder) -> Any:
    try:
        return read_yaml(records.config)
    except RecordError as error:
        raise RecordError(
            f"{records.run_id} is no run folder: {error}, or move the folder elsewhere"
        ) from error


def setting_of(config: dict[str, Any], panels: dict[str, Any]) -> str:
    """Hash of the panels and of the config without seed, method and machine: equal for runs that may be compared."""
    shared = {
        key: value
        for key, value in config.items()
        if key not in ("seed", "method", *MACHINE_SECTIONS)
    }
    hashes = {
        name: panel.get("sha256") for name, panel in panels.items() if isinstance(panel, dict)
    }
    text = json.dumps([shared, hashes], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]
