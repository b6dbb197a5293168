"""Methods that ask the trainer for more than plain rollouts of groups: one training step of each."""

import json

import pytest

from tests.e2e.local_run import finish

pytest.importorskip("alfworld", reason="needs the alfworld extra")
pytest.importorskip("torch", reason="needs the local extra")

ONE_STEP = ["trainer.steps=1", "trainer.validation.every=1000", "trainer.probe_every=1000"]


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """One warm start for all of them."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("method", ["ppo", "empg", "hcapo", "dapo"])
def test_a_method_trains_on_the_local_trainer(method, cache, tmp_path):
    folder = finish(tmp_path, cache, f"method={method}", *ONE_STEP)
    line = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    assert line["actor/grad_norm"] >= 0
    assert line["train/episodes"] == 12 * line["train/sampling_rounds"]
    assert (line["train/sampling_rounds"] > 1) == (method == "dapo")  # this policy wins nothing, so no group differs
    assert ("critic/loss" in line) == (method == "ppo")
    saved = {path.name for path in (folder / "checkpoints" / "step_00001").iterdir()}
    assert ("critic_optimizer.safetensors" in saved) == (method == "ppo")
