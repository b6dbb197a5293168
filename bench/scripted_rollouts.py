"""Rollouts of ALFWorld without a policy: walkthroughs with detours, some of them given up half-way."""

from __future__ import annotations

import random

from scpo.envs.alfworld.environment import AlfworldEnvironment
from scpo.envs.alfworld.episode import AlfworldEpisode
from scpo.envs.base import given_state, state_text
from scpo.generation import Generation
from scpo.rollout import Slot, Trajectory, group_slots, step_batch
from scpo.steps import StepBatch


def scripted_batch(environment: AlfworldEnvironment, panel: str, *, groups: int, siblings: int, seed: int) -> StepBatch:
    """A batch of siblings that walk the same ways, half of them to the end.

    The actions are a function of the games and of ``seed``, never of what is told: batches of two
    environments that only differ in their wordings have the same actions, rewards and outcomes.

    Args:
        environment: The games; ``prompt: compact``.
        panel: Whose first games are played.
        groups: Number of games.
        siblings: Rollouts of each.
        seed: Of the detours.
    """
    tasks = environment.panel(panel).tasks[:groups]
    trajectories = []
    for index, slot in enumerate(group_slots(tasks, siblings)):
        rng = random.Random(f"{seed} {index}")
        trajectories.append(_played(environment, slot, rng))
    return step_batch(trajectories, success_threshold=0.0)


def _played(environment: AlfworldEnvironment, slot: Slot, rng: random.Random) -> Trajectory:
    episode = environment.start(slot.task, slot.sibling)
    walkthrough = list(environment.source.read(slot.task.id).walkthrough)
    gives_up = len(walkthrough) if rng.random() < 0.5 else rng.randrange(len(walkthrough))
    trajectory = Trajectory(slot)
    plan = walkthrough[:gives_up]
    while not episode.done:
        if rng.random() < 0.3 or not plan:
            _step(episode, trajectory, rng.choice(_harmless(episode)))
            back = _left(trajectory)
            if back and plan and not plan[0].startswith("go ") and not episode.done:
                _step(episode, trajectory, f"go to {back}")
        else:
            _step(episode, trajectory, plan.pop(0))
    return trajectory


def _harmless(episode: AlfworldEpisode) -> list[str]:
    """Commands that do not undo the walkthrough: to look and to go somewhere."""
    verbs = ("go", "look", "inventory", "examine")
    return [command for command in episode.transcript.admissible if command.split()[0] in verbs]


def _left(trajectory: Trajectory) -> str:
    """The receptacle that the last step led away from; empty if it led nowhere or from the start."""
    actions = [result.action for result in trajectory.results]
    if not actions or not actions[-1].startswith("go to "):
        return ""
    earlier = [action for action in actions[:-1] if action.startswith("go to ")]
    return earlier[-1].removeprefix("go to ") if earlier else ""


def _step(episode: AlfworldEpisode, trajectory: Trajectory, action: str) -> None:
    trajectory.prompts.append(episode.prompt())
    trajectory.anchors.append(episode.observation)
    trajectory.states.append(state_text(episode))
    trajectory.given.append(given_state(episode))
    trajectory.generations.append(Generation(action, (), (), ()))
    trajectory.results.append(episode.step(f"{action} </action>"))
