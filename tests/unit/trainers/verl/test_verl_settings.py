"""Our configuration in verl's words: the paper's table, value by value, and what verl cannot express."""

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from scpo.errors import ConfigError
from scpo.trainers.verl.cpu.cpu_settings import cpu_settings
from scpo.trainers.verl.verl_settings import Files, settings
from sweeps.compose.configuration import compose_run

FILES = Files("Qwen/Qwen2.5-1.5B-Instruct", Path("/data/train.parquet"), Path("/data/val.parquet"), Path("/runs/x"))
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
PAPER = {  # Table 3 and appendix A of the paper; where it is silent, verl-agent's script at 796ed31
    "data.train_batch_size": 16,
    f"{ROLLOUT}.n": 8,
    "trainer.total_training_steps": 150,
    "trainer.test_freq": 5,
    "trainer.save_freq": 5,
    f"{ROLLOUT}.temperature": 1.0,
    f"{ROLLOUT}.val_kwargs.temperature": 0.4,
    f"{ROLLOUT}.val_kwargs.do_sample": True,
    "data.max_prompt_length": 2048,
    "data.max_response_length": 512,
    f"{ACTOR}.ppo_epochs": 1,
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": 32,
    f"{ACTOR}.clip_ratio_low": 0.2,
    f"{ACTOR}.clip_ratio_high": 0.2,
    f"{ACTOR}.clip_ratio_c": 3.0,
    f"{ACTOR}.use_kl_loss": True,
    f"{ACTOR}.kl_loss_coef": 0.01,
    f"{ACTOR}.kl_loss_type": "low_var_kl",
    f"{ACTOR}.entropy_coeff": 0.001,
    f"{ACTOR}.loss_agg_mode": "token-mean",
    "algorithm.use_kl_in_reward": False,
    f"{ACTOR}.optim.lr": 1e-6,
    f"{ACTOR}.optim.lr_warmup_steps": 0,
    f"{ACTOR}.optim.weight_decay": 0.01,
    f"{ACTOR}.optim.clip_grad": 1.0,
    "trainer.n_gpus_per_node": 4,
    "trainer.nnodes": 1,
    f"{ROLLOUT}.name": "vllm",
    f"{ROLLOUT}.tensor_model_parallel_size": 2,
    f"{ROLLOUT}.gpu_memory_utilization": 0.6,
    f"{ROLLOUT}.enable_chunked_prefill": True,  # its script has False, for vLLM's first engine
    f"{ROLLOUT}.free_cache_engine": True,  # its script has False, and its engine sleeps all the same
    "actor_rollout_ref.ref.fsdp_config.model_dtype": "bf16",
    "actor_rollout_ref.ref.fsdp_config.param_offload": True,
    "actor_rollout_ref.model.enable_gradient_checkpointing": True,
}


def chosen(*words, files=FILES):
    return {setting.key: setting for setting in settings(compose_run(["scale=paper", *words]), files)}


def values(*words):
    return {key: setting.value for key, setting in chosen(*words).items()}


def test_the_papers_table_value_by_value():
    found = values()
    assert {key: found[key] for key in PAPER} == PAPER


def test_the_engine_sees_mini_batches_of_256_rows_although_verl_counts_tasks():
    found = values()
    assert found[f"{ACTOR}.ppo_mini_batch_size"] * found[f"{ROLLOUT}.n"] == 256
    assert values("env=webshop")[f"{ACTOR}.ppo_mini_batch_size"] * 8 == 64
    assert values("env=webshop", "env.setting=paper")[f"{ACTOR}.ppo_mini_batch_size"] * 8 == 256


def test_what_differs_at_7b_and_on_webshop():
    assert values("model=qwen2_5_7b")[f"{ACTOR}.ppo_micro_batch_size_per_gpu"] == 8
    assert values("env=webshop")["data.max_prompt_length"] == 4096


def test_micro_batches_divide_what_a_rank_has_of_a_mini_batch():
    assert values("env=webshop")[f"{ACTOR}.ppo_micro_batch_size_per_gpu"] == 16  # 64 rows over 4 GPUs
    assert values("trainer.mini_batch_rows=96")[f"{ACTOR}.ppo_micro_batch_size_per_gpu"] == 8
    with pytest.raises(ConfigError, match="mini_batch_rows=256 cannot be shared by 3 GPUs"):
        values("trainer.verl.gpus=3", "trainer.verl.tensor_parallel=1")


UNEVEN = {
    "even numbers, for engines of two GPUs": (
        ["gpus=6"],
        "shared by 6 GPUs .*; allowed for trainer.verl.gpus: 2, 4, 8$",
    ),
    "engines of one GPU": (["gpus=3", "tensor_parallel=1"], "allowed for trainer.verl.gpus: 1, 2, 4, 8$"),
    "engines of three": (
        ["gpus=3", "tensor_parallel=3"],
        "1, 2, 4, 8, with a trainer.verl.tensor_parallel that divides",
    ),
    "two nodes": (["gpus=6", "nodes=2"], "shared by 12 GPUs .*; allowed for trainer.verl.gpus: 2, 4, 8$"),
    "three nodes": (["nodes=3"], "shared by 12 GPUs .*; allowed for trainer.mini_batch_rows: multiples of 12$"),
}


@pytest.mark.parametrize(("words", "message"), UNEVEN.values(), ids=UNEVEN)
def test_gpus_that_cannot_share_a_mini_batch_are_refused_with_the_numbers_that_can(words, message):
    with pytest.raises(ConfigError, match=message):
        compose_run(["scale=paper", *(f"trainer.verl.{word}" for word in words)])


def test_engines_must_share_the_gpus_evenly_and_one_card_has_its_own_settings():
    with pytest.raises(
        ConfigError, match=r"tensor_parallel=2 does not divide 1, the number of GPUs .*trainer=verl_1gpu"
    ):
        values("trainer.verl.gpus=1")
    found = values("trainer=verl_1gpu")
    assert (found["trainer.n_gpus_per_node"], found[f"{ROLLOUT}.tensor_model_parallel_size"]) == (1, 1)
    assert found[f"{ROLLOUT}.free_cache_engine"]
    assert found[f"{ACTOR}.ppo_micro_batch_size_per_gpu"] == 8


def test_engines_of_different_seeds_never_share_a_seed():
    """verl adds the replica's number: with the seed itself, engine 1 of seed 0 drew as engine 0 of seed 1."""
    first = [values(f"seed={seed}")[f"{ROLLOUT}.seed"] for seed in range(20)]
    engines = {seed + replica for seed in first for replica in range(8)}
    assert len(engines) == 20 * 8
    assert max(engines) < 2**31
    assert values()[f"{ROLLOUT}.seed"] == first[0]


def test_gradients_are_reduced_after_every_micro_batch():
    """verl's dataclass has true, with which each rank keeps whole gradients (28 GiB at 7B)."""
    found, key = values("method=ppo"), "use_no_sync_for_gradient_accumulation"
    for part in (f"{ACTOR}.fsdp_config", "actor_rollout_ref.ref.fsdp_config", "critic.fsdp"):
        assert found[f"{part}.{key}"] is False


def test_without_flash_attn_the_logits_are_fused_and_micro_batches_small():
    config = compose_run(["scale=paper", "method=ppo"])
    found = {one.key: one.value for one in settings(config, FILES, attention="sdpa")}
    assert found["actor_rollout_ref.model.override_config.attn_implementation"] == "sdpa"
    assert found["critic.model.override_config.attn_implementation"] == "sdpa"
    assert found["actor_rollout_ref.model.use_fused_kernels"] is True
    assert found[f"{ACTOR}.ppo_micro_batch_size_per_gpu"] == 8
    assert not [key for key in values("method=ppo") if "attn_implementation" in key]


@pytest.mark.parametrize("engine", ["hf", "vllm"])
def test_every_worker_imports_the_guard_of_updates_without_advantage(engine):
    run = compose_run(["trainer=verl_cpu", f"trainer.verl.engine={engine}"])
    found = {setting.key: setting.value for setting in settings(run, FILES) + cpu_settings(engine)}
    imported = found["actor_rollout_ref.model.external_lib"]
    source = importlib.util.find_spec(imported).origin
    assert imported.endswith("update_guard") or "import update_guard" in Path(source).read_text()


def test_a_critic_leaves_the_engine_less():
    assert values("method=ppo")[f"{ROLLOUT}.gpu_memory_utilization"] == 0.45
    assert values("method=ppo", "model=qwen2_5_7b")[f"{ROLLOUT}.gpu_memory_utilization"] == 0.3


def test_ppo_plays_128_tasks_once_and_trains_a_critic():
    found = values("method=ppo")
    assert (found["data.train_batch_size"], found[f"{ROLLOUT}.n"]) == (128, 1)
    assert found[f"{ACTOR}.ppo_mini_batch_size"] == 256
    assert (found["algorithm.adv_estimator"], found["critic.optim.lr"], found["critic.cliprange_value"]) == (
        "gae", 1e-5, 0.5
    )  # fmt: skip
    assert not [key for key in values("method=scpo") if key.startswith("critic.")]


def test_every_value_says_where_it_comes_from_and_no_key_is_set_twice():
    for engine in ("hf", "vllm"):
        run = compose_run(["scale=paper", "method=ppo", f"trainer.verl.engine={engine}"])
        everything = settings(run, FILES) + cpu_settings(engine)
        assert all(setting.source for setting in everything)
        keys = [setting.key for setting in everything]
        assert len(set(keys)) == len(keys)


def test_a_word_level_policy_takes_its_tokenizer_to_vllm():
    key = f"{ROLLOUT}.engine_kwargs.vllm.tokenizer"
    files = replace(FILES, tokenizer="/policy/tokenizer")
    assert chosen(files=files)[key].value == "/policy/tokenizer"
    assert key not in chosen()


def test_words_survive_hydras_grammar():
    from hydra.core.override_parser.overrides_parser import OverridesParser

    files = Files("/models/it's, [a] {b}=c", Path("/a b.parquet"), Path("/v"), Path("/r"), Path("/r/global_step_5"))
    everything = chosen(files=files).values()
    for setting, parsed in zip(
        everything, OverridesParser.create().parse_overrides([one.override for one in everything]), strict=True
    ):
        assert parsed.value() == setting.value or parsed.value().text == setting.value


def test_a_resumed_run_starts_at_its_checkpoint_without_validating_again():
    fresh = values()
    assert (fresh["trainer.resume_mode"], fresh["trainer.val_before_train"]) == ("disable", True)
    files = Files("m", Path("/t"), Path("/v"), Path("/r"), Path("/r/checkpoints/step_00005/global_step_5"))
    found = {key: setting.value for key, setting in chosen(files=files).items()}
    assert found["trainer.resume_mode"] == "resume_path"
    assert found["trainer.resume_from_path"].endswith("global_step_5")
    assert found["trainer.val_before_train"] is False


def test_a_mini_batch_that_verl_cannot_express_is_refused_with_those_it_can():
    with pytest.raises(ConfigError, match=r"mini_batch_rows=100 is no multiple of 8.*allowed: 96, 104"):
        chosen("trainer.mini_batch_rows=100")


def test_a_run_of_another_trainer_is_not_for_verl():
    with pytest.raises(ConfigError, match="trainer=local is not verl"):
        settings(compose_run([]), FILES)


def test_a_probe_between_validations_is_refused_for_verl_only():
    compose_run(["trainer.probe_every=3"])
    with pytest.raises(ConfigError, match=r"probe_every=3 is no multiple of validation\.every=5"):
        compose_run(["scale=paper", "trainer.probe_every=3"])
