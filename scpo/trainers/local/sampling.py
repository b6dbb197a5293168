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
        groups: Tasks a round.
        group_size: Siblings of each.
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
        kept: Those to learn from.
        played: All of them: success rates count these, or dropping groups would bias them.
        rounds: Number of rounds that it took.
    """

    kept: list[Trajectory]
    played: list[Trajectory]
    rounds: int


def sample(draw: Draw, config: SamplingConfig | None) -> Sampled:
    """Roll out one training step by the method's sampling rule; None: sibling groups, once."""
    return SAMPLING[config.rule if config else None](draw, config)


def grouped(draw: Draw, _config: None) -> Sampled:
    """``group_size`` siblings of each of ``groups`` tasks."""
    return _once(draw, group_slots(draw.tasks(draw.groups, 0), draw.group_size))


def independent(draw: Draw, _config: IndependentSampling) -> Sampled:
    """Roll out groups of one trajectory, each of another task as far as the panel has enough.

    For PPO, whose critic takes the place of siblings: as many rollouts as the group methods play.
    """
    return _once(draw, group_slots(draw.tasks(draw.groups * draw.group_size, 0), 1))


def dynamic(draw: Draw, config: DynamicSampling) -> Sampled:
    """Roll out ``groups`` new tasks until groups x siblings trajectories are kept.

    Groups with equal episode returns are dropped, except in the last of ``config.rounds``: their
    siblings differ only by the penalty of invalid actions. No kept group is cut off (DAPO,
    arXiv 2503.14476, as verl-agent's script runs it). Each round draws new tasks (ledger 26).
    """
    kept: list[Trajectory] = []
    played: list[Trajectory] = []
    for turn in range(config.rounds):
        # Numbered on from the round before: groups of two rounds must not become one.
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
    """Those of groups whose episode returns are not all equal."""
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
