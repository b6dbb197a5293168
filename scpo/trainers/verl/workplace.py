"""Shared objects of a verl run's processes: configuration, records and environment, opened once."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scpo.envs import open_environment
from scpo.envs.base import Environment
from scpo.errors import ConfigError
from scpo.records import JsonLines, RunFolder, run_config
from scpo.schema.run import RunConfig
from scpo.schema.trainer import VerlTrainer

KEY = "scpo"
"""Section that is added to verl's configuration; its only key is ``run_folder``."""


@dataclass(frozen=True)
class Workplace:
    """One run, as seen from one of its processes.

    The launcher, the trainer and every agent loop have one each. Ray's actors share no memory, so
    they communicate through files of the run folder.

    Attributes:
        config: The configuration, as recorded in the run folder.
        folder: The run folder.
    """

    config: RunConfig
    folder: RunFolder

    @functools.cached_property
    def environment(self) -> Environment:
        """Engines and caches of this process."""
        return open_environment(self.config)

    @property
    def stall_s(self) -> float:
        """Longest time without a finished episode, in seconds; no limit for other trainers."""
        trainer = self.config.trainer
        if isinstance(trainer, VerlTrainer):
            return float(trainer.verl.stall_s)
        return float("inf")

    @property
    def stop_file(self) -> Path:
        """File that the launcher creates when the run is asked to stop, for the trainer."""
        return self.folder.path / "stop"

    @property
    def failures(self) -> JsonLines:
        """Log of failed episodes, written by the agent loops and read by the trainer."""
        return JsonLines(self.folder.path / "rollout_failures.jsonl")


@functools.cache
def open_workplace(run_folder: str) -> Workplace:
    """The workplace of a run folder, one for each process.

    It is cached, because every episode of an agent loop needs it, and opening an environment takes
    seconds.
    """
    folder = RunFolder(run_folder)
    return Workplace(run_config.read_config(folder), folder)


def workplace_of(verl_config: Any) -> Workplace:
    """The workplace that verl's configuration names.

    Raises:
        ConfigError: It names none.
    """
    section = verl_config.get(KEY)
    if not section or not section.get("run_folder"):
        raise ConfigError(
            f"verl's configuration has no {KEY}.run_folder: add +{KEY}.run_folder=<a run folder>; "
            "`python train.py --prepare trainer=verl key=value ...` makes one"
        )
    return open_workplace(str(section.run_folder))
