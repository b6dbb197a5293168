"""Overrides of verl's configuration for a run, each with the source of its value."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from scpo.advantages.gae import GaeSettings
from scpo.errors import ConfigError
from scpo.memory import engine_memory, micro_batch
from scpo.schema.method import required
from scpo.schema.run import RunConfig
from scpo.schema.trainer import VerlTrainer
from scpo.trainers.verl import update_guard
from scpo.verl_config import Setting, engine_seed, prompts_per_step, siblings

MODE = "scpo"
"""Name of the project's trainer and agent loop in verl's registries."""
AGENT_LOOPS = Path(__file__).with_name("agent_loops.yaml")
REPLAY = Path(__file__).with_name("replay.py")


@dataclass(frozen=True)
class Files:
    """Files that the launcher prepared: policy, data, run folder.

    Attributes:
        model: Folder or hub name of the policy.
        train: File with the run's schedule, one row for each prompt.
        validation: File with the validation panels and the probe.
        run_folder: The run folder.
        resume_from: Folder of a checkpoint of verl, ``global_step_<n>``; None: start from step 0.
        tokenizer: Folder of the tokenizer; None: that of the model.
    """

    model: str
    train: Path
    validation: Path
    run_folder: Path
    resume_from: Path | None = None
    tokenizer: str | None = None


SDPA_ROWS = 8
"""Most rows of a micro-batch without flash-attn, where they share a mask of tokens x tokens."""


def settings(
    config: RunConfig, files: Files, attention: Literal["flash", "sdpa"] | None = "flash"
) -> list[Setting]:
    """All settings that differ from verl's defaults, in the order of ``verl_settings.yaml``.

    Args:
        config: The run's configuration.
        files: What the launcher prepared.
        attention: Attention kernel of the update on this machine; None on a CPU, where
            ``cpu_settings`` sets it.

    Raises:
        ConfigError: The size of the mini-batch cannot be expressed in verl's unit.
    """
    trainer = _verl(config)
    # Changed in a copy, because the run's id is made from its configuration.
    if attention == "sdpa":
        trainer = trainer.model_copy(
            update={"micro_batch_rows": min(SDPA_ROWS, trainer.micro_batch_rows)}
        )
    return [
        *_data(config, files),
        *_policy(config, trainer, files),
        *(_without_flash(config) if attention == "sdpa" else ()),
        *_loss(trainer),
        *_optimizer(config, trainer),
        *(_critic(config, trainer, files) if "value" in required(config.method) else ()),
        *_rollout(config, trainer, files),
        *_run(config, trainer, files),
    ]


def _verl(config: RunConfig) -> VerlTrainer:
    if not isinstance(config.trainer, VerlTrainer) or config.trainer.name != "verl":
        raise ConfigError(
            f"trainer={config.trainer.name} is not verl: compose the run with trainer=verl"
        )
    return config.trainer


def _data(config: RunConfig, files: Files) -> Iterator[Setting]:
    """Data files, batch size and lengths."""
    yield Setting(
        "data.train_files",
        str(files.train),
        "the schedule of the run, made from the training panel",
    )
    yield Setting("data.val_files", str(files.validation), "the validation panels")
    yield Setting(
        "data.train_batch_size", prompts_per_step(config), "trainer.groups; method.sampling"
    )
    yield Setting("data.shuffle", False, "the schedule is in order, as with trainer=local")
    yield Setting(
        "data.max_prompt_length", config.trainer.max_prompt_tokens, "trainer.max_prompt_tokens"
    )
    yield Setting(
        "data.max_response_length",
        config.trainer.max_response_tokens,
        "trainer.max_response_tokens",
    )
    yield Setting(
        "data.dataloader_num_workers",
        0,
        "the data are task names; prompts are made in the agent loop",
    )


def _policy(config: RunConfig, trainer: VerlTrainer, files: Files) -> Iterator[Setting]:
    """The policy, its update's batches and its sharding, and the reference policy."""
    model, actor, ref = (f"actor_rollout_ref.{part}" for part in ("model", "actor", "ref"))
    yield Setting(f"{model}.path", files.model, "model")

    # With engine=hf, `cpu_settings` sets this key to another module, which imports the guard.
    if trainer.verl.engine != "hf":
        yield Setting(
            f"{model}.external_lib", update_guard.MODULE, "trainer.skip_updates_without_advantage"
        )
    if files.tokenizer:
        yield Setting(f"{model}.tokenizer_path", files.tokenizer, "model: its word-level tokenizer")
    yield Setting(
        f"{model}.enable_gradient_checkpointing",
        trainer.verl.gradient_checkpointing,
        "trainer.verl",
    )
    yield Setting(f"{actor}.strategy", "fsdp2", "FSDP2; runs without a GPU too")
    yield Setting(
        f"{actor}.ppo_mini_batch_size", _mini_batch(config), "trainer.mini_batch_rows / rollout.n"
    )
    yield Setting(f"{actor}.ppo_micro_batch_size_per_gpu", *micro_batch(config, trainer))
    yield Setting(f"{actor}.ppo_epochs", trainer.epochs, "trainer.epochs")
    yield Setting(f"{ref}.log_prob_micro_batch_size_per_gpu", *micro_batch(config, trainer))
    yield Setting(
        f"{ref}.fsdp_config.param_offload",
        trainer.verl.offload_reference,
        "trainer.verl.offload_reference",
    )
    for part in (actor, ref):
        # The default is false in verl's YAML, but true in its dataclass. If it is true, each rank
        # keeps unsharded gradients: 28 GiB at 7B.
        key = f"{part}.fsdp_config.use_no_sync_for_gradient_accumulation"
        yield Setting(key, False, "gradients are reduced after every micro-batch")

    if trainer.verl.engine != "hf":
        # Not with engine=hf: on the CPU everything is float32.
        yield Setting(
            f"{ref}.fsdp_config.model_dtype",
            "bf16",
            "verl-agent; float32 takes twice the host's memory",
        )
    if trainer.verl.offload_training:
        for what in ("param_offload", "optimizer_offload"):
            yield Setting(f"{actor}.fsdp_config.{what}", True, "trainer.verl.offload_training")


def _without_flash(config: RunConfig) -> Iterator[Setting]:
    """Torch's attention, and log-probabilities in chunks; verl would loop over the tokens."""
    parts = ["actor_rollout_ref.model"]
    if "value" in required(config.method):
        parts.append("critic.model")
    for part in parts:
        yield Setting(
            f"{part}.override_config.attn_implementation",
            "sdpa",
            "trainer.verl.attention",
            added=True,
        )
    yield Setting(
        "actor_rollout_ref.model.use_fused_kernels", True, "trainer.verl.attention: no flash-attn"
    )
    yield Setting("actor_rollout_ref.model.fused_kernel_options.impl_backend", "torch", "as above")


def _mini_batch(config: RunConfig) -> int:
    """``mini_batch_rows`` in verl's unit, tasks, which verl multiplies by ``rollout.n``.

    Raises:
        ConfigError: It is not a multiple of the number of siblings.
    """
    rows = config.trainer.mini_batch_rows
    n = siblings(config)
    if rows % n:
        raise ConfigError(
            f"trainer.mini_batch_rows={rows} is no multiple of {n}, the siblings of a task: verl "
            f"counts mini-batches in tasks and multiplies; allowed: {rows // n * n or n}, "
            f"{(rows // n + 1) * n}, ..."
        )
    return rows // n


def _loss(trainer: VerlTrainer) -> Iterator[Setting]:
    """The clipped loss, its KL term and entropy bonus."""
    actor = "actor_rollout_ref.actor"
    loss = trainer.loss
    yield Setting(f"{actor}.clip_ratio_low", loss.clip_low, "trainer.loss.clip_low")
    yield Setting(
        f"{actor}.clip_ratio_high", loss.clip_high, "trainer.loss.clip_high; method.clip_high"
    )
    yield Setting(f"{actor}.clip_ratio_c", loss.dual_clip, "trainer.loss.dual_clip")
    yield Setting(f"{actor}.use_kl_loss", loss.kl_coefficient > 0, "trainer.loss.kl_coefficient")
    yield Setting(f"{actor}.kl_loss_coef", loss.kl_coefficient, "trainer.loss.kl_coefficient")
    yield Setting(f"{actor}.kl_loss_type", "low_var_kl", "the k3 estimate")
    yield Setting(
        f"{actor}.entropy_coeff", loss.entropy_coefficient, "trainer.loss.entropy_coefficient"
    )
    yield Setting(
        f"{actor}.loss_agg_mode", "token-mean", "the mean over the mini-batch's response tokens"
    )
    yield Setting("algorithm.use_kl_in_reward", False, "the KL term is in the loss")


def _optimizer(config: RunConfig, trainer: VerlTrainer) -> Iterator[Setting]:
    """The policy's optimizer, and whether there is a critic."""
    actor = "actor_rollout_ref.actor"
    optimizer = trainer.optimizer
    yield Setting(f"{actor}.optim.lr", optimizer.learning_rate, "trainer.optimizer.learning_rate")
    yield Setting(
        f"{actor}.optim.lr_warmup_steps", optimizer.warmup_steps, "trainer.optimizer.warmup_steps"
    )
    yield Setting(
        f"{actor}.optim.zero_indexed_step", False, "else step 1 of a warm-up learns at a rate of 0"
    )
    yield Setting(
        f"{actor}.optim.weight_decay", optimizer.weight_decay, "trainer.optimizer.weight_decay"
    )
    yield Setting(
        f"{actor}.optim.clip_grad", optimizer.gradient_clip, "trainer.optimizer.gradient_clip"
    )
    # verl creates a critic only for gae; neither of its two estimators is called.
    estimator = "gae" if "value" in required(config.method) else "grpo"
    yield Setting(
        "algorithm.adv_estimator",
        estimator,
        "says whether there is a critic; scpo.credit.assign estimates",
    )


def _critic(config: RunConfig, trainer: VerlTrainer, files: Files) -> Iterator[Setting]:
    """The critic's model, optimizer and batches."""
    # Only GAE requires values, and so a critic.
    assert isinstance(config.trained.estimator, GaeSettings)  # noqa: S101
    critic = config.trained.estimator.critic
    yield Setting("critic.model.path", files.model, "model: the policy's base with a scalar head")
    if files.tokenizer:
        yield Setting("critic.model.tokenizer_path", files.tokenizer, "as the policy")
    yield Setting("critic.strategy", "fsdp2", "as the policy")
    yield Setting("critic.optim.lr", critic.learning_rate, "method.estimator.critic.learning_rate")
    yield Setting(
        "critic.optim.weight_decay",
        trainer.optimizer.weight_decay,
        "trainer.optimizer.weight_decay",
    )
    yield Setting("critic.cliprange_value", critic.value_clip, "method.estimator.critic.value_clip")
    yield Setting(
        "critic.fsdp.use_no_sync_for_gradient_accumulation",
        False,
        "gradients are reduced after every micro-batch",
    )
    yield Setting("critic.ppo_micro_batch_size_per_gpu", *micro_batch(config, trainer))


def _rollout(config: RunConfig, trainer: VerlTrainer, files: Files) -> Iterator[Setting]:
    """The rollout engine, its sampling, and the agent loop."""
    rollout = "actor_rollout_ref.rollout"
    verl = trainer.verl
    yield Setting(f"{rollout}.name", verl.engine, "trainer.verl.engine")
    if files.tokenizer and verl.engine == "vllm":
        yield Setting(
            f"{rollout}.engine_kwargs.vllm.tokenizer", files.tokenizer, "as the policy", added=True
        )
    yield Setting(f"{rollout}.n", siblings(config), "trainer.group_size; method.sampling")
    yield Setting(f"{rollout}.temperature", trainer.temperature, "trainer.temperature")
    yield Setting(
        f"{rollout}.val_kwargs.temperature",
        trainer.validation.temperature,
        "trainer.validation.temperature",
    )
    yield Setting(f"{rollout}.val_kwargs.do_sample", trainer.validation.temperature > 0, "as above")
    yield Setting(f"{rollout}.val_kwargs.n", 1, "repeats are rows of the validation file")
    yield Setting(
        f"{rollout}.calculate_log_probs",
        True,
        "logs how far rollout and update probabilities are apart",
    )
    yield Setting(
        f"{rollout}.tensor_model_parallel_size",
        verl.tensor_parallel,
        "trainer.verl.tensor_parallel",
    )
    yield Setting(f"{rollout}.gpu_memory_utilization", *engine_memory(config, trainer))
    yield Setting(
        f"{rollout}.seed", engine_seed(config.seed), "a hash of seed; each engine adds its number"
    )
    yield Setting(
        f"{rollout}.enable_chunked_prefill", verl.chunked_prefill, "trainer.verl.chunked_prefill"
    )
    yield Setting(f"{rollout}.free_cache_engine", verl.free_cache, "trainer.verl.free_cache")
    yield Setting(f"{rollout}.log_prob_micro_batch_size_per_gpu", *micro_batch(config, trainer))
    # vLLM's default is the context length of the model, 32,768 tokens with Qwen2.5.
    length = trainer.max_prompt_tokens + trainer.max_response_tokens
    yield Setting(
        f"{rollout}.max_model_len",
        length,
        "trainer.max_prompt_tokens + trainer.max_response_tokens",
    )
    yield Setting(f"{rollout}.agent.num_workers", verl.agent_workers, "trainer.verl.agent_workers")
    yield Setting(f"{rollout}.agent.default_agent_loop", MODE, "our agent loop")
    yield Setting(f"{rollout}.agent.agent_loop_config_path", str(AGENT_LOOPS), "our agent loop")


def _run(config: RunConfig, trainer: VerlTrainer, files: Files) -> Iterator[Setting]:
    """Length of the run, validation, checkpoints, and the run's records in place of verl's."""
    yield Setting("trainer.v1.trainer_mode", MODE, "our trainer")
    yield Setting(
        "trainer.v1.sampler.custom_sampler.path", str(REPLAY), "stops at the first lost episode"
    )
    yield Setting("trainer.v1.sampler.custom_sampler.name", "WatchedReplayBuffer", "as above")
    yield Setting("trainer.n_gpus_per_node", trainer.verl.gpus, "trainer.verl.gpus")
    yield Setting("trainer.nnodes", trainer.verl.nodes, "trainer.verl.nodes")
    yield Setting("trainer.total_epochs", 1, "the schedule is read once")
    yield Setting("trainer.total_training_steps", trainer.steps, "trainer.steps")
    yield Setting("trainer.test_freq", trainer.validation.every, "trainer.validation.every")
    yield Setting(
        "trainer.val_before_train", files.resume_from is None, "step 0; a resumed run has it"
    )
    yield Setting("trainer.save_freq", trainer.checkpoint_every, "trainer.checkpoint_every")
    yield Setting(
        "trainer.resume_mode",
        "resume_path" if files.resume_from else "disable",
        "our own record of checkpoints",
    )
    yield Setting(
        "trainer.resume_from_path", files.resume_from and str(files.resume_from), "as above"
    )
    yield Setting("trainer.project_name", config.wandb.project, "wandb.project")
    yield Setting("trainer.experiment_name", files.run_folder.name, "the run's id")
    yield Setting("trainer.logger", ["console"], "our records and W&B mirror stand in for verl's")
    yield Setting(
        "reward.num_workers", 1, "the environment gives the reward; nothing is asked of this worker"
    )
    yield Setting("scpo.run_folder", str(files.run_folder), "the run's records", added=True)
