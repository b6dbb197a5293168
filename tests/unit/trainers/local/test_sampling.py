import numpy as np

from scpo.envs.base import StepResult, Task
from scpo.rollout import Trajectory, training_tasks
from scpo.schema.method import DynamicSampling, IndependentSampling
from scpo.trainers.local.sampling import Draw, sample

DYNAMIC = DynamicSampling(rule="dynamic", rounds=3)


def played(slot, won):
    return Trajectory(slot, results=[StepResult("go", True, "there", 10.0 * won, True, bool(won))])


def draw(outcomes):
    """Two groups of two; ``outcomes[round]`` are the wins of the round's four episodes."""
    return Draw(
        groups=2,
        group_size=2,
        tasks=lambda count, turn: [Task(f"round {turn} task {index}", "Pick", "0") for index in range(count)],
        play=lambda slots, turn: [played(slot, won) for slot, won in zip(slots, outcomes[turn], strict=True)],
    )


def groups(trajectories):
    return [trajectory.slot.group for trajectory in trajectories]


def test_without_a_rule_every_task_has_its_siblings():
    sampled = sample(draw([[1, 1, 0, 0]]), None)
    assert groups(sampled.kept) == [0, 0, 1, 1]
    assert sampled.played == sampled.kept
    assert sampled.rounds == 1


def test_independent_rollouts_are_as_many_each_of_a_task_and_group_of_its_own():
    kept = sample(draw([[1, 1, 0, 0]]), IndependentSampling(rule="independent")).kept
    assert groups(kept) == [0, 1, 2, 3]
    assert len({trajectory.slot.task.id for trajectory in kept}) == 4
    assert {trajectory.slot.sibling for trajectory in kept} == {0}


def test_groups_with_equal_returns_are_replaced_by_new_tasks_with_new_ids():
    sampled = sample(draw([[1, 0, 1, 1], [0, 0, 0, 1]]), DYNAMIC)
    assert groups(sampled.kept) == [0, 0, 3, 3]
    assert [trajectory.slot.task.id for trajectory in sampled.kept[::2]] == ["round 0 task 0", "round 1 task 1"]
    assert sampled.rounds == 2
    assert np.mean([trajectory.won for trajectory in sampled.played]) == 0.5


def test_nothing_that_was_kept_is_cut_off():
    assert groups(sample(draw([[1, 0, 1, 1], [0, 1, 0, 1]]), DYNAMIC).kept) == [0, 0, 2, 2, 3, 3]


def test_the_last_round_drops_nothing():
    sampled = sample(draw([[0, 0, 1, 1], [0, 0, 0, 0], [0, 0, 1, 0]]), DYNAMIC)
    assert groups(sampled.kept) == [4, 4, 5, 5]
    assert len(sampled.played) == 12


def test_enough_groups_at_once_need_one_round():
    assert sample(draw([[1, 0, 0, 1]]), DYNAMIC).rounds == 1


def test_a_pass_through_the_panel_meets_every_task_once_and_further_rounds_have_orders_of_their_own():
    panel = [Task(f"task {index}", "Pick", "0") for index in range(8)]
    first = [training_tasks(panel, groups=4, seed=0, step=step) for step in (1, 2)]
    assert sorted(task.id for tasks in first for task in tasks) == [task.id for task in panel]
    again = training_tasks(panel, groups=8, seed=0, step=1, turn=1)
    assert sorted(again) == panel
    assert again != [*first[0], *first[1]]
    assert again != training_tasks(panel, groups=8, seed=0, step=1, turn=2)
