"""Environments by the name that a configuration gives them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from scpo.envs.alfworld.environment import AlfworldEnvironment
from scpo.envs.base import Environment
from scpo.envs.webshop.environment import WebshopEnvironment
from scpo.schema.env import EnvConfig

ENVIRONMENTS: dict[str, Callable[..., Environment]] = {
    "alfworld": AlfworldEnvironment,
    "webshop": WebshopEnvironment,
}


def make_environment(
    config: EnvConfig,
    *,
    cache_dir: Path | str | None,
    alfworld_data: str | None = None,
    webshop_data: str | None = None,
) -> Environment:
    """The environment that the configuration describes.

    Args:
        config: Its configuration; ``config.name`` selects it.
        cache_dir: Folder for what is expensive to make and can be made again.
        alfworld_data: Folder of the official ALFWorld games, if the user has them.
        webshop_data: Folder of the official WebShop files, if the user has them.
    """
    alfworld, webshop = {"alfworld_data": alfworld_data}, {"webshop_data": webshop_data}
    data = {"alfworld": alfworld, "webshop": webshop}.get(config.name, {})
    return ENVIRONMENTS[config.name](config, cache_dir=cache_dir, **data)
