"""Environments by the name that a configuration gives them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from scpo.envs.alfworld.environment import AlfworldEnvironment
from scpo.envs.base import Environment
from scpo.envs.webshop.environment import WebshopEnvironment
from scpo.schema.env import EnvConfig
from scpo.schema.run import RunConfig

ENVIRONMENTS: dict[str, Callable[..., Environment]] = {
    "alfworld": AlfworldEnvironment,
    "webshop": WebshopEnvironment,
}


def make_environment(
    config: EnvConfig, *, cache_dir: Path | str | None, data: str | None = None
) -> Environment:
    """The environment that the configuration describes.

    Args:
        config: Its configuration; ``config.name`` selects it.
        cache_dir: Folder for what is expensive to make and can be made again.
        data: Folder of its official files, if the user has them: ``machine.data.<name>``.
    """
    return ENVIRONMENTS[config.name](config, cache_dir=cache_dir, data=data)


def open_environment(config: RunConfig) -> Environment:
    """The environment of a run, as this machine has it."""
    return make_environment(config.env, cache_dir=config.machine.cache_dir, data=config.data_folder)
