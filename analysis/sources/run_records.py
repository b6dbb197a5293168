"""Read run folders: configuration, status, panels and logs of a run, and records of experiments.

Logs of downloaded W&B runs are read here too, so that callers need not distinguish them. The module
does not import pandas, so that ``sweep.py`` can print its table without loading it.

Only the keys of a configuration that analysis needs are validated, because every version of the
schema adds keys. Everything else is checked strictly: runs with damaged records are left out, with
a ``Problem`` each.
"""

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from analysis.sources import verl_agent_logs
from analysis.sources.configurations import setting_of
from scpo.errors import RecordError, UnreadableError
from scpo.records import log_gaps
from scpo.records.archive_index import METRICS
from scpo.records.files import (
    RUN_AGAIN,
    FileSum,
    check_readable,
    first_complaint,
    read_bytes,
    read_json,
    read_record,
    read_yaml,
    text_sum,
)
from scpo.records.logs import read_present
from scpo.records.manifest import EXPERIMENTS, Manifest, PlannedRun
from scpo.records.ranges import complaint
from scpo.records.record_checks import check_id, check_records, explained
from scpo.records.run_folders import RunFolder, observe
from scpo.records.status import State, Status, state_of
from scpo.strict import Scale

# Folders in a runs folder that are not run folders.
NOT_RUNS = (EXPERIMENTS, "searches")

# File with the checksum of each code file by its path.
CODE = "code.json"

# Joins the checksums of several versions of the code, for a run that other code resumed.
AND = "+"
METRICS_LOG = "metrics.jsonl"
LOGS = (METRICS_LOG, "timing.jsonl")
MOVE_AWAY = "Move the folder elsewhere."

# Larger numbers are ignored: integers in W&B's JSON may be too large for a float.
LARGEST_NUMBER = 1e300
SWEEP_AGAIN = "Delete it: the same sweep writes it again"
OFFLINE = (
    "an offline folder of W&B, which is not read here. Upload it (`wandb sync`, or `python -m "
    "sweeps sync` for runs of this project) and name the project with --wandb, or in "
    'scpo.load_runs as "wandb:<entity>/<project>"'
)

# Prefix of the experiment that holds the runs of a W&B project.
WANDB = "W&B "
UNKNOWN = "unknown"

# Name of the experiment of runs of train.py, and of runs copied without their record.
SINGLE = "single runs"

# The option that keeps only common seeds. It is also the path of the problems of sections that have
# no common seed.
COMMON_SEEDS = "--seeds common"


def is_implied(experiment: str) -> bool:
    """True for an experiment without a record, which groups runs of W&B or of train.py."""
    return experiment.startswith(WANDB) or experiment == SINGLE


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Named(_Lenient):
    name: str


class _Benchmark(_Named):
    """An environment. WebShop in the paper's setting has a name, and so tables, of its own."""

    @model_validator(mode="before")
    @classmethod
    def _with_its_setting(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("setting") == "paper":
            return {"name": f"{data.get('name')}_paper"}
        return data


class _Method(_Lenient):
    name: str
    shaper: dict[str, Any] | None = None


class RunHead(_Lenient):
    """The part of a run's configuration that analysis reads."""

    scale: Scale
    seed: Annotated[int, Field(ge=0, lt=1 << 63)]
    method: _Method
    env: _Benchmark
    model: _Named


class _Attempt(BaseModel):
    """The part of an attempt in provenance.json that analysis reads."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True)

    cpu: str | None = None
    torch_capability: str | None = None
    dirty: bool = False
    weights: dict[str, str] = {}


# Name, scale and overrides of an experiment.
Key = tuple[str, str, tuple[str, ...]]


class ExperimentRecord(Manifest):
    """``runs/experiments/<name>-<scale>.json``: the rows of an experiment and their runs."""

    @property
    def key(self) -> Key:
        """Identifies the experiment in a folder or an archive."""
        return self.experiment, self.scale, self.overrides

    @property
    def run_ids(self) -> set[str]:
        """Ids of the runs that the experiment planned."""
        return {run.id for row in self.rows for run in row.runs}

    @property
    def given(self) -> tuple[str, ...]:
        """Words of the command line that apply to every row; the scale is in titles."""
        return tuple(word for word in self.overrides if not word.startswith("scale="))

    def left_out(self, names: Iterable[str]) -> bool:
        """True if all calls so far have left out one of these rows (``rows=[...]``).

        A row that cannot run at this scale is not one of them.
        """
        waiting = {row.name for row in self.rows if not row.chosen and not row.runs}
        return not waiting.isdisjoint(names)

    def has_deleted(self, names: tuple[str, str]) -> bool:
        """True for a comparison that was taken out after its results, together with a row."""
        rows = {row.name for row in self.rows}
        return names in self.withdrawn and not rows.issuperset(names)

    def command(self, seeds: Iterable[int]) -> str | None:
        """Command that makes the runs of these seeds, or for a W&B project reads it again.

        None for single runs, which have no experiment.
        """
        if is_implied(self.experiment):
            project = self.experiment.removeprefix(WANDB)
            if self.experiment.startswith(WANDB) and "/" in project:
                return f"python -m analysis figures --wandb {project} --refresh"
            return None
        listed = ",".join(map(str, seeds))
        return f"python sweep.py {shlex.join((*self.words, f'seeds=[{listed}]'))}"


@dataclass(frozen=True)
class Run:
    """A run without its metrics (``read_lines`` reads those).

    Attributes:
        id: Run id, the name of its folder.
        folder: Run folder, archive, or local copy of a W&B run.
        head: The validated part of the configuration.
        config: The whole configuration, as the trainer wrote it.
        setting: Hash of all that the rows of one table must share.
        state: A ``scpo.records.status.State``, or W&B's name of the state. A run of this machine
            that was killed is LOST.
        step: Last logged step.
        commit: Commit of the code that ran.
        panels: Validation panels with the hashes of their tasks.
        logs: Log files, relative to ``folder``.
        damage: Reason why the run is left out, and how to repair it; None if it is undamaged.
        lost: Samples that the run wrote and that no longer exist.
        sums: Checksums of its files by path relative to ``folder``.
        foreign: True if it was logged by verl-agent, with that program's names of metrics.
        project: W&B project that it was read from; None for a run folder or an archive.
        processor: Processor of its last attempt.
        torch_capability: Instruction set that torch used there, e.g. AVX512.
        code: Checksum of all files of the code that ran; of a run that other code resumed, one for
            each version, joined by ``AND``.
        dirty: True if the code had uncommitted changes.
        weights: Path of a model or scorer -> checksum of its weights, of each attempt that recorded
            one; empty for archived runs.
    """

    id: str
    folder: Path
    head: RunHead
    config: dict[str, Any]
    setting: str
    state: str
    step: int | None
    commit: str | None
    panels: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: tuple[str, ...] = LOGS
    damage: str | None = None
    lost: tuple[Path, ...] = ()
    sums: Mapping[str, FileSum] = field(default_factory=dict, repr=False)
    foreign: bool = False
    project: str | None = None
    processor: str | None = None
    torch_capability: str = UNKNOWN
    code: str = UNKNOWN
    dirty: bool = False
    weights: Mapping[str, frozenset[str]] = field(default_factory=dict, repr=False)

    @property
    def settled(self) -> bool:
        """True if ``setting`` is final. Panels, a part of it, are recorded when a run starts."""
        if self.foreign or self.project is not None:
            return True
        return bool(self.panels) or self.state == State.DONE

    @property
    def has_samples(self) -> bool:
        """True if it was read from a run folder; archives and W&B hold metrics and no samples."""
        return self.logs != (METRICS,) and self.project is None


def one_processor_type(*runs: Run) -> bool:
    """True if runs had the same type of processor and, if they recorded it, torch capability."""
    return one_type((run.processor, run.torch_capability) for run in runs)


def one_type(processors: Iterable[tuple[str | None, str]]) -> bool:
    """True if processors, each with its torch capability, are of one type.

    Sums of floats differ between types, so the two runs of a pair should have the same.
    """
    known = list(processors)
    capabilities = {capability for _, capability in known} - {UNKNOWN}
    return len({name for name, _ in known}) < 2 and len(capabilities) < 2


@dataclass(frozen=True)
class Problem:
    """A run or file that was left out or deserves a note, and the reason.

    Attributes:
        path: The run or file.
        reason: The reason.
        harmless: True if the file was changed, but nothing of it was left out.
        state: State of the run: DAMAGED, or UNREADABLE if this user may not read it.
        runs: Ids of the runs that are left out, for a file with several.
    """

    path: str
    reason: str
    harmless: bool = False
    state: State = State.DAMAGED
    runs: tuple[str, ...] = ()


@contextmanager
def noted(problems: list[Problem], path: str) -> Iterator[None]:
    """Turn a ``RecordError`` inside the ``with`` block into a problem of ``path``."""
    try:
        yield
    except RecordError as error:
        problems.append(Problem(path, str(error)))


# Runs


def read_runs(runs_dir: Path) -> tuple[dict[str, Run], tuple[Problem, ...]]:
    """Read every run folder under ``runs_dir``.

    Returns:
        Run id -> run, and problems. A folder that cannot be read is only a problem. A run with
        damaged records or lost samples is returned and has a problem, too.

    Raises:
        UnreadableError: This user may not read ``runs_dir``.
    """
    runs: dict[str, Run] = {}
    problems = []
    check_readable(runs_dir)
    for folder in sorted(runs_dir.iterdir()) if runs_dir.is_dir() else ():
        if not folder.is_dir() or folder.name in NOT_RUNS or folder.name.startswith("."):
            continue
        # An offline folder of W&B is recognised by its file, since folder names may change.
        if any(folder.glob("*.wandb")):
            # W&B's latest-run is a link to one of the other folders.
            if not folder.is_symlink():
                problems.append(Problem(folder.name, OFFLINE))
            continue
        try:
            check_readable(folder)
            run = read_run(folder)
        except RecordError as error:
            problems.append(Problem(folder.name, str(error), state=state_of(error)))
        except Exception as error:  # noqa: BLE001 (one broken folder must not hide the others)
            reason = f"cannot be read ({type(error).__name__}: {error}). {MOVE_AWAY}"
            problems.append(Problem(folder.name, reason))
        else:
            runs[folder.name] = run
            if run.damage:
                problems.append(Problem(run.id, run.damage))
            for path in run.lost:
                problems.append(Problem(run.id, f"{path} is lost: figures are made without it"))
    return runs, tuple(problems)


def read_run(folder: Path) -> Run:
    """Read one run folder.

    If a record other than config.yaml is damaged, the run is returned in state DAMAGED, with the
    reason in ``damage``.

    Raises:
        RecordError: The folder is not a run folder, it was copied or renamed, its config.yaml is
            damaged, or this user may not read it (UnreadableError).
    """
    records = RunFolder(folder)
    config = _read_config(records)
    try:
        # Only the needed part is validated: configurations of other versions have other keys.
        head = RunHead.model_validate(config)
    except ValidationError as error:
        raise RecordError(
            f"{folder.name}/config.yaml is not a run's config: {first_complaint(error)}. "
            f"{MOVE_AWAY}"
        ) from error

    check_id(records, config)
    panels: dict[str, dict[str, Any]] = {}
    attempts: list[_Attempt] = []
    status, damage = None, None
    try:
        status = records.read_status()
        check_records(records)
        panels = records.read_panels()
        attempts = _attempts(records)
    except UnreadableError:
        # Not returned as a damaged run, because an unreadable record may be intact.
        raise
    except RecordError as error:
        damage = explained(records, error)

    sums = status.sums if status else {}
    # Files in subfolders are samples; logs and records are checked elsewhere.
    samples = [folder / name for name in sums if "/" in name]
    last = attempts[-1] if attempts else _Attempt()
    return Run(
        id=folder.name,
        folder=folder,
        head=head,
        config=config,
        setting=setting_of(config, panels),
        state=State.DAMAGED if damage or status is None else _state(records, status),
        step=status.step if status else None,
        commit=status.commit if status else None,
        panels=panels,
        processor=last.cpu,
        torch_capability=last.torch_capability or UNKNOWN,
        code=_code_sum(folder),
        dirty=any(attempt.dirty for attempt in attempts),
        weights=_weights(attempts),
        damage=damage,
        lost=tuple(path for path in samples if not path.exists()),
        sums=sums,
    )


def _state(records: RunFolder, status: Status) -> State:
    """Recorded state, except for a run of this machine whose process is gone: LOST."""
    if status.state is not State.RUNNING:
        return status.state
    # Only the scheduler knows whether a job is queued again, and only the host whether a process
    # lives.
    if status.host is None or records.job.exists():
        return status.state
    # ``observe`` reads the status again. If the run has ended since, the rest of ``status`` (step,
    # checksums) would not match the new state.
    found = observe(records)
    died = found.recorded is State.RUNNING and not found.alive
    return found.state if died else status.state


def _read_config(records: RunFolder) -> Any:
    try:
        return read_yaml(records.config)
    except UnreadableError:
        raise
    except RecordError as error:
        message = str(error)
        # A run folder that has lost its configuration still has other records.
        is_run_folder = records.identity.exists() or records.status.exists()
        if not is_run_folder:
            message = f"{records.run_id} is no run folder: {error}. {MOVE_AWAY}"
        raise RecordError(message) from error


def _attempts(records: RunFolder) -> list[_Attempt]:
    try:
        return [_Attempt.model_validate(attempt) for attempt in records.read_attempts()]
    except ValidationError as error:
        raise RecordError(
            f"{records.provenance} is not a record of attempts: {first_complaint(error)}. "
            f"{RUN_AGAIN}"
        ) from error


def _weights(attempts: Iterable[_Attempt]) -> dict[str, frozenset[str]]:
    weights: dict[str, frozenset[str]] = {}
    for attempt in attempts:
        for path, content in attempt.weights.items():
            weights[path] = weights.get(path, frozenset()) | {content}
    return weights


def _code_sum(folder: Path) -> str:
    """One checksum for all code files, to compare the code of runs; UNKNOWN without a record.

    If other code resumed the run, one for each version, the earliest first, joined by ``AND``.
    """
    try:
        record = read_json(folder / CODE)
        versions = [*record.get("earlier", ()), record]
        sums = [text_sum(json.dumps(code["files"], sort_keys=True).encode()) for code in versions]
    except (RecordError, LookupError, TypeError, AttributeError):
        return UNKNOWN
    return AND.join(sums)


# Logs


def read_lines(run: Run, logs: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
    """Yield ``{"step": n, metric: value, ...}`` with our names of metrics, file by file.

    Args:
        run: The run; a damaged one yields nothing.
        logs: The ``run.logs`` to read; None: all.

    Raises:
        RecordError: A log is damaged, or differs from what the run wrote.
    """
    if run.damage:
        return
    for name in run.logs if logs is None else logs:
        path = run.folder / name
        if run.project is None:
            lines = read_present(RunFolder(run.folder), path)
            if name == METRICS_LOG:
                log_gaps.check(path, run.config, lines)
        else:
            lines = list(_downloaded(path))
            if run.foreign:
                lines = [verl_agent_logs.translate(line, run.config) for line in lines]
            else:
                _check_downloaded(path, run.config, lines)
        yield from lines


def read_numbers(run: Run) -> Iterator[tuple[str, int, float]]:
    """Yield (metric, step, value) for every number that a run logged; other values are skipped.

    Raises:
        RecordError: A log is damaged, or holds a value that cannot have been measured.
    """
    for line in read_lines(run):
        step = line["step"]
        for metric, value in line.items():
            if metric == "step" or not _is_number(value):
                continue
            if reason := complaint(metric, step, float(value)):
                raise RecordError(f"{run.folder}: {reason}. {MOVE_AWAY}")
            yield metric, step, float(value)


def _is_number(value: Any) -> bool:
    # False for NaN, too, which fails every comparison.
    return isinstance(value, (int, float)) and abs(value) < LARGEST_NUMBER


def _check_downloaded(
    path: Path, config: Mapping[str, Any], lines: Sequence[Mapping[str, Any]]
) -> None:
    """Raise RecordError if a history lacks a validation.

    This happens if a run was resumed: W&B drops the steps that it repeats.
    """
    numbers = log_gaps.numbers_by_metric(lines)
    steps = [line["step"] for line in lines]
    if found := log_gaps.gap(config, steps, numbers, every_line=False):
        raise RecordError(
            f"{path} {found}. Read the run's folder instead, or send it again (`python -m sweeps "
            "sync`) and --refresh"
        )


def _downloaded(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of the local copy of a W&B run; values of metrics may be any JSON."""
    for number, line in enumerate(read_bytes(path).split(b"\n")[:-1], start=1):
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict) or type(entry.get("step")) is not int:
                raise TypeError("not a JSON object with an integer `step`")
        except (ValueError, TypeError, RecursionError) as error:
            raise RecordError(
                f"{path}, line {number} is damaged: {error}. Delete its folder and --refresh"
            ) from error
        yield entry


# Experiments


def read_experiments(runs_dir: Path) -> tuple[tuple[ExperimentRecord, ...], tuple[Problem, ...]]:
    """Read every experiment record, sorted by name and scale; damaged ones become problems."""
    records = []
    problems = []
    for path in sorted((runs_dir / EXPERIMENTS).glob("*.json")):
        try:
            records.append(read_record(path, ExperimentRecord, "experiment record", SWEEP_AGAIN))
        except RecordError as error:
            denied = isinstance(error, UnreadableError)
            reason = str(error) if denied else f"not an experiment record: {error}"
            problems.append(Problem(f"{EXPERIMENTS}/{path.name}", reason))
    ordered = sorted(records, key=lambda record: (record.experiment, record.scale))
    return tuple(ordered), tuple(problems)


def contradiction(run: Run, planned: PlannedRun, record: ExperimentRecord) -> str | None:
    """Describe how a run differs from an experiment's record; None if it does not.

    Records are written before the runs, which may have been replaced since.
    """
    for what, own, asked in (
        ("scale", run.head.scale, record.scale),
        ("environment", run.head.env.name, planned.env),
        ("model", run.head.model.name, planned.model),
        ("seed", run.head.seed, planned.seed),
    ):
        if own != asked:
            return f"its {what} is {own}, and the record of {record.experiment} has it as {asked}"
    return None
