"""The paper's setting as verl itself resolves and checks it; `pytest -s` prints the table."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from scpo.errors import ConfigError
from scpo.trainers.verl.cpu.cpu_settings import cpu_settings
from scpo.trainers.verl.verl_settings import settings
from sweeps.compose.configuration import compose_run
from tests.support.tiny import tiny_policy
from tests.unit.trainers.verl.test_verl_settings import FILES, PAPER

pytest.importorskip("ray", reason="needs verl: make test-verl")


def resolved(*words, files=FILES):
    from scpo.trainers.verl.launch import compose_verl

    config = compose_run(["scale=paper", *words])
    return compose_verl([setting.override for setting in settings(config, files)])


def test_verl_resolves_the_papers_table():
    from omegaconf import OmegaConf

    config = resolved()
    found = {key: OmegaConf.select(config, key) for key in PAPER}
    for key, value in found.items():
        print(f"{key:60} {value!s:12} {PAPER[key]}")  # noqa: T201 - the record
    assert found == PAPER


@pytest.mark.parametrize(
    "word",
    [
        "seed=1",
        "model=qwen2_5_7b",
        "env=webshop",
        "env=webshop env.setting=paper",
        "method=ppo",
        "method=empg",
        "method=hgpo",
    ],
)
def test_verls_own_checks_accept_what_the_launcher_writes(word, tmp_path):
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import validate_config

    from scpo.trainers.verl.runner import _in_tasks

    policy = tiny_policy()  # verl reads the configuration of the critic's model
    policy.model.save_pretrained(tmp_path)
    policy.tokenizer.save_pretrained(tmp_path / "tokenizer")
    config = resolved(*word.split(), files=replace(FILES, model=str(tmp_path), tokenizer=str(tmp_path / "tokenizer")))
    assert need_critic(config) == (word == "method=ppo")
    validate_config(_in_tasks(config), need_reference_policy(config), need_critic(config))


@pytest.mark.parametrize(("words", "rows"), [([], 256), (["env=webshop"], 64), (["method=ppo"], 256)])
def test_the_engine_gets_a_global_batch_of_as_many_rows_as_in_the_paper(words, rows):
    from transfer_queue import KVBatchMeta

    from scpo.trainers.verl.trainer import ScpoTrainer

    trainer = object.__new__(ScpoTrainer)
    trainer.config, trainer.use_critic, trainer.global_steps = resolved(*words), False, 1
    asked = []

    def update_actor(batch):
        asked.append(dict(batch.extra_info))
        raise StopIteration

    trainer.actor_rollout_wg = SimpleNamespace(update_actor=update_actor)
    with pytest.raises(StopIteration):
        trainer._update_actor(KVBatchMeta(partition_id="train", keys=["a"], tags=[{}]), {})
    assert (asked[0]["global_batch_size"], asked[0]["mini_batch_size"], asked[0]["epochs"]) == (rows, rows, 1)
    assert trainer._get_required_batch_multiple(dp_size=4) == rows


@pytest.mark.parametrize("engine", ["hf", "vllm"])
def test_what_the_cpu_adds_is_known_to_verl(engine):
    from scpo.trainers.verl.launch import compose_verl

    config = compose_run(["trainer=verl_cpu"])
    words = [setting.override for setting in (*settings(config, FILES), *cpu_settings(engine))]
    assert compose_verl(words).trainer.device == "cpu"


def test_a_word_that_verl_does_not_know_is_refused_before_ray_starts():
    from scpo.trainers.verl.launch import compose_verl

    with pytest.raises(ConfigError, match=r"trainer\.no_such_key.*check trainer\.verl\.overrides"):
        compose_verl(["trainer.no_such_key=1"])


def test_the_overridden_signatures_are_those_of_this_verl_and_others_are_named(monkeypatch):
    from scpo.trainers.verl import versions

    versions.check_version()
    versions.check_signatures()
    place = "verl.trainer.ppo.v1.trainer_base:PPOTrainer"
    monkeypatch.setitem(versions.OVERRIDDEN, place, {"_compute_advantage": ("self", "data")})
    with pytest.raises(ConfigError, match=r"_compute_advantage takes self, batch, metrics; scpo was written for"):
        versions.check_signatures()
    monkeypatch.setitem(versions.OVERRIDDEN, place, {"gone": ("self",)})
    with pytest.raises(ConfigError, match=r"verl has no .*gone"):
        versions.check_signatures()
