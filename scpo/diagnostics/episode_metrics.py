"""What every trainer records of panels and of episodes that were played."""

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
    """Every panel of the run, for the record: another list or another game later is refused."""
    panels = {name: environment.panel(name) for name in ("train", "probe", *sorted(config.env.validation_panels))}
    return {
        name: {"sha256": panel.sha256, "tasks": [task.id for task in panel.tasks]} for name, panel in panels.items()
    }


def episode_metrics(trajectories: Sequence[Trajectory], *, by_family: bool) -> dict[str, float]:
    """:func:`ended_metrics` of rollouts."""
    return ended_metrics([Ended.of(trajectory) for trajectory in trajectories], by_family=by_family)


def ended_metrics(episodes: Sequence[Ended], *, by_family: bool) -> dict[str, float]:
    """Success rate (also ``<family>/success_rate``), score if there is one, episode length, share of invalid steps.

    With families, as at validation, also what :func:`repeat_metrics` says and ``errored``: episodes that the
    environment broke and that were played again. They count once, as played in the end.
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
        metrics |= repeat_metrics([episode.task for episode in episodes], [episode.won for episode in episodes])
        metrics["errored"] = float(sum(episode.restarts > 0 for episode in episodes))
        families: dict[str, list[bool]] = defaultdict(list)
        for episode in episodes:
            families[episode.family].append(episode.won)
        metrics |= {f"{family}/success_rate": float(np.mean(won)) for family, won in sorted(families.items())}
    return metrics


def validation_metrics(panels: Mapping[str, Sequence[Trajectory]]) -> dict[str, float]:
    """``val/<panel>/...`` of every panel, success by family too."""
    return {
        f"val/{panel}/{name}": value
        for panel, trajectories in panels.items()
        for name, value in episode_metrics(trajectories, by_family=True).items()
    }


def repeat_metrics(tasks: Sequence[str], won: Sequence[bool]) -> dict[str, float]:
    """``pass_at_<k>``: the share of tasks of whose k episodes at least one was won; nothing where k is 1 or differs.

    The mean over all episodes, avg@k, is the success rate.
    """
    by_task: dict[str, list[bool]] = defaultdict(list)
    for task, one in zip(tasks, won, strict=True):
        by_task[task].append(one)
    counts = {len(episodes) for episodes in by_task.values()}
    if len(counts) != 1 or (k := counts.pop()) == 1:
        return {}
    return {f"pass_at_{k}": float(np.mean([any(episodes) for episodes in by_task.values()]))}
