"""The environment of a run; one that was opened ahead of a fork is every forked process' own, already open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scpo.envs import open_environment
from scpo.envs.base import Environment, OpenableEnvironment

if TYPE_CHECKING:
    from scpo.schema.run import RunConfig

_opened: dict[tuple[str, str, str | None], Environment] = {}


def open_ahead(config: RunConfig) -> None:
    """Open the run's environment and its panels now, for the processes that will be forked from this one.

    What an environment keeps in memory changes no number, so neither does who opened it.
    """
    import torch

    torch.optim.AdamW([torch.zeros(1)])  # a process's first optimizer imports for a second

    environment = open_environment(config)
    if isinstance(environment, OpenableEnvironment):
        environment.open_panels()
    _opened[_key(config)] = environment


def environment_of(config: RunConfig) -> Environment:
    """The run's environment."""
    return _opened.get(_key(config)) or open_environment(config)


def _key(config: RunConfig) -> tuple[str, str, str | None]:
    """All that an environment is made from."""
    return config.env.model_dump_json(), config.machine.cache_dir, config.data_folder
