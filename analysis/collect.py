"""Run folders -> one long-format table (run, step, metric, value) and one table of runs; written as parquet.

Every builder reads its numbers through ``Collected``, which notes the files that were read: so the sources of a table
or figure are known without its builder saying so.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.records import DONE, Problem, Run, read_experiments, read_metrics, read_runs
from analysis.rows import Section, sections
from analysis.stats import Series, make_series

METRIC_FILES = ("metrics.jsonl", "timing.jsonl")


@dataclass(frozen=True)
class Collected:
    """All that was recorded: ``runs`` and ``metrics`` are the parquet tables, ``used`` the (run, file) pairs read."""

    runs_dir: Path
    runs: pd.DataFrame
    metrics: pd.DataFrame
    sections: tuple[Section, ...]
    problems: tuple[Problem, ...]
    used: set[tuple[str, str]] = field(default_factory=set)

    @property
    def scales(self) -> tuple[str, ...]:
        """The scales that have rows. No table or figure ever holds two."""
        return tuple(sorted({section.scale for section in self.sections}))

    def at_scale(self, scale: str) -> "Collected":
        """The same data with the sections of one scale, and a fresh note of the files used: what a builder is given."""
        return replace(self, sections=tuple(part for part in self.sections if part.scale == scale), used=set())

    def series(self, run: str, metric: str) -> Series:
        """One metric of one run; empty if it was never logged."""
        self.used.update((run, name) for name in METRIC_FILES)
        return self._series.get((run, metric), Series())

    def panels(self, run: str) -> tuple[str, ...]:
        """Names of the run's validation panels that were evaluated."""
        names = (key.split("/")[1] for known, key in self._series if known == run and key.startswith("val/"))
        return tuple(dict.fromkeys(names))

    def diagnostics(self, run: str, pattern: str) -> tuple[Path, ...]:
        """The run's sampled diagnostics whose names match; to be noted with ``use`` by who draws them."""
        return tuple(sorted((self.runs_dir / run / "diagnostics").glob(pattern)))

    def use(self, run: str, path: Path) -> None:
        """Note a file of the run as a source."""
        self.used.add((run, str(path.relative_to(self.runs_dir / run))))

    @cached_property
    def _series(self) -> dict[tuple[str, str], Series]:
        grouped = self.metrics.groupby(["run", "metric"], observed=True, sort=False)
        return {key: make_series(zip(part["step"], part["value"], strict=True)) for key, part in grouped}


def collect(runs_dir: Path) -> Collected:
    """Read every run folder and experiment record under ``runs_dir``; what cannot be read is in ``problems``."""
    runs, unreadable = read_runs(runs_dir)
    experiments, broken = read_experiments(runs_dir)
    parts, conflicts = sections(experiments, runs)
    return Collected(
        runs_dir=runs_dir,
        runs=_runs_table(runs, parts),
        metrics=_metrics_table(runs),
        sections=parts,
        problems=unreadable + broken + conflicts,
    )


def write_parquet(data: Collected, folder: Path) -> tuple[Path, Path]:
    """Write ``metrics.parquet`` and ``runs.parquet``; equal data gives equal bytes."""
    from analysis.outputs import write_atomically

    paths = folder / "metrics.parquet", folder / "runs.parquet"
    for path, table in zip(paths, (data.metrics, data.runs), strict=True):
        write_atomically(path, table.to_parquet(index=False))
    return paths


def _metrics_table(runs: Mapping[str, Run]) -> pd.DataFrame:
    columns: dict[str, list[Any]] = {"run": [], "step": [], "metric": [], "value": []}
    for run in runs.values():
        for name in METRIC_FILES:
            for entry in read_metrics(run.folder / name):
                numbers = [(key, float(value)) for key, value in entry.items() if key != "step" and _is_number(value)]
                columns["run"] += [run.id] * len(numbers)
                columns["step"] += [entry["step"]] * len(numbers)
                columns["metric"] += [key for key, _ in numbers]
                columns["value"] += [value for _, value in numbers]
    table = pd.DataFrame(columns).astype({"step": "int64", "value": "float64"})
    return table.astype({"run": "category", "metric": "category"})


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _runs_table(runs: Mapping[str, Run], parts: tuple[Section, ...]) -> pd.DataFrame:
    names: dict[str, list[str]] = {run: [] for run in runs}
    for section in parts:
        for row in section.rows:
            for planned in row.runs:
                names.setdefault(planned.id, []).append(row.name)
    table = [_runs_row(run, names[run.id]) for run in runs.values()]
    return pd.DataFrame(table, columns=[*_RUN_COLUMNS])


def _runs_row(run: Run, rows: list[str]) -> dict[str, Any]:
    head = run.head
    hashes = [f"{name}:{panel.get('sha256')}" for name, panel in sorted(run.panels.items()) if isinstance(panel, dict)]
    values = (run.id, rows, head.env.name, head.model.name, head.method.name, head.seed, run.state, head.scale)
    return dict(zip(_RUN_COLUMNS, (*values, run.setting, run.step, run.commit, hashes, run.state == DONE), strict=True))


_RUN_COLUMNS = (
    *("id", "rows", "env", "model", "method", "seed", "state", "scale"),
    *("setting", "last_step", "commit", "panel_hashes", "finished"),
)
