"""Sampling rules: sibling groups, independent tasks, or groups drawn until their returns differ.

A rule of ``MethodConfig.sampling`` is a function here and a line in ``SAMPLING``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scpo.rollout import Slot, Trajectory, group_slots

if TYPE_CHECKING:
    from scpo.envs.base import Task
    from scpo.schema.method import DynamicSampling, IndependentSampling, SamplingConfig


@dataclass(frozen=True)
class Draw:
    """Rollouts of one training step.

    Attributes:
        groups: Number of tasks in a round.
        group_size: Number of siblings of each task.
        tasks: ``tasks(count, round)`` returns ``count`` tasks; each round draws its own.
        play: ``play(slots, round)`` returns one trajectory per slot; each round has its own seed.
    """

    groups: int
    group_size: int
    tasks: Callable[[int, int], list[Task]]
    play: Callable[[Sequence[Slot], int], list[Trajectory]]


@dataclass(frozen=True)
class Sampled:
    """Rollouts of one training step, in the order in which they were played.

    Attributes:
        kept: The trajectories to learn from.
        played: All trajectories, for success rates: dropped groups would bias them.
        rounds: Number of rounds that were played.
    """

    kept: list[Trajectory]
    played: list[Trajectory]
    rounds: int


def sample(draw: Draw, config: SamplingConfig | None) -> Sampled:
    """Roll out one training step by the method's sampling rule; None: one round of groups."""
    return SAMPLING[config.rule if config else None](draw, config)


def grouped(draw: Draw, _config: None) -> Sampled:
    """Roll out ``group_size`` siblings of each of ``groups`` tasks."""
    return _once(draw, group_slots(draw.tasks(draw.groups, 0), draw.group_size))


def independent(draw: Draw, _config: IndependentSampling) -> Sampled:
    """Roll out groups of one trajectory, of different tasks if the panel has enough.

    For PPO, which compares with its critic instead of siblings. The number of trajectories is that
    of the group methods.
    """
    return _once(draw, group_slots(draw.tasks(draw.groups * draw.group_size, 0), 1))


def dynamic(draw: Draw, config: DynamicSampling) -> Sampled:
    """Play rounds of ``groups`` tasks until groups x siblings trajectories are kept.

    Groups with equal episode returns are dropped, except in the last of ``config.rounds``: their
    siblings differ only by the penalty for invalid actions. Surplus groups of a round are kept
    (DAPO, arXiv 2503.14476, as in verl-agent's script). Each round draws new tasks (ledger 26).
    """
    kept: list[Trajectory] = []
    played: list[Trajectory] = []
    for turn in range(config.rounds):
        # Group numbers continue across rounds, so that groups of different rounds stay distinct.
        slots = group_slots(
            draw.tasks(draw.groups, turn), draw.group_size, first_group=turn * draw.groups
        )
        trajectories = draw.play(slots, turn)
        played += trajectories
        # The last round is kept whole: a step must have something to learn from.
        kept += trajectories if turn == config.rounds - 1 else informative(trajectories)
        if len(kept) >= draw.groups * draw.group_size:
            break
    return Sampled(kept, played, turn + 1)


def informative(trajectories: Sequence[Trajectory]) -> list[Trajectory]:
    """The trajectories of groups whose episode returns are not all equal."""
    returns: dict[int, set[float]] = {}
    for trajectory in trajectories:
        returns.setdefault(trajectory.slot.group, set()).add(trajectory.episode_return)
    return [trajectory for trajectory in trajectories if len(returns[trajectory.slot.group]) > 1]


def _once(draw: Draw, slots: list[Slot]) -> Sampled:
    """Play the slots in one round and keep everything."""
    trajectories = draw.play(slots, 0)
    return Sampled(trajectories, trajectories, 1)


SAMPLING: dict[str | None, Callable[[Draw, Any], Sampled]] = {
    None: grouped,
    "independent": independent,
    "dynamic": dynamic,
}
