"""One episode as verl's agent loop plays it, on countdowns instead of games."""

import asyncio
import logging

import pytest

from scpo.errors import EnvironmentFailure, RecordWriteError
from scpo.generation import Generation
from scpo.rollout import Slot
from scpo.trainers.verl.episode import Answer, play
from scpo.trainers.verl.verl_rows import read_rows
from tests.unit.test_rollout import TASKS, Countdowns, FullDisk

ORIGIN = {"min_global_steps": 3, "max_global_steps": 3}


def episode(environment, answers, *, retries=0, sibling=1):
    left, prompts = list(answers), []

    async def ask(prompt):
        prompts.append(prompt)
        return Answer(Generation(left.pop(0), (1, 2), (3,), (-0.1,), truncated=prompt.endswith("3 left")), ORIGIN)

    turns = asyncio.run(play(environment, "train", Slot(2, sibling, TASKS[0]), ask, retries=retries))
    return turns, prompts


def test_every_step_is_a_turn_with_all_that_credit_needs():
    turns, prompts = episode(Countdowns(), ["??", "stop"])
    assert prompts == ["train/a: 4 left", "train/a: 3 left"]
    first, last = (turn.row for turn in turns)
    assert (first.panel, first.group, first.sibling, first.task, first.family) == ("train", 2, 1, "train/a", "Pick")
    assert (first.step, first.length, last.step, last.length) == (0, 2, 1, 2)
    assert (first.anchor, first.action, first.next_observation) == ("4 left", "??", "3 left")
    assert (first.valid, first.won, first.reward) == (False, False, 0.0)
    assert (last.anchor, last.won, last.reward, last.truncated) == ("3 left", True, 10.0, True)
    assert turns[0].answer.origin == ORIGIN


def test_an_episode_is_whole_for_the_adapter():
    turns, _ = episode(Countdowns(), ["go"] * 4)
    (trajectory,) = read_rows([turn.row.extra_field() for turn in turns], [False] * 4, episodes=1).trajectories
    assert (len(trajectory), trajectory.won, trajectory.episode_return) == (4, False, 0.0)
    assert trajectory.slot == Slot(2, 1, TASKS[0])


def test_an_environment_that_breaks_gets_a_fresh_one_and_leaves_no_half_episode(caplog):
    environment = Countdowns(broken=[2, None])
    with caplog.at_level(logging.WARNING):
        turns, _ = episode(environment, ["go", "go", "go", "stop"], retries=1)
    assert environment.started == 2
    assert [turn.row.action for turn in turns] == ["stop"]
    assert "starts again (1 of 1 retries)" in caplog.text


def test_a_full_disk_is_not_tried_again():
    environment = FullDisk()
    with pytest.raises(RecordWriteError, match=r"train/a cannot be played: No space left"):
        episode(environment, [], retries=2)
    assert environment.started == 1


def test_an_environment_that_keeps_breaking_ends_the_episode_with_its_name():
    with pytest.raises(
        EnvironmentFailure, match=r"task train/a \(group 2, sibling 1\) failed 3 times, 2 retries .*engine died"
    ):
        episode(Countdowns(broken=[4, 4, 4]), ["go"] * 3, retries=2)
