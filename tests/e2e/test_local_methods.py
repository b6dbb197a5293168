"""Methods that ask the trainer for more than plain rollouts of groups: one training step of each, in this process."""

import json

import pytest

from scpo.trainers import train
from sweeps.compose.configuration import compose_run
from sweeps.records import run_folders as store
from tests.e2e.local_run import OVERRIDES

pytest.importorskip("alfworld", reason="needs alfworld: make setup")
torch = pytest.importorskip("torch", reason="needs torch: make setup")

SHORT = ["trainer.validation.every=1000", "trainer.probe_every=1000", "env.validation_panels.valid_seen.games=1",
         "env.validation_panels.valid_unseen.games=1"]  # fmt: skip


@pytest.fixture(autouse=True)
def threads():
    """The trainer sets the threads of its process, which here is that of all tests."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


class Killed(Exception):
    """Stands for kill -9 behind a step's record."""


def run(runs, cache, *overrides, killed_after=None):
    """Train to the end, or till step ``killed_after`` is recorded; returns the run folder."""
    machine = [f"machine.runs_dir={runs}", f"machine.cache_dir={cache}"]
    config = compose_run([*OVERRIDES, *SHORT, *machine, *overrides])
    folder = store.ensure(config)

    def should_stop():
        if killed_after is not None and logged(folder)[-1]["step"] == killed_after:
            raise Killed
        return False

    train(config, folder, should_stop)
    return folder


def logged(folder):
    return [json.loads(line) for line in folder.metrics.read_text().splitlines()]


@pytest.mark.parametrize("method", ["ppo", "empg", "hcapo", "dapo"])
def test_a_method_trains_on_the_local_trainer(method, cache, tmp_path):
    folder = run(tmp_path, cache, f"method={method}", "trainer.steps=1")
    line = logged(folder)[-1]
    assert line["train/episodes"] == 12 * line["train/sampling_rounds"]
    assert (line["train/sampling_rounds"] > 1) == (method == "dapo")  # this policy wins nothing, so no group differs
    assert ("critic/loss" in line) == (method == "ppo")
    saved = {path.name for path in (folder.checkpoints / "step_00001").iterdir()}
    assert ("critic_optimizer.safetensors" in saved) == (method == "ppo")


def test_ppo_killed_between_checkpoints_and_resumed_ends_with_the_same_bytes(cache, tmp_path):
    four_steps = ["method=ppo", "trainer.steps=4", "method.estimator.critic.learning_rate=1e-2"]
    undisturbed = run(tmp_path / "a", cache, *four_steps)
    with pytest.raises(Killed):
        run(tmp_path / "b", cache, *four_steps, killed_after=3)
    resumed = run(tmp_path / "b", cache, *four_steps)
    assert resumed.metrics.read_bytes() == undisturbed.metrics.read_bytes()
    assert logged(resumed)[-1]["critic/value"] != 0
