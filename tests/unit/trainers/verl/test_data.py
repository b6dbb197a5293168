"""The schedule and the validation panels as rows for verl."""

from dataclasses import dataclass

import pytest

from scpo.envs.base import Panel, Task
from scpo.rollout import training_tasks
from scpo.trainers.verl.data import training_rows, validation_rows, write_parquet
from scpo.verl_config import prompts_per_step, siblings
from sweeps.compose.configuration import compose_run

SMALL = ["trainer.steps=3", "trainer.groups=2", "trainer.group_size=4", "env.horizon=5"]


@dataclass
class Panels:
    """Panels of three tasks each."""

    def panel(self, name):
        return Panel(name, tuple(Task(f"{name}/{number}", "Pick", f"hash {number}") for number in range(3)))


def run(*words):
    return compose_run(["trainer=verl_cpu", *SMALL, *words])


def test_training_asks_for_the_same_tasks_in_the_same_steps_as_the_local_trainer():
    config = run("seed=3")
    rows = list(training_rows(Panels(), config))
    assert [row["extra_info"]["index"] for row in rows] == list(range(6))
    assert [row["extra_info"]["group"] for row in rows] == [0, 1] * 3
    ours = [
        task.id
        for step in (1, 2, 3)
        for task in training_tasks(Panels().panel("train").tasks, groups=2, seed=3, step=step)
    ]
    assert [row["extra_info"]["task"] for row in rows] == ours
    assert {row["extra_info"]["panel"] for row in rows} == {"train"}


def test_independent_sampling_has_as_many_rollouts_each_of_a_task_of_its_own():
    config = run("method=ppo")
    assert (prompts_per_step(config), siblings(config)) == (8, 1)
    assert (prompts_per_step(run()), siblings(run())) == (2, 4)
    assert len(list(training_rows(Panels(), config))) == 24


def test_validation_plays_every_panel_with_its_repeats_and_the_probes_siblings():
    config = run("env.validation_panels.train_games.repeats=2", "trainer.probe_siblings=5")
    rows = [row["extra_info"] for row in validation_rows(Panels(), config)]
    counts = {panel: sum(row["panel"] == panel for row in rows) for panel in {row["panel"] for row in rows}}
    assert counts == {"train_games": 6, "valid_seen": 3, "valid_unseen": 3, "probe": 15}
    assert [(row["group"], row["repeat"]) for row in rows if row["panel"] == "train_games"] == [
        (0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)
    ]  # fmt: skip
    assert [row["index"] for row in rows] == list(range(len(rows)))


def test_a_method_without_a_shaper_has_no_probe():
    assert "probe" not in {row["extra_info"]["panel"] for row in validation_rows(Panels(), run("method=grpo"))}


def test_the_file_holds_the_rows(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs pyarrow: make setup")
    rows = list(training_rows(Panels(), run()))
    write_parquet(tmp_path / "data" / "train.parquet", rows)
    assert parquet.read_table(tmp_path / "data" / "train.parquet").to_pylist() == rows
