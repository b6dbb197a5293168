"""Validation: every panel played at the validation temperature."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from scpo.envs.base import Environment
from scpo.rollout import Policy, Slot, Trajectory, rollout

if TYPE_CHECKING:
    from scpo.schema import RunConfig

logger = logging.getLogger(__name__)


def play_panels(environment: Environment, policy: Policy, config: RunConfig) -> dict[str, list[Trajectory]]:
    """The episodes of every validation panel, in the order of their names; the same draws at every validation."""
    played = {}
    for panel in sorted(config.env.validation_panels):
        logger.info("validation: panel %s", panel)
        repeats, tasks = config.env.validation_panels[panel].repeats, environment.panel(panel).tasks
        slots = [Slot(index, repeat, task) for index, task in enumerate(tasks) for repeat in range(repeats)]
        validation = config.trainer.validation
        played[panel] = rollout(
            environment,
            policy,
            slots,
            temperature=validation.temperature,
            seed=(validation.seed,),
            retries=config.env.failure_retries,
        )
    return played
