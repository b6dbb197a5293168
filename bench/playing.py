"""Rollout groups made on the spot for benchmarks of the shaper: the paper's batch, played by a distracted expert."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np

from scpo.envs import AlfworldEnvironment
from scpo.envs.projection import respond
from scpo.rollout import Slot, Trajectory, group_slots, step_batch
from scpo.shaping.order import positions
from scpo.steps import StepBatch
from sweeps.compose.configuration import compose_run

GROUPS, SIBLINGS, HORIZON = 16, 8, 50  # the paper's batch and episodes
RANKS = 4
DISTRACTION = 0.2  # chance of a random command before each one of the walkthrough: about half of the episodes fail


def fresh_batches(count: int) -> Iterator[StepBatch]:
    """Batches of 16 generated ALFWorld games x 8 siblings, up to 50 steps each, in the order of four ranks.

    Each sibling follows the game's walkthrough but does something random now and then, after which
    a part of the walkthrough may be impossible; what is left of the horizon it walks about.
    """
    words = ["env.games=generated", f"env.horizon={HORIZON}", f"env.train_panel.games={GROUPS * count}"]
    config = compose_run(words).env
    environment = AlfworldEnvironment(config, cache_dir=None)
    tasks = environment.panel("train").tasks
    for batch in range(count):
        slots = group_slots(tasks[batch * GROUPS : (batch + 1) * GROUPS], SIBLINGS)
        trajectories = [_play(environment, slot, random.Random(f"{batch} {slot}")) for slot in slots]
        lengths = [len(anchor) for trajectory in trajectories for anchor in trajectory.anchors]
        position_N = positions(np.array(lengths), "balanced", RANKS)
        yield step_batch(trajectories, success_threshold=0.0, position_N=position_N)


def _play(environment: AlfworldEnvironment, slot: Slot, rng: random.Random) -> Trajectory:
    episode, trajectory = environment.start(slot.task, slot.sibling), Trajectory(slot)
    plan = list(episode.opened.game.walkthrough)
    while not episode.done:
        wander = not plan or rng.random() < DISTRACTION
        command = rng.choice(episode.state.admissible) if wander else plan.pop(0)
        trajectory.anchors.append(episode.observation)
        trajectory.states.append(episode.state_text)
        trajectory.results.append(episode.step(respond(command)))
    return trajectory
