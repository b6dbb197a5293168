"""Everything that reads a sweep's records, at once; and whether what it says is true, named or neither."""

import io
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from rich.console import Console

from analysis.show import experiment_table
from analysis.sources.collect import collect
from analysis.sources.collected import Collected
from scpo.diagnostics.sampled_groups import read_groups
from scpo.diagnostics.samples import read_probe, read_step_texts
from scpo.errors import ScpoError
from scpo.records import State, run_folders, verify
from scpo.records.manifest import experiment_members
from sweeps.launchers.slurm.observer import Observer
from sweeps.launchers.slurm.scheduler import Slurm
from sweeps.status import show_statuses, statuses
from tests.faults.campaign.tiny_sweep import EXPERIMENT


class Verdict(StrEnum):
    """EQUAL: all numbers are what they were. NAMED: what is not is left out, and told. The others are defects."""

    EQUAL = "equal"
    NAMED = "named"
    LOST = "lost"
    SILENT = "silent"
    TRACEBACK = "traceback"
    HANG = "hang"


@dataclass
class Reading:
    """What the readers say: numbers of finished runs, the sweep's end table, samples, and what is wrong."""

    numbers: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, tuple[str, ...]] = field(default_factory=dict)
    table: str | None = None
    samples: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    verified: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)


def read(runs: Path) -> Reading:
    """Every reader once; what escapes one is a traceback."""
    seen = Reading()
    for reader in (_collect, _table, _samples, _verify, _status):
        try:
            reader(runs, seen)
        except ScpoError as error:
            seen.problems.append(str(error))
        except Exception:  # noqa: BLE001 (this is what is counted)
            seen.tracebacks.append(f"{reader.__name__}: {traceback.format_exc(limit=-4)}")
    return seen


def _collect(runs: Path, seen: Reading) -> None:
    data = collect(runs)
    seen.problems += [f"{one.path}: {one.reason}" for one in data.problems]
    for run_id, run in data.by_id.items():
        if run.state == State.DONE:
            seen.numbers[run_id] = _series(data, run_id)
    for section in data.sections:
        seen.rows |= {row.name: row.finished for row in section.rows}


def _series(data: Collected, run_id: str) -> Any:
    names = data.metric_names(run_id)
    return {name: (one.steps, one.values) for name in names for one in [data.series(run_id, name)]}


def _table(runs: Path, seen: Reading) -> None:
    seen.table = experiment_table(runs, EXPERIMENT)


def _samples(runs: Path, seen: Reading) -> None:
    readers = {
        "probe": lambda path: replace(read_probe(path), path=Path(path.name)),
        "groups": read_groups,
        "step_texts": lambda path: read_step_texts([path]),
    }
    for path in sorted(runs.glob("*/diagnostics/*")):
        kind = path.name.partition("_step_")[0]
        if kind in readers:
            try:
                seen.samples[f"{path.parent.parent.name}/{path.name}"] = repr(readers[kind](path)).replace(
                    str(runs), ""
                )
            except ScpoError as error:
                seen.problems.append(f"{path.parent.parent.name}: {error}")


def _verify(runs: Path, seen: Reading) -> None:
    folders = run_folders.list_runs(runs)
    seen.verified = [problem for folder in folders for problem in verify.problems(folder)]
    seen.verified += verify.panel_conflicts(folders) + experiment_members(runs)[1]


def _status(runs: Path, seen: Reading) -> None:
    rows = statuses(run_folders.list_runs(runs), Observer(Slurm()))
    show_statuses(Console(file=io.StringIO()), rows)


def judge(seen: Reading, truth: Reading) -> tuple[Verdict, str]:
    """What a reading is worth, and why."""
    if seen.tracebacks:
        return Verdict.TRACEBACK, seen.tracebacks[0]
    told = "\n".join((*seen.problems, *seen.verified))
    for verdict, why in (*_runs(seen, truth, told), *_files(seen, truth, told)):
        return verdict, why
    return (Verdict.NAMED, told) if told else (Verdict.EQUAL, "")


def _runs(seen: Reading, truth: Reading, told: str) -> Iterator[tuple[Verdict, str]]:
    for run_id, numbers in truth.numbers.items():
        if seen.numbers.get(run_id, numbers) != numbers:
            yield Verdict.SILENT, f"{run_id} has other numbers"
        if run_id not in seen.numbers and run_id not in told:
            yield Verdict.LOST, f"{run_id} is gone without a word"
        if run_id not in seen.numbers and not any(run_id in one for one in seen.verified):
            yield Verdict.SILENT, f"the tables leave {run_id} out, and verify says nothing of it"


def _files(seen: Reading, truth: Reading, told: str) -> Iterator[tuple[Verdict, str]]:
    for name, sample in truth.samples.items():
        if seen.samples.get(name, sample) != sample:
            yield Verdict.SILENT, f"{name} reads otherwise"
        if name not in seen.samples and name.partition("/")[2] not in told:
            yield Verdict.LOST, f"{name} is gone without a word"
    if seen.rows != truth.rows and not seen.problems:
        yield Verdict.SILENT, f"rows are {seen.rows}"
    if seen.table != truth.table and "left out: " not in (seen.table or "left out: "):
        yield Verdict.SILENT, f"the end table differs without a word:\n{seen.table}"
