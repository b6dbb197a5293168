"""How long runs took on this machine: from the records of those that were finished here in one go."""

import functools
import socket
import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from scpo.errors import ScpoError
from scpo.records import RunFolder, State, Status
from scpo.records.identity import run_id
from scpo.records.run_folders import list_runs
from scpo.schema import RunConfig

NEWEST = 5  # of each kind are read


@dataclass
class PastTimes:
    """Seconds of runs of a kind, from the newest ones in ``runs_dir`` that ended DONE on this host at first attempt."""

    runs_dir: Path
    host: str = field(default_factory=socket.gethostname)

    def seconds(self, config: RunConfig) -> float | None:
        """Of one whole run: the median of its own kind, else of others that play and learn as much; None: none here."""
        kind = _kind(run_id(config))
        for alike in (kind, kind[:2]):
            rates = [
                rate for name in self._finished if name[: len(alike)] == alike for rate in self._rates(name, config)
            ]
            if rates:
                return statistics.median(rates[:NEWEST]) * config.trainer.steps
        return None

    def total(self, configs: Iterable[RunConfig], slots: int) -> tuple[float, int]:
        """Seconds of all runs in so many slots, and of how many runs nothing is known."""
        known = [self.seconds(config) for config in configs]
        return sum(one for one in known if one is not None) / max(1, slots), known.count(None)

    def _rates(self, kind: tuple[str, ...], config: RunConfig) -> list[float]:
        """Seconds a training step of the runs of a kind that are of the same size as this one."""
        read = (_read(folder) for folder, _ in self._finished[kind][:NEWEST])
        spent = zip(read, self._finished[kind], strict=False)
        return [wall / past.trainer.steps for past, (_, wall) in spent if past and _size(past) == _size(config)]

    @functools.cached_property
    def _finished(self) -> dict[tuple[str, ...], list[tuple[RunFolder, float]]]:
        """Kind -> runs and their seconds, the newest first."""
        found: dict[tuple[str, ...], list[tuple[str, RunFolder, float]]] = {}
        for folder in list_runs(self.runs_dir):
            try:
                status = folder.read_status()
            except ScpoError:  # a damaged record is `verify`'s to report
                continue
            wall = self._wall(status)
            if wall is not None:
                found.setdefault(_kind(folder.run_id), []).append((status.updated_at or "", folder, wall))
        newest = {kind: sorted(runs, key=lambda run: run[0], reverse=True) for kind, runs in found.items()}
        return {kind: [(folder, wall) for _, folder, wall in runs] for kind, runs in newest.items()}

    def _wall(self, status: Status) -> float | None:
        once = status.state is State.DONE and status.attempt == 1 and status.host == self.host and status.step
        if not once or status.started_at is None or status.updated_at is None:
            return None
        began, ended = (datetime.fromisoformat(text) for text in (status.started_at, status.updated_at))
        return (ended - began).total_seconds()


def _kind(name: str) -> tuple[str, ...]:
    """Benchmark, model, method and its choices: a run's id without seed and hash."""
    return tuple(name.split("-")[:-2])


def _size(config: RunConfig) -> tuple[object, ...]:
    """What a step's cost depends on most; two runs that differ in it are not compared."""
    trainer = config.trainer
    return config.scale, trainer.name, trainer.groups, trainer.group_size, trainer.validation, config.machine.threads


def _read(folder: RunFolder) -> RunConfig | None:
    try:
        return folder.read_config()
    except ScpoError:  # of another version of the code
        return None
