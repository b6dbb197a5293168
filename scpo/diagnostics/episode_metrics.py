"""Metrics of panels and played episodes, shared by all trainers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scpo.diagnostics.validation_episodes import Ended
from scpo.envs.base import Environment
from scpo.rollout import Trajectory

if TYPE_CHECKING:
    from scpo.schema import RunConfig


def panel_records(environment: Environment, config: RunConfig) -> dict[str, dict[str, Any]]:
    """Record of every panel of the run.

    A resumed run with other tasks or other games is refused.
    """
    panels = {
        name: environment.panel(name)
        for name in ("train", "probe", *sorted(config.env.validation_panels))
    }
    return {
        name: {"sha256": panel.sha256, "tasks": [task.id for task in panel.tasks]}
        for name, panel in panels.items()
    }


def episode_metrics(trajectories: Sequence[Trajectory], *, by_family: bool) -> dict[str, float]:
    """Metrics of rollouts; see :func:`ended_metrics`."""
    return ended_metrics([Ended.of(trajectory) for trajectory in trajectories], by_family=by_family)


def ended_metrics(episodes: Sequence[Ended], *, by_family: bool) -> dict[str, float]:
    """Success rate, score if there is one, episode length, share of invalid steps.

    With ``by_family``, as at validation, also ``<family>/success_rate``, :func:`repeat_metrics`,
    and ``errored``: the number of episodes that the environment broke and that were played again.
    These count once, as played in the end.
    """
    steps = sum(episode.length for episode in episodes)
    metrics = {
        "success_rate": float(np.mean([episode.won for episode in episodes])),
        "episodes": float(len(episodes)),
        "episode_length": steps / len(episodes),
        "invalid_rate": sum(episode.invalid for episode in episodes) / steps,
    }
    if graded := [episode.score for episode in episodes if episode.score is not None]:
        metrics["score"] = float(np.mean(graded))
    if by_family:
        metrics |= repeat_metrics(
            [episode.task for episode in episodes], [episode.won for episode in episodes]
        )
        metrics["errored"] = float(sum(episode.restarts > 0 for episode in episodes))
        families: dict[str, list[bool]] = defaultdict(list)
        for episode in episodes:
            families[episode.family].append(episode.won)
        metrics |= {
            f"{family}/success_rate": float(np.mean(won))
            for family, won in sorted(families.items())
        }
    return metrics


def validation_metrics(panels: Mapping[str, Sequence[Trajectory]]) -> dict[str, float]:
    """``val/<panel>/...`` of every panel, with success rates by family."""
    return {
        f"val/{panel}/{name}": value
        for panel, trajectories in panels.items()
        for name, value in episode_metrics(trajectories, by_family=True).items()
    }


def repeat_metrics(tasks: Sequence[str], won: Sequence[bool]) -> dict[str, float]:
    """``pass_at_<k>``: share of tasks with at least one win in k episodes.

    Empty if k is 1 or differs between tasks. The mean over all episodes, avg@k, is the success
    rate.
    """
    by_task: dict[str, list[bool]] = defaultdict(list)
    for task, won_episode in zip(tasks, won, strict=True):
        by_task[task].append(won_episode)
    counts = {len(episodes) for episodes in by_task.values()}
    # pass@k compares tasks only if each was played equally often.
    if len(counts) != 1 or (k := counts.pop()) == 1:
        return {}
    return {f"pass_at_{k}": float(np.mean([any(episodes) for episodes in by_task.values()]))}
