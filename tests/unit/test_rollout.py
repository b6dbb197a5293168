import errno
import os
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from scpo.envs.base import StepResult, Task
from scpo.errors import EnvironmentFailure, RecordWriteError
from scpo.generation import Generation
from scpo.rollout import group_slots, rollout, step_batch

TASKS = [Task("train/a", "Pick", "0"), Task("train/b", "Look", "1")]

AT_START = 5


@dataclass
class Countdown:
    """An episode won by answering "stop" before the horizon of 4; ``broken_at`` raises at that step."""

    task: Task
    broken_at: int | None = None
    observation: str = "4 left"
    done: bool = False
    left: int = 4

    def prompt(self):
        return f"{self.task.id}: {self.observation}"

    def step(self, response):
        if self.left == self.broken_at:
            raise EnvironmentFailure("engine died")
        self.left -= 1
        won = response == "stop"
        self.observation, self.done = f"{self.left} left", won or self.left == 0
        return StepResult(response, response != "??", self.observation, 10.0 * won, self.done, won)


@dataclass
class Countdowns:
    families: tuple[str, ...] = ("Pick", "Look")
    broken: list[int | None] = field(default_factory=list)
    started: int = 0

    def start(self, task, slot):
        self.started += 1
        broken_at = self.broken.pop(0) if self.broken else None
        if broken_at == AT_START:
            raise EnvironmentFailure("engine did not start")
        return Countdown(task, broken_at)


class Guess:
    """Says "stop" when its first uniform number is below one half."""

    max_response_tokens = 2

    def __init__(self):
        self.batches = []

    def generate(self, prompts, temperature, uniforms_NL):
        self.batches.append(list(prompts))
        texts = ["stop" if row[0] < 0.5 else "go" for row in uniforms_NL]
        return [Generation(text, (1, 2), (3,), (-0.1,)) for text in texts]


def play(environment=None, policy=None, slots=None, seed=(0, 1), retries=0):
    return rollout(
        environment or Countdowns(), policy or Guess(), slots or group_slots(TASKS, 4),
        temperature=1.0, seed=seed, retries=retries,
    )  # fmt: skip


def actions(trajectories):
    return [[result.action for result in trajectory.results] for trajectory in trajectories]


def test_siblings_are_numbered_group_by_group():
    slots = group_slots(TASKS, 2)
    assert [(slot.group, slot.sibling, slot.task.id) for slot in slots] == [
        (0, 0, "train/a"), (0, 1, "train/a"), (1, 0, "train/b"), (1, 1, "train/b"),
    ]  # fmt: skip


def test_every_episode_ends_won_or_at_its_horizon():
    for trajectory in play():
        assert trajectory.won == (trajectory.results[-1].action == "stop")
        assert trajectory.won or len(trajectory) == 4
        assert trajectory.episode_return == 10.0 * trajectory.won


def test_finished_episodes_are_not_asked_again():
    policy = Guess()
    trajectories = play(policy=policy)
    lengths = [len(trajectory) for trajectory in trajectories]
    assert [len(batch) for batch in policy.batches] == [sum(n > t for n in lengths) for t in range(max(lengths))]


def test_same_seed_same_rollout_and_another_seed_another():
    assert actions(play()) == actions(play())
    assert actions(play(seed=(0, 1))) != actions(play(seed=(0, 2)))


def test_what_an_episode_samples_does_not_depend_on_its_neighbours():
    slots = group_slots(TASKS, 4)
    assert actions(play(slots=slots[:2])) == actions(play(slots=slots))[:2]


def test_anchor_is_the_observation_before_the_action():
    trajectory = max(play(), key=len)
    assert trajectory.anchors[0] == "4 left"
    assert trajectory.anchors[1:] == [result.observation for result in trajectory.results[:-1]]


def test_rows_carry_the_states_before_and_after_the_step_where_the_environment_gives_them():
    trajectories = play()
    assert step_batch(trajectories, success_threshold=0.0).state_N is None
    for trajectory in trajectories:
        trajectory.states[:] = [f"state {t}" for t in range(len(trajectory))]
        trajectory.results[:] = [replace(result, state=f"state {t + 1}") for t, result in enumerate(trajectory.results)]
    batch = step_batch(trajectories, success_threshold=0.0)
    assert batch.state_N.tolist() == [f"state {t}" for t in batch.step_N]
    assert batch.next_state_N.tolist() == [f"state {t + 1}" for t in batch.step_N]


def test_an_episodes_state_is_the_one_before_the_action():
    class Stated(Countdown):
        @property
        def state_text(self):
            return f"state of {self.observation}"

        def step(self, response):
            return replace(super().step(response), state=self.state_text)

    environment = Countdowns()
    environment.start = lambda task, slot: Stated(task)
    trajectory = max(play(environment), key=len)
    assert trajectory.states == [f"state of {anchor}" for anchor in trajectory.anchors]
    assert [result.state for result in trajectory.results[:-1]] == trajectory.states[1:]


def test_a_broken_episode_starts_again_and_leaves_no_rows_behind():
    environment = Countdowns(broken=[4, None])
    trajectories = play(environment, slots=group_slots(TASKS[:1], 1), retries=1)
    assert environment.started == 2
    assert trajectories[0].anchors[0] == "4 left"
    assert len(trajectories[0]) <= 4


def test_an_episode_that_cannot_be_started_is_tried_again_from_the_same_count():
    environment = Countdowns(broken=[AT_START, 4, AT_START, None])
    (trajectory,) = play(environment, slots=group_slots(TASKS[:1], 1), retries=3)
    assert (environment.started, trajectory.restarts) == (4, 3)
    with pytest.raises(EnvironmentFailure, match=r"failed 3 times, 2 retries .*did not start"):
        play(Countdowns(broken=[AT_START] * 3), slots=group_slots(TASKS[:1], 1), retries=2)


def test_an_episode_that_keeps_failing_stops_the_rollout_and_names_the_task():
    environment = Countdowns(broken=[4] * 9)
    with pytest.raises(EnvironmentFailure, match=r"train/a .*failed 3 times, 2 retries .*env.failure_retries"):
        play(environment, slots=group_slots(TASKS[:1], 1), retries=2)


class FullDisk(Countdowns):
    """Its engine cannot write its files."""

    number = errno.ENOSPC

    def start(self, task, slot):
        self.started += 1
        try:
            raise OSError(self.number, os.strerror(self.number), "cache/game.z8")
        except OSError as error:
            raise EnvironmentFailure(f"game {task.id} failed to start: {error}") from error


@pytest.mark.parametrize(
    ("number", "remedy"),
    [(errno.ENOSPC, "make room"), (errno.EDQUOT, "make room"), (errno.EFBIG, r"raise the limit .*ulimit -f")],
)
def test_a_full_disk_or_limit_is_named_and_not_tried_again(monkeypatch, number, remedy):
    environment = FullDisk()
    monkeypatch.setattr(environment, "number", number)
    message = rf"train/a cannot be played: {os.strerror(number)} \(cache/game.z8\); {remedy}"
    with pytest.raises(RecordWriteError, match=message) as caught:
        play(environment, slots=group_slots(TASKS[:1], 1), retries=2)
    assert (environment.started, caught.value.errno) == (1, number)
    assert "failure_retries" not in str(caught.value)


def test_rows_are_in_time_order_and_carry_their_trajectorys_outcome():
    trajectories = play()
    batch = step_batch(trajectories, success_threshold=0.0)
    assert len(batch) == sum(map(len, trajectories))
    row = 0
    for index, trajectory in enumerate(trajectories):
        for t in range(len(trajectory)):
            assert (batch.trajectory_N[row], batch.step_N[row]) == (index, t)
            assert batch.success_N[row] == batch.won_N[row] == trajectory.won
            assert batch.next_observation_N[row] == trajectory.results[t].observation
            row += 1


def test_success_is_a_return_above_the_threshold():
    batch = step_batch(play(), success_threshold=10.0)
    assert not batch.success_N.any()
    assert batch.won_N.any()


def test_processing_order_is_the_trainers():
    trajectories = play()
    position_N = np.arange(sum(map(len, trajectories)))[::-1]
    assert (step_batch(trajectories, success_threshold=0.0, position_N=position_N).position_N == position_N).all()
