"""``runs/experiments/<name>-<scale>.json``: which run is which row of an experiment. The analysis reads it."""

import fnmatch
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scpo.errors import ConfigError, RecordError
from scpo.tracking import RunFolder
from scpo.tracking.atomic import write_json
from scpo.tracking.records import Manifest, PlannedRow, read_record
from sweeps.compose.identity import settings_digest
from sweeps.compose.matrix import Cell, Matrix
from sweeps.records.run_folders import EXPERIMENTS, run_folders

Row = dict[str, Any]


def manifest_path(runs_dir: Path, experiment: str, scale: str) -> Path:
    """Where an experiment's manifest lies: one for each scale, so that neither replaces the other."""
    return runs_dir / EXPERIMENTS / f"{experiment}-{scale}.json"


def update(runs_dir: Path, matrix: Matrix) -> None:
    """Write the manifest of a matrix, joined with what earlier calls with other axes left.

    An earlier entry stays if it belongs into the same table: same overrides, a run folder that is still
    there, and, where this call has the same row, environment and model, the same settings apart from the seed.
    """
    path = manifest_path(runs_dir, matrix.experiment.name, matrix.scale)
    rows = [_row(row.name, row.label, matrix.cells) for row in matrix.experiment.rows]
    head: dict[str, Any] = {
        "experiment": matrix.experiment.name,
        "title": matrix.experiment.title,
        "scale": matrix.scale,
        "overrides": matrix.identity_overrides,
        "primary": matrix.experiment.primary and matrix.experiment.primary.model_dump(mode="json"),
    }
    if path.exists():
        earlier = read(path)
        if list(earlier.overrides) == list(head["overrides"]):
            _join(rows, earlier.rows, runs_dir)
    write_json(path, {**head, "rows": rows})


def _row(name: str, label: str, cells: list[Cell]) -> Row:
    return {"name": name, "label": label, "runs": [_entry(cell) for cell in cells if cell.row.name == name]}


def _entry(cell: Cell) -> dict[str, Any]:
    config = cell.config
    return {
        "id": cell.run_id,
        "env": config.env.benchmark,
        "model": config.model.name,
        "seed": config.seed,
        "settings": settings_digest(config),
    }


def read(path: Path) -> Manifest:
    """One experiment's manifest; RecordError if it is damaged."""
    remedy = "Delete it: the same sweep writes it again (runs stay; repeat what was swept with other seeds)"
    return read_record(path, Manifest, "manifest of an experiment", remedy)


def _join(rows: list[Row], earlier: Sequence[PlannedRow], runs_dir: Path) -> None:
    before = {row.name: [run.model_dump() for run in row.runs] for row in earlier}
    for row in rows:
        settings = {(run["env"], run["model"]): run["settings"] for run in row["runs"]}
        present = {(run["env"], run["model"], run["seed"]) for run in row["runs"]}
        for run in before.get(row["name"], []):
            place = (run["env"], run["model"])
            same = settings.get(place, run["settings"]) == run["settings"]
            if same and (*place, run["seed"]) not in present and (runs_dir / run["id"]).is_dir():
                row["runs"].append(run)
        row["runs"].sort(key=lambda run: (run["env"], run["model"], run["seed"]))


def select(runs_dir: Path, patterns: Sequence[str]) -> list[RunFolder]:
    """The run folders that match any of the patterns (shell wildcards), by name; ConfigError for one without a match.

    A pattern is held against a run's id and against the names of the experiments that it belongs to.
    """
    folders = {folder.run_id: folder for folder in run_folders(runs_dir)}
    members, damaged = experiment_members(runs_dir)
    chosen: set[str] = set()
    for pattern in patterns:
        found = set(fnmatch.filter(folders, pattern))
        for name in fnmatch.filter(members, pattern):
            found |= members[name] & folders.keys()
        if not found and pattern != "*":
            known = ", ".join(members) or "none"
            raise ConfigError(
                "; ".join([f"no run in {runs_dir} matches {pattern!r}; experiments there: {known}", *damaged])
            )
        chosen |= found
    return [folders[name] for name in sorted(chosen)]


def experiment_members(runs_dir: Path) -> tuple[dict[str, set[str]], list[str]]:
    """Experiment -> ids of its runs, over all scales; and what is wrong with manifests that cannot be read."""
    members: dict[str, set[str]] = {}
    damaged = []
    for path in sorted((runs_dir / EXPERIMENTS).glob("*.json")):
        try:
            manifest = read(path)
        except RecordError as error:
            damaged.append(str(error))
            continue
        members.setdefault(manifest.experiment, set()).update(run.id for row in manifest.rows for run in row.runs)
    return members, damaged
