"""Runs of which the sources have two results.

The id of a run is a hash of its settings and not of the code: a run that was made again in another
folder, after an edit of an estimator, has the same id and other numbers. Tables take one of them.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from analysis.sources.run_records import METRICS_LOG, Problem, Run
from scpo.errors import RecordError
from scpo.progress import counted
from scpo.records.status import State

# Prefixes of metrics that depend on the machine. The scorer's reports on its own work ("scpo/") do,
# too: they count what it has cached.
OF_MACHINE = (
    "timing_s/",
    "timing_per_token_ms/",
    "perf/",
    "actor/perf/",
    "critic/perf/",
    "global_seqlen/",
    "scpo/",
)

# The number of ids that a line lists.
LISTED = 4

Columns = Mapping[str, Iterable[Any]]
"""Numbers of a run: its ``metric``, ``step`` and ``value``."""

Values = Mapping[tuple[str, int], float]
"""(metric, step) -> value."""


@dataclass(frozen=True)
class Copies:
    """Compares the copies of runs.

    Attributes:
        archived: Archive folder -> long table of its undamaged runs.
        read: Reads the numbers of a copy in no archive; raises RecordError for a damaged log.
    """

    archived: Mapping[Path, pd.DataFrame]
    read: Callable[[Run], Columns]
    # Run id -> (place of the copy in use, place of one with other numbers).
    _found: dict[str, tuple[str, str]] = field(default_factory=dict)

    @cached_property
    def _places(self) -> dict[Path, Mapping[Any, Any]]:
        return {folder: table.groupby("run").indices for folder, table in self.archived.items()}

    def compare(self, used: Run, logged: Columns, others: Iterable[Run]) -> None:
        """Note the run if a finished, undamaged copy has other numbers than the one in use.

        ``logged``: numbers of the copy in use, unless it is in an archive.
        """
        if used.state != State.DONE:
            return
        own: Values | None = None
        for other in others:
            if other.damage or other.state != State.DONE or _equal_sums(used, other):
                continue
            try:
                values = self._values(other)
            except RecordError:
                # It is damaged, so it has no result.
                continue
            if own is None:
                own = self._values(used) if used.folder in self.archived else values_of(logged)
            if differ(own, values):
                self._found.setdefault(used.id, (place_of(used), place_of(other)))

    def problems(self) -> list[Problem]:
        """One problem for each source with results that are not used."""
        runs: dict[tuple[str, str], list[str]] = {}
        for run, places in self._found.items():
            runs.setdefault(places, []).append(run)
        found: dict[str, list[str]] = {}
        for (used, other), ids in runs.items():
            which = "one run" if len(ids) == 1 else counted(len(ids), "run")
            reason = f"two results of {which}: taken from {used}, not {other}; {listed(ids)}"
            found.setdefault(other, []).append(reason)
        return [
            Problem(f"copies in {other}", ". ".join(reasons)) for other, reasons in found.items()
        ]

    def notes(self) -> dict[str, str]:
        """Run id -> note on the copy that is in use, for captions."""
        return {
            run: f"taken from {used}, not {other}" for run, (used, other) in self._found.items()
        }

    def _values(self, run: Run) -> Values:
        table = self.archived.get(run.folder)
        if table is None:
            return values_of(self.read(run))
        rows = table.iloc[self._places[run.folder].get(run.id, [])]
        return values_of({name: rows[name].tolist() for name in ("metric", "step", "value")})


def place_of(run: Run) -> str:
    """Where a copy is: its folder of runs, its archive, or its W&B project."""
    if run.project is not None:
        return run.project
    return str(run.folder.parent if run.has_samples else run.folder)


def listed(ids: Iterable[str]) -> str:
    """Ids of runs; the first ones if there are many."""
    every = list(ids)
    more = f" and {len(every) - LISTED} more" if len(every) > LISTED else ""
    return ", ".join(every[:LISTED]) + more


def values_of(columns: Columns) -> dict[tuple[str, int], float]:
    """Numbers of a run without those that depend on the machine."""
    found: dict[tuple[str, int], float] = {}
    lines = zip(columns["metric"], columns["step"], columns["value"], strict=True)
    for metric, step, value in lines:
        if not metric.startswith(OF_MACHINE):
            # Of two values at one step, the later one counts.
            found[metric, step] = value
    return found


def differ(first: Values, second: Values) -> bool:
    """True if two copies differ in a number that both have.

    Not in those that only one has: a later version logs more, and W&B has no timings.
    """
    return any(second.get(key, value) != value for key, value in first.items())


def _equal_sums(run: Run, other: Run) -> bool:
    """True if both recorded the same checksum of their metrics."""
    own = run.sums.get(METRICS_LOG)
    return own is not None and own == other.sums.get(METRICS_LOG)
