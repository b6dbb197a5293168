"""Which runs a pattern means: run ids, or the experiments that they are rows of."""

import fnmatch
from collections.abc import Sequence
from pathlib import Path

from scpo.errors import ConfigError
from scpo.tracking import RunFolder
from scpo.tracking.atomic import read_json
from sweeps.records import run_folders as store


def select(runs_dir: Path, patterns: Sequence[str]) -> list[RunFolder]:
    """The run folders that match any of the patterns (shell wildcards), by name; ConfigError for one without a match.

    A pattern is held against a run's id and against the names of the experiments that it belongs to.
    """
    folders = {folder.run_id: folder for folder in store.run_folders(runs_dir)}
    members = experiment_members(runs_dir)
    chosen: set[str] = set()
    for pattern in patterns:
        found = set(fnmatch.filter(folders, pattern))
        for name in fnmatch.filter(members, pattern):
            found |= members[name] & folders.keys()
        if not found and pattern != "*":
            known = ", ".join(members) or "none"
            raise ConfigError(f"no run in {runs_dir} matches {pattern!r}; experiments there: {known}")
        chosen |= found
    return [folders[name] for name in sorted(chosen)]


def experiment_members(runs_dir: Path) -> dict[str, set[str]]:
    """Experiment -> ids of its runs, over all scales."""
    members: dict[str, set[str]] = {}
    for path in sorted((runs_dir / store.EXPERIMENTS).glob("*.json")):
        manifest = read_json(path)
        ids = {run["id"] for row in manifest["rows"] for run in row["runs"]}
        members.setdefault(manifest["experiment"], set()).update(ids)
    return members
