"""The estimates against the figures they were made for, and what they decide."""

import json
import operator
import re

import pytest

from scpo.memory import GIB, gpu_table, needed_gib, parameters, shape, shortage
from sweeps.compose.configuration import compose_run

A800 = 79.0


def table(*words, gib=A800):
    return {part.name: part for part in gpu_table(compose_run(["scale=paper", *words]), gib)}


def test_the_states_of_a_model_are_16_bytes_a_parameter_over_the_ranks():
    name = "weights, gradients, optimizer"
    assert table()[name].update_gib == pytest.approx(1.544e9 * 16 / 4 / GIB, rel=0.05)  # 5.8
    assert table("model=qwen2_5_7b")[name].update_gib == pytest.approx(28.4, rel=0.02)
    assert table("method=ppo")[name].update_gib == pytest.approx(2 * table()[name].update_gib)


def test_an_engine_that_does_not_sleep_keeps_its_memory_through_the_update():
    asleep, awake = table(), table("trainer.verl.free_cache=false")
    assert asleep["rollout engine"].update_gib == 0
    assert awake["rollout engine"].update_gib == asleep["rollout engine"].rollout_gib == pytest.approx(0.6 * A800)


def test_logits_are_what_fused_kernels_save():
    assert table()["logits"].update_gib == pytest.approx(20, rel=0.05)  # 32 rows of 620 tokens
    assert table("trainer.verl.attention=sdpa")["logits"].update_gib == 1.0


FITS = {
    "1.5B on the paper's node": ([], A800),
    "7B on the paper's node": (["model=qwen2_5_7b"], A800),
    "1.5B on one card": (["trainer=verl_1gpu"], A800),
    "0.5B on a small card": (["trainer=verl_1gpu", "model=qwen2_5_0_5b", "trainer.micro_batch_rows=4"], 23.5),
    "an evaluation of 7B": (["method=react", "model=qwen2_5_7b"], A800),
    "1.5B in one process": (["trainer=local", "method=grpo"], A800),
}
FITS_NOT = {
    "an engine that never sleeps": (["model=qwen2_5_7b", "trainer.verl.free_cache=false"], A800, "free_cache=true"),
    "7B on one card": (["trainer=verl_1gpu", "model=qwen2_5_7b"], A800, "offload_training=true"),
    "1.5B on a small card": (["trainer=verl_1gpu"], 23.5, "offload_training=true"),
    "1.5B on four small cards": ([], 23.5, "trainer.micro_batch_rows"),
    "7B in one process": (["trainer=local", "model=qwen2_5_7b"], A800, "trainer=verl over several GPUs"),
}


@pytest.mark.parametrize(("words", "gib"), FITS.values(), ids=FITS)
def test_what_fits(words, gib):
    assert shortage(compose_run(["scale=paper", *words]), gib) is None


@pytest.mark.parametrize(("words", "gib", "remedy"), FITS_NOT.values(), ids=FITS_NOT)
def test_what_does_not_fit_is_refused_with_what_takes_the_memory_and_a_remedy(words, gib, remedy):
    config = compose_run(["scale=paper", *words])
    reason = shortage(config, gib)
    assert remedy in reason
    for key in re.findall(r"[a-z]+\.[a-z_.]*[a-z]", reason):
        assert operator.attrgetter(key)(config) is not None  # a key that there is
    assert "estimates" in reason


def test_a_model_tells_its_own_sizes(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(dict(num_hidden_layers=2, hidden_size=64, vocab_size=100)))
    with (tmp_path / "model.safetensors").open("wb") as file:
        file.truncate(2_000_000)
    model = compose_run(["scale=paper", f"model.path={tmp_path}"]).model
    assert parameters(model) == 1e6
    assert (shape(model).layers, shape(model).hidden, shape(model).vocabulary) == (2, 64, 100)


def test_small_policies_have_no_table():
    assert gpu_table(compose_run([]), A800) == []
    assert needed_gib([]) == 0
