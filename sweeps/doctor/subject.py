"""Configurations that the doctor checks: one run, an experiment's runs, or a search's."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from scpo.schema.method import required
from scpo.schema.run import RunConfig
from scpo.schema.search import Search


@dataclass(frozen=True)
class Subject:
    """Configurations about to run.

    Attributes:
        configs: One configuration for each environment, model and kind of work.
        runs: Number of runs.
        search: The search; None for a run or an experiment.
        planned: Every run of an experiment; empty for a run or a search.
    """

    configs: tuple[RunConfig, ...]
    runs: int
    search: Search | None = None
    planned: tuple[RunConfig, ...] = ()

    @property
    def first(self) -> RunConfig:
        """The first configuration, for settings of machine and launcher, which all share."""
        return self.configs[0]

    @property
    def every_run(self) -> Sequence[RunConfig]:
        """A configuration for each run; the runs of a search differ in hyper-parameters only."""
        return self.planned or [self.first] * self.runs

    @property
    def runs_dir(self) -> Path:
        """Folder of the run folders; before the first run it does not exist."""
        return Path(self.first.machine.runs_dir)

    @property
    def existing_dir(self) -> Path:
        """``runs_dir`` or, before the first run, its closest parent that exists."""
        path = self.runs_dir.absolute()
        return next(folder for folder in (path, *path.parents) if folder.is_dir())


def distinct(configs: Iterable[RunConfig]) -> Iterator[RunConfig]:
    """Of the runs that need the same of a machine, yield one; they may differ in seed or method."""
    seen = set()
    for config in configs:
        parts = (config.env, config.model, config.scorer, config.trainer)
        # Every run has a scorer in its configuration; only those that use it need its files and
        # memory, so the shaper and `needs_scorer` are part of the key.
        key = (
            *(part.model_dump_json() for part in parts),
            config.method.kind,
            required(config.method),
            config.method.kind == "trained" and config.method.shaper is not None,
            needs_scorer(config),
        )
        if key not in seen:
            seen.add(key)
            yield config


def needs_scorer(config: RunConfig) -> bool:
    """True if the run opens its scorer; every configuration has one."""
    return config.method.kind == "trained" and config.method.needs_scorer
