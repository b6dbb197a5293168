"""Why verl-agent is not started from here: it has verl's import name, and so an environment of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from scpo.errors import ConfigError

if TYPE_CHECKING:
    from scpo.schema import RunConfig
    from scpo.tracking import RunFolder


def train(config: RunConfig, folder: RunFolder, should_stop: Callable[[], bool]) -> None:
    """See :func:`scpo.trainers.train`.

    Raises:
        ConfigError: Always; says what to type where.
    """
    raise ConfigError(
        f"trainer=verl_agent runs in verl-agent's own environment: there, python -m scpo.integrations.verl_agent "
        f"{folder.path} (see docs/verl.md)"
    )
