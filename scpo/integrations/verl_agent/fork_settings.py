"""Overrides of the fork's configuration for a run, each with the source of its value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scpo.advantages.estimator import GroupSettings
from scpo.advantages.gae import GaeSettings
from scpo.advantages.gigpo import GigpoSettings
from scpo.advantages.grpo import GrpoSettings
from scpo.errors import ConfigError
from scpo.integrations.verl_agent.hooks import OF_THE_FORK
from scpo.memory import micro_batch
from scpo.schema.model import HuggingFaceModel
from scpo.schema.run import RunConfig
from scpo.schema.trainer import VerlTrainer
from scpo.verl_config import Setting, prompts_per_step, siblings

ENVIRONMENTS = {"alfworld": "alfworld/AlfredTWEnv", "webshop": "Webshop"}

# val_data_size of verl-agent's script.
VALIDATION_EPISODES = 128

# Output of verl-agent's examples/data_preprocess/prepare.py. The fork's environments draw the
# tasks; of these files it uses only the numbers of rows.
DATA = "~/data/verl-agent/text"


def settings(config: RunConfig, run_folder: Path) -> list[Setting]:
    """The settings of the paper's script with the values of this run.

    Raises:
        ConfigError: The run has another trainer, a model or an environment that the fork cannot
            run, or a setting that the fork does not have.
    """
    trainer = _check(config)
    return [
        *_data(config),
        *_policy(config, trainer),
        *_method(config),
        *_critic(config, trainer),
        *_run(config, trainer),
        Setting("scpo.run_folder", str(run_folder), "the run's records", added=True),
    ]


def command_line(config: RunConfig, chosen: Sequence[Setting], typed: Sequence[str]) -> list[str]:
    """All overrides for the fork, of which the last one of a key wins.

    Args:
        config: The run; its ``trainer.verl.overrides`` come second.
        chosen: The run's ``settings``, which come first.
        typed: Overrides from the command line, which come last.
    """
    return [*(setting.override for setting in chosen), *_check(config).verl.overrides, *typed]


def _check(config: RunConfig) -> VerlTrainer:
    """Check that the fork can train exactly what the run configures, and return its trainer.

    Raises:
        ConfigError: The fork would train something else.
    """
    trainer = config.trainer
    model = config.model
    if trainer.name != "verl_agent" or not isinstance(model, HuggingFaceModel):
        raise ConfigError(
            f"this folder is of a run with trainer={trainer.name} model={model.name}; verl-agent "
            "needs trainer=verl_agent and a Hugging Face model: compose it with scale=paper "
            "trainer=verl_agent"
        )
    if config.env.name not in ENVIRONMENTS:
        raise ConfigError(
            f"verl-agent has no env={config.env.name}; allowed: {', '.join(ENVIRONMENTS)}"
        )

    # The fork does not read these settings; the run would record another value as if it had taken
    # effect.
    for key, configured, of_fork in _fixed_settings(config, trainer):
        if configured != of_fork:
            raise ConfigError(
                f"{key}={configured}: verl-agent knows {of_fork} only; trainer=local and verl have "
                "more"
            )
    return trainer


def _fixed_settings(config: RunConfig, trainer: VerlTrainer) -> Iterator[tuple[str, Any, Any]]:
    """Settings with a single value in the fork: key, value of the run, value in the fork."""
    estimator = config.trained.estimator
    yield "trainer.verl.engine", trainer.verl.engine, "vllm"
    yield "env.prompt", config.env.prompt, "verl_agent"
    yield (
        "trainer.skip_updates_without_advantage",
        trainer.skip_updates_without_advantage,
        False,
    )
    if config.env.name == "webshop":
        yield "env.setting", config.env.setting, "stack"
    if isinstance(estimator, GroupSettings) and estimator.name in OF_THE_FORK:
        yield "method.estimator.statistics", estimator.statistics, "rows"
    if isinstance(estimator, GigpoSettings):
        yield "method.estimator.singletons", estimator.singletons, "zero"
        yield "method.estimator.state_key", estimator.state_key, "anchor"


def _data(config: RunConfig) -> Iterator[Setting]:
    """Tasks, episodes and environment."""
    trainer = config.trainer
    data = Path(DATA).expanduser()
    yield Setting("data.train_files", f"{data}/train.parquet", "verl-agent's prepare.py")
    yield Setting("data.val_files", f"{data}/test.parquet", "verl-agent's prepare.py")
    yield Setting(
        "data.train_batch_size", prompts_per_step(config), "trainer.groups; method.sampling"
    )
    yield Setting("data.val_batch_size", VALIDATION_EPISODES, "verl-agent's script")
    yield Setting("env.rollout.n", siblings(config), "trainer.group_size; method.sampling")
    yield Setting("data.max_prompt_length", trainer.max_prompt_tokens, "trainer.max_prompt_tokens")
    yield Setting(
        "data.max_response_length", trainer.max_response_tokens, "trainer.max_response_tokens"
    )
    yield Setting("data.filter_overlong_prompts", True, "verl-agent's script")
    yield Setting("data.truncation", "error", "verl-agent's script")
    yield Setting("data.return_raw_chat", True, "verl-agent's script")
    yield Setting("env.env_name", ENVIRONMENTS[config.env.name], "env")
    yield Setting("env.max_steps", config.env.horizon, "env.horizon")
    yield Setting("env.history_length", config.env.history_length, "env.history_length")
    yield Setting("env.seed", config.seed, "seed")


def _policy(config: RunConfig, trainer: VerlTrainer) -> Iterator[Setting]:
    """Model, loss, reference and rollout engine."""
    assert isinstance(config.model, HuggingFaceModel)  # noqa: S101 (checked before)
    actor = "actor_rollout_ref.actor"
    rollout = "actor_rollout_ref.rollout"
    verl = trainer.verl
    loss = trainer.loss
    micro_rows, micro_source = micro_batch(config, trainer)

    # Model.
    yield Setting("actor_rollout_ref.model.path", config.model.path, "model")
    yield Setting("actor_rollout_ref.model.use_remove_padding", True, "verl-agent's script")
    yield Setting(
        "actor_rollout_ref.model.enable_gradient_checkpointing",
        verl.gradient_checkpointing,
        "trainer.verl.gradient_checkpointing",
    )

    # Optimizer, batches and loss.
    yield from _optimizer(actor, trainer)
    yield Setting(
        f"{actor}.ppo_mini_batch_size",
        trainer.mini_batch_rows,
        "trainer.mini_batch_rows; counts rows",
    )
    yield Setting(f"{actor}.ppo_micro_batch_size_per_gpu", micro_rows, micro_source)
    yield Setting(f"{actor}.clip_ratio_low", loss.clip_low, "trainer.loss.clip_low")
    yield Setting(f"{actor}.clip_ratio_high", loss.clip_high, "method.clip_high")
    yield Setting(f"{actor}.clip_ratio_c", loss.dual_clip, "trainer.loss.dual_clip")
    yield Setting(f"{actor}.ppo_epochs", trainer.epochs, "trainer.epochs")
    yield Setting(f"{actor}.use_kl_loss", loss.kl_coefficient > 0, "trainer.loss.kl_coefficient")
    yield Setting(f"{actor}.kl_loss_coef", loss.kl_coefficient, "trainer.loss.kl_coefficient")
    yield Setting(f"{actor}.kl_loss_type", "low_var_kl", "the k3 estimate")
    yield Setting(
        f"{actor}.entropy_coeff", loss.entropy_coefficient, "trainer.loss.entropy_coefficient"
    )

    # Reference policy.
    yield Setting(
        "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu", micro_rows, micro_source
    )
    yield Setting(
        "actor_rollout_ref.ref.fsdp_config.param_offload",
        verl.offload_reference,
        "trainer.verl.offload_reference",
    )

    # Rollout engine.
    yield Setting(f"{rollout}.name", "vllm", "the paper's appendix A.2")
    yield Setting(f"{rollout}.temperature", trainer.temperature, "trainer.temperature")
    yield Setting(f"{rollout}.log_prob_micro_batch_size_per_gpu", micro_rows, micro_source)
    yield Setting(
        f"{rollout}.tensor_model_parallel_size",
        verl.tensor_parallel,
        "trainer.verl.tensor_parallel",
    )
    yield Setting(
        f"{rollout}.gpu_memory_utilization", verl.engine_memory, "trainer.verl.engine_memory"
    )
    yield Setting(
        f"{rollout}.enable_chunked_prefill", verl.chunked_prefill, "trainer.verl.chunked_prefill"
    )
    yield Setting(f"{rollout}.enforce_eager", False, "verl-agent's script")
    yield Setting(f"{rollout}.free_cache_engine", verl.free_cache, "trainer.verl.free_cache")
    yield Setting(
        f"{rollout}.val_kwargs.temperature",
        trainer.validation.temperature,
        "trainer.validation.temperature",
    )
    yield Setting(
        f"{rollout}.val_kwargs.do_sample",
        trainer.validation.temperature > 0,
        "trainer.validation.temperature",
    )


def _optimizer(actor: str, trainer: VerlTrainer) -> Iterator[Setting]:
    """AdamW and gradient clip of the policy."""
    optimizer = trainer.optimizer
    yield Setting(f"{actor}.optim.lr", optimizer.learning_rate, "trainer.optimizer.learning_rate")
    yield Setting(
        f"{actor}.optim.lr_warmup_steps",
        optimizer.warmup_steps,
        "trainer.optimizer.warmup_steps; its first step learns at a rate of 0",
    )
    yield Setting(
        f"{actor}.optim.weight_decay", optimizer.weight_decay, "trainer.optimizer.weight_decay"
    )
    yield Setting(f"{actor}.grad_clip", optimizer.gradient_clip, "trainer.optimizer.gradient_clip")


def _method(config: RunConfig) -> Iterator[Setting]:
    """Estimator, penalty and sampling.

    An estimator that the fork lacks is passed to it as ``grpo``, which needs no critic; the hooks
    then replace the advantages.
    """
    estimator = config.trained.estimator
    sampling = config.trained.sampling
    actor = "actor_rollout_ref.actor"
    yield Setting(
        "algorithm.adv_estimator",
        estimator.name if estimator.name in OF_THE_FORK else "grpo",
        "method.estimator; grpo for one that the fork lacks, whose advantages the hooks replace",
    )
    yield Setting("algorithm.gamma", estimator.gamma, "method.estimator.gamma")
    yield Setting("algorithm.use_kl_in_reward", False, "verl-agent's script")
    yield Setting(f"{actor}.use_invalid_action_penalty", True, "verl-agent's script")
    yield Setting(
        f"{actor}.invalid_action_penalty_coef",
        estimator.invalid_penalty,
        "method.estimator.invalid_penalty",
    )

    # Settings of the fork's own estimators; ours read theirs from the run's configuration.
    if isinstance(estimator, GrpoSettings):
        by_std = estimator.normalisation == "mean_std_norm"
        yield Setting("algorithm.norm_adv_by_std_in_grpo", by_std, "method.estimator.normalisation")
    if isinstance(estimator, GigpoSettings):
        yield Setting("algorithm.gigpo.step_advantage_w", estimator.omega, "method.estimator.omega")
        yield Setting(
            "algorithm.gigpo.mode", estimator.normalisation, "method.estimator.normalisation"
        )
        similar = estimator.anchors == "similar"
        yield Setting("algorithm.gigpo.enable_similarity", similar, "method.estimator.anchors")
        yield Setting(
            "algorithm.gigpo.similarity_thresh",
            estimator.anchor_similarity,
            "method.estimator.anchor_similarity",
        )
    if sampling is not None and sampling.rule == "dynamic":
        yield Setting("algorithm.filter_groups.enable", True, "method.sampling")
        yield Setting(
            "algorithm.filter_groups.max_num_gen_batches", sampling.rounds, "method.sampling.rounds"
        )


def _critic(config: RunConfig, trainer: VerlTrainer) -> Iterator[Setting]:
    """The critic's model, optimizer and batches; nothing without a critic."""
    estimator = config.trained.estimator
    if not isinstance(estimator, GaeSettings):
        return
    assert isinstance(config.model, HuggingFaceModel)  # noqa: S101 (checked before)

    # The critic's own rate and clip; weight decay and gradient clip are the policy's, as with
    # trainer=local.
    critic = estimator.critic
    yield Setting("algorithm.lam", estimator.gae_lambda, "method.estimator.gae_lambda")
    yield Setting("critic.optim.lr", critic.learning_rate, "method.estimator.critic.learning_rate")
    yield Setting(
        "critic.optim.weight_decay",
        trainer.optimizer.weight_decay,
        "trainer.optimizer.weight_decay",
    )
    yield Setting(
        "critic.grad_clip", trainer.optimizer.gradient_clip, "trainer.optimizer.gradient_clip"
    )
    yield Setting("critic.cliprange_value", critic.value_clip, "method.estimator.critic.value_clip")
    yield Setting("critic.model.path", config.model.path, "model")
    yield Setting("critic.model.use_remove_padding", True, "verl-agent's script")
    yield Setting("critic.model.enable_gradient_checkpointing", True, "verl-agent's script")
    micro_rows, micro_source = micro_batch(config, trainer)
    yield Setting("critic.ppo_micro_batch_size_per_gpu", micro_rows, micro_source)


def _run(config: RunConfig, trainer: VerlTrainer) -> Iterator[Setting]:
    """Machine, schedule and names."""
    yield Setting(
        "trainer.balance_batch",
        True,
        "verl-agent's default; it produces the paper's processing order",
    )
    yield Setting("trainer.critic_warmup", 0, "verl-agent's script")
    yield Setting("trainer.n_gpus_per_node", trainer.verl.gpus, "trainer.verl.gpus")
    yield Setting("trainer.nnodes", trainer.verl.nodes, "trainer.verl.nodes")
    yield Setting(
        "trainer.total_epochs", trainer.steps, "trainer.steps: an epoch of its data is one step"
    )
    yield Setting("trainer.test_freq", trainer.validation.every, "trainer.validation.every")
    yield Setting("trainer.save_freq", trainer.checkpoint_every, "trainer.checkpoint_every")
    yield Setting("trainer.val_before_train", True, "verl-agent's script")
    yield Setting("trainer.project_name", config.wandb.project, "wandb.project")
    yield Setting(
        "trainer.experiment_name",
        f"{config.env.name}-{config.model.name}-{config.method.name}",
        "the run",
    )
