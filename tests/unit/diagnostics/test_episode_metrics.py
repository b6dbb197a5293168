from scpo.diagnostics.validation_episodes import episode_metrics, repeat_metrics
from scpo.envs.base import StepResult, Task
from scpo.rollout import Slot, Trajectory


def test_a_task_passes_if_one_of_its_episodes_is_won():
    tasks = ["a", "a", "b", "b", "c", "c"]
    assert repeat_metrics(tasks, [True, False, False, False, True, True]) == {"pass_at_2": 2 / 3}


def test_a_panel_without_repeats_has_no_pass_at_k():
    assert repeat_metrics(["a", "b"], [True, False]) == {}
    assert repeat_metrics(["a", "a", "b"], [True, False, True]) == {}


def episode(task, sibling, *, won, restarts=0):
    result = StepResult("look", True, "nothing", 0.0, True, won)
    return Trajectory(Slot(0, sibling, Task(task, "Pick", "0")), results=[result], restarts=restarts)


def test_errored_episodes_are_counted_apart_from_what_they_came_to():
    episodes = [episode("a", 0, won=True, restarts=2), episode("a", 1, won=False)]
    metrics = episode_metrics(episodes, by_family=True)
    assert (metrics["errored"], metrics["success_rate"], metrics["episodes"]) == (1, 0.5, 2)
    assert metrics["pass_at_2"] == 1
    assert "errored" not in episode_metrics(episodes, by_family=False)
