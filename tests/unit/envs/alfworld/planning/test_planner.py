import random
from itertools import pairwise

import pytest

from scpo.envs.alfworld.environment import AlfworldEnvironment
from scpo.envs.alfworld.planning.planner import LandmarkBound, Step
from scpo.envs.base import PlanningEnvironment
from tests.support.alfworld_games import Seen, alfworld_config, wander

pytest.importorskip("alfworld", reason="needs alfworld: make setup")

PANEL = {"split": "train", "games": 6, "seed": 0}
GAMES = range(6)


@pytest.fixture(scope="module")
def environment():
    return AlfworldEnvironment(alfworld_config(train_panel=PANEL), cache_dir=None)


@pytest.fixture(scope="module")
def tasks(environment):
    """One game of each family."""
    tasks = environment.panel("train").tasks
    assert len({task.family for task in tasks}) == 6
    return tasks


@pytest.mark.parametrize("game", GAMES)
def test_each_step_of_a_shortest_walkthrough_shortens_the_plan_by_one(environment, tasks, game):
    walkthrough = environment.engine.open(tasks[game].id).game.walkthrough
    left = [environment.remaining_plan(tasks[game], walkthrough[:taken]) for taken in range(len(walkthrough) + 1)]
    assert left == list(range(len(walkthrough), -1, -1))


@pytest.mark.parametrize("game", GAMES)
def test_no_step_of_a_random_walk_shortens_the_plan_by_more_than_one(environment, tasks, game):
    """And wherever a walk leads, there is a way out: nothing in ALFWorld is beyond repair."""
    actions = walk(environment, tasks[game], 25)
    left = [environment.remaining_plan(tasks[game], actions[:taken]) for taken in range(len(actions) + 1)]
    assert all(later >= earlier - 1 for earlier, later in pairwise(left))


@pytest.mark.parametrize("game", GAMES)
def test_plans_are_as_long_as_a_blind_search_in_the_engine_finds(environment, tasks, game):
    """One random step off the end of a walkthrough; the search looks two steps ahead."""
    walkthrough = environment.engine.open(tasks[game].id).game.walkthrough
    for start in (walkthrough[:-1], walkthrough[:-2]):
        actions = [*start, *walk(environment, tasks[game], 1, start=start)]
        planned = environment.remaining_plan(tasks[game], actions)
        assert (planned if planned <= 2 else None) == blind(environment, tasks[game], actions, deepest=2)


def test_an_action_that_the_game_does_not_know_changes_nothing(environment, tasks):
    assert environment.remaining_plan(tasks[0], ["dance"]) == environment.remaining_plan(tasks[0], [])


def test_the_environment_is_a_planning_environment(environment):
    assert isinstance(environment, PlanningEnvironment)


def test_landmarks_by_hand():
    """Facts: 0 here, 1 there, 2 key, 3 door open. The key is there, the door here: go, take, go back, open."""
    steps = [
        Step(needs=0b0001, adds=0b0010, removes=0b0001, goes=True),
        Step(needs=0b0010, adds=0b0001, removes=0b0010, goes=True),
        Step(needs=0b0010, adds=0b0100, removes=0, goes=False),
        Step(needs=0b0101, adds=0b1000, removes=0, goes=False),
    ]
    bound = LandmarkBound(steps, [0b1000])
    assert bound(0b0001) == 3  # there, key, open: that one has to come back is what the bound does not see
    assert bound(0b0110) == 2
    assert bound(0b1000) == 0
    assert bound(0) is None


def walk(environment, task, steps, start=(), seed=0):
    rng = random.Random(seed)
    opened = environment.engine.open(task.id)
    state, actions = opened.start, []
    for action in start:
        state, _ = environment.engine.step(opened, state, action)
    for _ in range(steps):
        actions.append(wander(Seen("", list(state.admissible), False, 0, False), rng))
        state, _ = environment.engine.step(opened, state, actions[-1])
    return actions


def blind(environment, task, actions, deepest):
    """Breadth first over admissible commands."""
    opened = environment.engine.open(task.id)
    state = opened.start
    for action in actions:
        state, _ = environment.engine.step(opened, state, action)
    layer, seen = [state], {state.key}
    for depth in range(deepest + 1):
        if any(state.won for state in layer):
            return depth
        following = [environment.engine.step(opened, state, c)[0] for state in layer for c in state.admissible]
        layer = list({state.key: state for state in following if state.key not in seen}.values())
        seen |= {state.key for state in layer}
    return None
