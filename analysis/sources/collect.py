"""Records of runs -> one long-format table (run, step, metric, value) and one table of runs; written as parquet.

Every builder reads its numbers through ``Collected``, which notes the files that were read: so the
sources of a table or figure are known without its builder saying so.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import pandas as pd
from scpo.errors import RecordError
from scpo.intervals import Summary, summarise
from scpo.records import State
from scpo.records.files import RUN_AGAIN, change, write_bytes

from analysis.sources import ranges
from analysis.sources.logged_lines import read_lines
from analysis.sources.rows import Row, Section, sections
from analysis.sources.run_records import MOVE_AWAY, ExperimentRecord, Problem, Run
from analysis.sources.series import Series, make_series
from analysis.sources.sources import Found, read_sources
from analysis.sources.wandb_project import Settings

Sample = TypeVar("Sample")


@dataclass(frozen=True)
class Collected:
    """All that was recorded: ``runs`` and ``metrics`` are the parquet tables.

    ``used`` notes the (run, file) pairs that an output is made of, ``seen`` those it could choose
    from.
    """

    by_id: Mapping[str, Run]
    runs: pd.DataFrame
    metrics: pd.DataFrame
    sections: tuple[Section, ...]
    problems: tuple[Problem, ...]
    by_metric: Mapping[str, Mapping[str, Series]] = field(repr=False)  # run -> metric
    experiments: tuple[ExperimentRecord, ...] = ()
    chosen: tuple[
        str, ...
    ] = ()  # rows that the user asked for by name (analysis.selection); empty: all
    used: set[tuple[str, str]] = field(default_factory=set)
    seen: set[tuple[str, str]] = field(default_factory=set)
    _samples: dict[tuple[str, str], Problem | None] = field(
        default_factory=dict, repr=False
    )  # that were looked at

    @property
    def scales(self) -> tuple[str, ...]:
        """The scales that have rows. No table or figure ever holds two."""
        return tuple(sorted({section.scale for section in self.sections}))

    def at_scale(self, scale: str) -> "Collected":
        """The same data with the sections of one scale and fresh notes: what a builder is given."""
        parts = tuple(part for part in self.sections if part.scale == scale)
        return replace(self, sections=parts, used=set(), seen=set())

    def series(self, run: str, metric: str) -> Series:
        """One metric of one run; empty if it was never logged."""
        if run in self.by_id:
            self.used.update((run, name) for name in self.by_id[run].logs)
        return self.by_metric.get(run, {}).get(metric, Series())

    def summary(
        self, row: Row, metric: str, which: Literal["before", "last", "best", "mean"]
    ) -> Summary:
        """Over the row's finished runs: what ``Series`` reads off the curve of a metric."""
        return summarise(getattr(self.series(run, metric), which) for run in row.finished)

    def metric_names(self, run: str) -> tuple[str, ...]:
        """The metrics that a run logged, sorted."""
        return tuple(sorted(self.by_metric.get(run, ())))

    def panels(self, run: str) -> tuple[str, ...]:
        """Names of the run's validation panels that were evaluated, sorted."""
        names = (name.split("/")[1] for name in self.metric_names(run) if name.startswith("val/"))
        return tuple(dict.fromkeys(names))

    def diagnostics(self, run: str, pattern: str) -> tuple[Path, ...]:
        """The run's whole samples whose names match; to be noted with ``use`` by who draws them.

        One that is not what the run wrote is left out and added to ``sample_problems``.
        """
        paths = tuple(sorted((self.by_id[run].folder / "diagnostics").glob(pattern)))
        self.seen.update((run, self._inside(run, path)) for path in paths)
        return tuple(path for path in paths if self._is_whole(run, path))

    def samples(
        self, run: str, pattern: str, read: Callable[[Path], Sample]
    ) -> Iterator[tuple[Path, Sample]]:
        """The run's samples that can be read, with their content; to be noted with ``use``.

        One with a right checksum and wrong content is left out and added to ``sample_problems``, too: it costs a
        figure no other sample.
        """
        for path in self.diagnostics(run, pattern):
            try:
                content = read(path)
            except RecordError as error:
                self._samples[run, self._inside(run, path)] = Problem(
                    f"{run}/{path.name}", str(error)
                )
            else:
                yield path, content

    @property
    def sample_problems(self) -> tuple[Problem, ...]:
        """Samples that were asked for and left out."""
        samples = [self._samples[key] for key in sorted(self._samples)]
        return tuple(problem for problem in samples if problem is not None)

    def _is_whole(self, run: str, path: Path) -> bool:
        key = (run, self._inside(run, path))
        if key not in self._samples:
            reason = sample_damage(self.by_id[run], path)
            self._samples[key] = Problem(f"{run}/{path.name}", reason) if reason else None
        return self._samples[key] is None

    def use(self, run: str, *paths: Path) -> None:
        """Note files of the run as sources."""
        self.used.update((run, self._inside(run, path)) for path in paths)

    def _inside(self, run: str, path: Path) -> str:
        return str(path.relative_to(self.by_id[run].folder))


def sample_damage(run: Run, path: Path) -> str | None:
    """How a sample differs from what the run wrote; None: not at all, or the run noted no checksum of any sample."""
    noted = {name: known for name, known in run.sums.items() if "/" in name}
    known = noted.get(str(path.relative_to(run.folder)))
    if known is not None:
        changed = change(path, known, whole=True)
        return f"{changed}: left out. {RUN_AGAIN}" if changed else None
    if noted and run.state == State.DONE:
        return "is no file that the run wrote: left out. Delete it"
    return None


def collect(
    folders: Path | Iterable[Path], projects: Iterable[str] = (), settings: Settings | None = None
) -> Collected:
    """Read every run of the sources; what cannot be read is in ``problems``.

    Args:
        folders: Folders of run folders or of W&B's offline folders.
        projects: W&B projects, ``entity/project``.
        settings: How projects are read: the local copy, whether to ask W&B again.

    Raises:
        RecordError: A project cannot be read at all.
    """
    found = read_sources([folders] if isinstance(folders, Path) else folders, projects, settings)
    runs, metrics, damaged = _whole_runs(found)
    parts, conflicts = sections(found.experiments, runs)
    return Collected(
        by_id=runs,
        runs=_runs_table(runs, parts),
        metrics=metrics,
        sections=parts,
        problems=(*found.problems, *damaged, *conflicts),
        by_metric=_series_by_run(metrics),
        experiments=found.experiments,
    )


def write_parquet(data: Collected, folder: Path) -> tuple[Path, Path]:
    """Write ``metrics.parquet`` and ``runs.parquet``; equal data gives equal bytes."""
    paths = folder / "metrics.parquet", folder / "runs.parquet"
    for path, table in zip(paths, (data.metrics, data.runs), strict=True):
        write_bytes(path, table.to_parquet(index=False), readable=True)
    return paths


def _whole_runs(found: Found) -> tuple[dict[str, Run], pd.DataFrame, list[Problem]]:
    """Of each run the best copy whose metrics are whole, the long table of them, and what is wrong with the others.

    A run without such a copy is DAMAGED: it is known, and none of its numbers are in the table.
    """
    runs: dict[str, Run] = {}
    problems: list[Problem] = []
    columns: dict[str, list[Any]] = {"run": [], "step": [], "metric": [], "value": []}
    archived: dict[Path, list[str]] = {}
    for run_id, copies in found.copies.items():
        runs[run_id] = replace(copies[0], state=State.DAMAGED)
        for run in copies:
            if run.damage:
                continue  # named by its source
            if run.folder in found.archived:
                archived.setdefault(run.folder, []).append(run_id)
            else:
                try:
                    logged = _logged(run)
                except RecordError as error:
                    problems.append(Problem(run_id, str(error)))
                    continue
                for name, values in logged.items():
                    columns[name] += values
            runs[run_id] = run
            break
    parts = [pd.DataFrame(columns)]
    for folder, ids in archived.items():
        table = found.archived[folder]
        parts.append(table[table["run"].isin(ids)])
    filled = [part for part in parts if len(part)] or parts[:1]
    kinds = {"step": "int64", "value": "float64", "run": "category", "metric": "category"}
    table = pd.concat(filled).astype(kinds)
    # Stable: of two values at one step the later written stays the later one.
    return (
        runs,
        table.sort_values(["run", "metric", "step"], kind="stable", ignore_index=True),
        problems,
    )


def _logged(run: Run) -> dict[str, list[Any]]:
    """The numbers that a run logged, as columns of the long table.

    Raises:
        RecordError: A log is damaged, or holds a value that was never measured.
    """
    columns: dict[str, list[Any]] = {"run": [], "step": [], "metric": [], "value": []}
    for line in read_lines(run):
        numbers = {
            key: float(value) for key, value in line.items() if key != "step" and _is_number(value)
        }
        for metric, value in numbers.items():
            if reason := ranges.complaint(metric, line["step"], value):
                raise RecordError(f"{run.folder}: {reason}. {MOVE_AWAY}")
        columns["run"] += [run.id] * len(numbers)
        columns["step"] += [line["step"]] * len(numbers)
        columns["metric"] += numbers
        columns["value"] += numbers.values()
    return columns


def _series_by_run(metrics: pd.DataFrame) -> dict[str, dict[str, Series]]:
    """Every run's metrics: the rows of the long table, which is sorted by run, metric and step."""
    steps, values = metrics["step"].tolist(), metrics["value"].tolist()
    found: dict[str, dict[str, Series]] = {}
    for (run, metric), rows in metrics.groupby(["run", "metric"], observed=True).indices.items():
        found.setdefault(run, {})[metric] = make_series(
            (steps[row], values[row]) for row in rows.tolist()
        )
    return found


LARGEST_NUMBER = 1e300  # of W&B's JSON, whose whole numbers may be too large for a float


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and abs(value) < LARGEST_NUMBER  # NaN is not


def _runs_table(runs: Mapping[str, Run], parts: tuple[Section, ...]) -> pd.DataFrame:
    names: dict[str, list[str]] = {run: [] for run in runs}
    for section in parts:
        for row in section.rows:
            for planned in row.runs:
                names.setdefault(planned.id, []).append(row.name)
    table = [_runs_row(run, names[run.id]) for run in runs.values()]
    return pd.DataFrame(table, columns=[*_RUN_COLUMNS])


def _runs_row(run: Run, rows: list[str]) -> tuple[Any, ...]:
    head = run.head
    hashes = [
        f"{name}:{panel.get('sha256')}"
        for name, panel in sorted(run.panels.items())
        if isinstance(panel, dict)
    ]
    values = (
        run.id,
        rows,
        head.env.name,
        head.model.name,
        head.method.name,
        head.seed,
        run.state,
        head.scale,
    )
    return (*values, run.setting, run.step, run.commit, hashes, run.state == State.DONE)


_RUN_COLUMNS = (
    *("id", "rows", "env", "model", "method", "seed", "state", "scale"),
    *("setting", "last_step", "commit", "panel_hashes", "finished"),
)
