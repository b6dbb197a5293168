"""Our configuration in verl-agent's terms, value by value, and what of it the fork cannot run."""

import pytest

from scpo.errors import ConfigError
from scpo.integrations.verl_agent.fork_settings import command_line, settings
from scpo.records import RunFolder
from scpo.trainers import train
from sweeps.compose.configuration import compose_run
from sweeps.compose.matrix import expand


def run(*overrides):
    return compose_run(["scale=paper", "trainer=verl_agent", *overrides])


def words(*overrides, folder="/runs/x"):
    return {setting.key: setting.value for setting in settings(run(*overrides), RunFolder(folder).path)}


def test_the_papers_script_value_by_value():
    found = words()
    expected = {
        "algorithm.adv_estimator": "gigpo", "algorithm.gamma": 0.95, "algorithm.gigpo.mode": "mean_std_norm",
        "algorithm.gigpo.step_advantage_w": 1.0, "data.train_batch_size": 16, "data.val_batch_size": 128,
        "env.rollout.n": 8, "env.max_steps": 50, "env.seed": 0, "env.env_name": "alfworld/AlfredTWEnv",
        "data.max_prompt_length": 2048, "data.max_response_length": 512,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 256,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 32,
        "actor_rollout_ref.actor.optim.lr": 1e-6, "actor_rollout_ref.actor.kl_loss_coef": 0.01,
        "actor_rollout_ref.actor.invalid_action_penalty_coef": 0.1, "trainer.total_epochs": 150,
        "actor_rollout_ref.rollout.val_kwargs.temperature": 0.4, "trainer.n_gpus_per_node": 4,
    }  # fmt: skip
    assert {key: found[key] for key in expected} == expected


def test_other_methods_of_the_forks_scripts():
    ppo, dapo, webshop = words("method=ppo"), words("method=dapo"), words("env=webshop")
    assert (ppo["data.train_batch_size"], ppo["env.rollout.n"], ppo["algorithm.adv_estimator"]) == (128, 1, "gae")
    assert (dapo["algorithm.filter_groups.max_num_gen_batches"], dapo["algorithm.adv_estimator"]) == (10, "grpo")
    assert dapo["actor_rollout_ref.actor.clip_ratio_high"] == 0.28
    assert (webshop["algorithm.gigpo.mode"], webshop["env.max_steps"]) == ("mean_norm", 15)
    assert webshop["actor_rollout_ref.actor.ppo_mini_batch_size"] == 64
    assert words("method=hgpo")["algorithm.adv_estimator"] == "grpo"


def test_what_the_fork_cannot_run_is_refused():
    with pytest.raises(ConfigError, match=r"method=hcapo needs hindsight_logprob, which trainer=verl_agent"):
        run("method=hcapo")
    with pytest.raises(ConfigError, match=r"env\.setting=paper: verl-agent knows stack only"):
        words("env=webshop", "env.setting=paper")
    with pytest.raises(ConfigError, match=r"trainer=local model=tiny; verl-agent needs"):
        settings(compose_run([]), RunFolder("/runs/x").path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("method.estimator.singletons=group_step", "knows zero only; trainer=local and verl have more"),
        ("method.estimator.statistics=trajectories", "knows rows only"),
        ("trainer.verl.engine=hf", "knows vllm only"),
        ("env.prompt=compact", "knows verl_agent only"),
    ],
)
def test_a_value_that_the_fork_has_not_is_refused_by_its_key(change, reason):
    with pytest.raises(ConfigError, match=f"{change}: verl-agent {reason}"):
        words("method=scpo", change)


def test_what_the_fork_estimates_by_our_estimators_has_all_their_values():
    assert words("method=hgpo", "method.estimator.statistics=trajectories")


@pytest.mark.parametrize(
    ("change", "key", "value"),
    [
        ("trainer.temperature=0.7", "actor_rollout_ref.rollout.temperature", 0.7),
        ("trainer.epochs=2", "actor_rollout_ref.actor.ppo_epochs", 2),
        ("trainer.loss.dual_clip=5.0", "actor_rollout_ref.actor.clip_ratio_c", 5.0),
        ("trainer.optimizer.weight_decay=0.1", "actor_rollout_ref.actor.optim.weight_decay", 0.1),
        ("trainer.optimizer.gradient_clip=0.5", "actor_rollout_ref.actor.grad_clip", 0.5),
        ("trainer.optimizer.warmup_steps=3", "actor_rollout_ref.actor.optim.lr_warmup_steps", 3),
    ],
)
def test_no_value_of_the_training_protocol_is_left_to_the_forks_default(change, key, value):
    assert words(change)[key] == value != words()[key]


def test_the_normalisation_of_grpo_and_the_critics_optimiser_reach_the_fork():
    assert (
        words("method=grpo", "method.estimator.normalisation=mean_norm")["algorithm.norm_adv_by_std_in_grpo"] is False
    )
    assert words("method=ppo", "trainer.optimizer.weight_decay=0.1")["critic.optim.weight_decay"] == 0.1
    assert words("method=ppo", "trainer.optimizer.gradient_clip=0.5")["critic.grad_clip"] == 0.5


def test_words_of_the_configuration_come_after_ours_and_typed_ones_last():
    config = run('trainer.verl.overrides=["env.seed=7"]')
    line = command_line(config, settings(config, RunFolder("/runs/x").path), ["env.seed=8"])
    assert [word for word in line if word.startswith("env.seed=")] == ["env.seed=0", "env.seed=7", "env.seed=8"]


def test_starting_it_here_says_what_to_type_in_the_forks_environment():
    with pytest.raises(ConfigError, match=r"python -m scpo\.integrations\.verl_agent <folder>"):
        train(run(), None, lambda: False)
    with pytest.raises(ConfigError, match="trains in verl-agent's own environment"):
        expand("ablation", ["scale=paper", "trainer=verl_agent"])


def test_a_method_that_only_prompts_trains_nothing_and_starts_anywhere():
    run("method=plain").check_started_here()
