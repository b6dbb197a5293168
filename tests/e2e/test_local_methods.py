"""Methods that ask the trainer for more than plain rollouts of groups: one training step of each, in this process."""

import pytest

from tests.e2e.local_run import OVERRIDES
from tests.support import training_in_process
from tests.support.training_in_process import Killed, logged

pytest.importorskip("alfworld", reason="needs alfworld: make setup")
pytest.importorskip("torch", reason="needs torch: make setup")

pytestmark = pytest.mark.usefixtures("threads")

SHORT = ["trainer.validation.every=1000", "trainer.probe_every=1000", "env.validation_panels.valid_seen.games=1",
         "env.validation_panels.valid_unseen.games=1"]  # fmt: skip


def run(runs, cache, *overrides, **killed):
    return training_in_process.run(runs, cache, *OVERRIDES, *SHORT, *overrides, **killed)


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
