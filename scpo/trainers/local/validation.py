"""Validation: a panel played at the validation temperature, success overall and by family."""

from __future__ import annotations

from scpo.diagnostics.episodes import episode_metrics
from scpo.envs.base import Environment
from scpo.rollout import Policy, Slot, rollout
from scpo.schema import ValidationConfig


def validate(
    environment: Environment, policy: Policy, panel: str, config: ValidationConfig, *, repeats: int, retries: int
) -> dict[str, float]:
    """Metrics ``val/<panel>/...`` of one panel, ``repeats`` episodes a game; the same draws at every validation."""
    tasks = environment.panel(panel).tasks
    slots = [Slot(index, repeat, task) for index, task in enumerate(tasks) for repeat in range(repeats)]
    trajectories = rollout(
        environment, policy, slots, temperature=config.temperature, seed=(config.seed,), retries=retries
    )
    return {f"val/{panel}/{name}": value for name, value in episode_metrics(trajectories, by_family=True).items()}
