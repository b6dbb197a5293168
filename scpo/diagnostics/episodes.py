"""What every trainer records of panels and of episodes that were played."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scpo.envs.base import Environment
from scpo.rollout import Trajectory

if TYPE_CHECKING:
    from scpo.schema import RunConfig


def panel_records(environment: Environment, config: RunConfig) -> dict[str, dict[str, Any]]:
    """Every panel of the run, for the record: another list or another game later is refused."""
    panels = {name: environment.panel(name) for name in ("train", "probe", *sorted(config.env.validation_panels))}
    return {
        name: {"sha256": panel.sha256, "tasks": [task.id for task in panel.tasks]} for name, panel in panels.items()
    }


def episode_metrics(trajectories: Sequence[Trajectory], *, by_family: bool) -> dict[str, float]:
    """Success rate (also ``<family>/success_rate``), score if there is one, episode length, share of invalid steps."""
    steps = [result for trajectory in trajectories for result in trajectory.results]
    metrics = {
        "success_rate": float(np.mean([trajectory.won for trajectory in trajectories])),
        "episodes": float(len(trajectories)),
        "episode_length": len(steps) / len(trajectories),
        "invalid_rate": float(np.mean([not result.valid for result in steps])),
    }
    scores = [trajectory.results[-1].score for trajectory in trajectories]
    if graded := [score for score in scores if score is not None]:
        metrics["score"] = float(np.mean(graded))
    families: dict[str, list[bool]] = defaultdict(list)
    for trajectory in trajectories:
        families[trajectory.slot.task.family].append(trajectory.won)
    if by_family:
        metrics |= {f"{family}/success_rate": float(np.mean(won)) for family, won in sorted(families.items())}
    return metrics
