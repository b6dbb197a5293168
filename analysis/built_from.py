"""``sources.json``: what each table and figure was made from, and so whether it has to be made again."""

import hashlib
import json
import subprocess
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from analysis.sources.collect import Collected
from scpo.installed import installed_version
from scpo.records.files import write_bytes

NAME = "sources.json"
ROOT = Path(__file__).resolve().parents[1]
CODE = (
    "analysis/**/*.py", "paper_figures/published/*.csv", "scpo/intervals.py",
    "scpo/schema/env.py", "scpo/schema/method.py", "scpo/schema/agent.py", "scpo/advantages/*.py",  # labels
)  # fmt: skip
LIBRARIES = ("matplotlib", "numpy", "pandas", "scikit-learn", "scipy", "seaborn", "sentence-transformers", "torch")


class Sources:
    """Hashes of inputs, code and outputs. A file is read once in a build, however many figures are made of it."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self._hashes: dict[Path, str | None] = {}
        self._before = _read(out / NAME)

    def unchanged(self, name: str, data: Collected) -> dict[str, Any] | None:
        """The entry of an output whose runs, inputs, code and files are what they were; else None."""
        entry = self._before.get(name)
        if not entry or entry.get("state") != self._state(data):
            return None
        inputs = {_path(data, place): known for place, known in (entry["inputs"] | entry["seen"]).items()}
        files = {self.out / file: known for file, known in entry["files"].items()}
        same = all(path is not None and self._hash(path) == known for path, known in (inputs | files).items())
        return entry if same else None

    def entry(self, data: Collected, contents: Mapping[str, bytes]) -> dict[str, Any]:
        """What ``sources.json`` says of one output."""
        runs = sorted({run for run, _ in data.used})
        rows = data.runs.set_index("id").loc[runs]
        used = {(run, "config.yaml") for run in runs} | data.used
        return {
            "files": {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()},
            "runs": runs,
            "seeds": int(rows["seed"].nunique()),
            "run_commits": sorted({str(commit) for commit in rows["commit"].dropna()}),
            "inputs": self._hashed(data, used),
            "seen": self._hashed(data, data.seen - used),
            "state": self._state(data),
        }

    def write(self, entries: Mapping[str, Any], *, keep: bool = False) -> None:
        """Write the file, with the commit of the code that draws; ``keep``: what was there of other outputs stays."""
        outputs = {**(self._before if keep else {}), **entries}
        text = json.dumps({"commit": _commit(), "outputs": outputs}, indent=2, sort_keys=True)
        write_bytes(self.out / NAME, f"{text}\n".encode(), readable=True)

    def _hashed(self, data: Collected, places: Iterable[tuple[str, str]]) -> dict[str, str]:
        found = {f"{run}/{name}": self._hash(data.by_id[run].folder / name) for run, name in sorted(places)}
        return {place: known for place, known in found.items() if known}

    def _hash(self, path: Path) -> str | None:
        if path not in self._hashes:
            self._hashes[path] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
        return self._hashes[path]

    def _state(self, data: Collected) -> str:
        """Of what a builder may choose from: rows, runs and the names of their diagnostics; and of what it is."""
        runs = [run.id for part in data.sections for row in part.rows for run in row.runs if run.id in data.by_id]
        names = [sorted(path.name for path in (data.by_id[run].folder / "diagnostics").glob("*")) for run in runs]
        return hashlib.sha256(repr((data.sections, runs, names, self._code)).encode()).hexdigest()

    @cached_property
    def _code(self) -> tuple[Any, ...]:
        files = [(str(path.relative_to(ROOT)), self._hash(path)) for place in CODE for path in sorted(ROOT.glob(place))]
        return (*files, *((name, installed_version(name)) for name in LIBRARIES))


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_bytes())["outputs"])
    except (OSError, ValueError, KeyError, TypeError):
        return {}  # of another version, or not there: everything is made anew


def _path(data: Collected, place: str) -> Path | None:
    run, _, name = place.partition("/")
    return data.by_id[run].folder / name if run in data.by_id else None


def _commit() -> str | None:
    """The commit of the code that draws; None outside a git checkout."""
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
