"""A choice policy through the whole trainer on the shop: it records, resumes with the same bytes, and learns."""

import pytest

import tests.support.webshop_data  # noqa: F401 - skips without the extra
from scpo.errors import ConfigError
from sweeps.compose.configuration import compose_run
from tests.support import training_in_process
from tests.support.training_in_process import Killed, logged

pytest.importorskip("torch", reason="needs torch: make setup")

pytestmark = pytest.mark.usefixtures("threads")
SHOP = [
    "scale=study", "env=webshop", "env.nouns=stop_list", "wandb.mode=disabled", "machine.device=cpu", "method=scpo",
    "env.train_panel.goals=6", "env.validation_panels.test.goals=4", "model.table_rows=2048", "model.width=8",
    "model.imitation.games=6", "model.imitation.steps=60", "model.imitation.learning_rate=1e-2", "trainer.steps=4",
    "trainer.groups=3", "trainer.group_size=4", "trainer.mini_batch_rows=64", "trainer.validation.every=2",
    "trainer.checkpoint_every=2", "trainer.probe_every=2", "trainer.sample_every=2", "trainer.precision_every=2",
]  # fmt: skip


def run(runs, cache, *overrides, **killed):
    return training_in_process.run(runs, cache, *SHOP, *overrides, **killed)


@pytest.mark.parametrize("method", ["scpo", "ppo"])
def test_a_run_killed_between_checkpoints_and_resumed_ends_with_the_same_bytes(method, cache, tmp_path):
    undisturbed = run(tmp_path / "a", cache, f"method={method}")
    with pytest.raises(Killed):
        run(tmp_path / "b", cache, f"method={method}", killed_after=3)
    resumed = run(tmp_path / "b", cache, f"method={method}")
    assert resumed.metrics.read_bytes() == undisturbed.metrics.read_bytes()
    checkpoints = [folder.checkpoints / "step_00004" / "model.safetensors" for folder in (undisturbed, resumed)]
    assert checkpoints[0].read_bytes() == checkpoints[1].read_bytes()
    lines = logged(undisturbed)
    assert [line["step"] for line in lines if "val/test/success_rate" in line] == [0, 2, 4]
    for line in lines[1:]:
        assert line["train/episodes"] == 12
        assert line["train/prompt_truncated"] == line["train/invalid_rate"] == 0
        if line["actor/updates"] > 0:
            assert line["actor/entropy"] > 0
        else:  # no row of the step had an advantage
            assert line["update/skipped"] > 0
    assert lines[-1]["actor/grad_norm"] > 0.01  # or to go on from before it would prove little


def test_the_untrained_policy_is_what_training_begins_with(cache, tmp_path):
    first = logged(run(tmp_path / "a", cache, "trainer.steps=1"))[0]
    untrained = logged(run(tmp_path / "b", cache, "method=plain"))[-1]
    before = {key: value for key, value in first.items() if key.startswith("val/")}
    assert before
    assert {key: untrained[key] for key in before} == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["model=choice", "env=webshop"],
            "model=choice reads only env.prompt=memory, got env=webshop with env.prompt=",
        ),
        (["scale=study", "env=webshop", "env.prompt=compact"], "got env=webshop with env.prompt=compact; scale=study"),
        (["scale=study", "env=webshop", "trainer=verl_cpu"], "model=choice trains on trainer=local only"),
        (
            ["scale=study", "env=webshop", "method=hcapo"],
            "needs hindsight_logprob, which model=choice does not provide",
        ),
        (["env=webshop", "env.prompt=memory"], "only model=choice reads env.prompt=memory, got model=tiny"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_line(words, said):
    with pytest.raises(ConfigError, match=said) as refused:
        compose_run(words)
    assert "\n" not in str(refused.value)
