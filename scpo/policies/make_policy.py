"""Factory of the configured policy, for training and for evaluation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from scpo.envs.base import DemonstratingEnvironment, Environment
from scpo.errors import ConfigError
from scpo.memory import BATCH_TOKENS, shortage
from scpo.policies.base import TrainedPolicy
from scpo.policies.choice.imitation import imitating_policy
from scpo.policies.language_policy import LocalPolicy
from scpo.policies.model import load_huggingface, memory_gib, pick_device
from scpo.policies.warm_start import warm_started

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

    from scpo.schema.model import HuggingFaceModel
    from scpo.schema.run import RunConfig


def make_policy(
    config: RunConfig, environment: Environment, should_stop: Callable[[], bool] = lambda: False
) -> TrainedPolicy:
    """Warm-start a small policy, or load a Hugging Face model.

    Args:
        config: The run.
        environment: Gives the demonstrations of a warm start; not used for a Hugging Face model.
        should_stop: Called between the updates of a warm start, which takes minutes; True ends it.

    Raises:
        KeyboardInterrupt: ``should_stop`` returned True.
        ConfigError: The model cannot read this environment's prompts, or cannot be loaded.
    """
    if config.model.kind == "huggingface":
        return _huggingface_policy(config, config.model)
    if config.model.kind == "api":
        raise ConfigError(
            f"model={config.model.name} is behind an API: it has no weights to load here"
        )
    if config.model.kind == "tiny" and config.env.prompt != "compact":
        raise ConfigError(
            f"model={config.model.name} reads only env.prompt=compact, got "
            f"env.prompt={config.env.prompt}: its tokenizer and warm start are made for that prompt"
        )

    start = (
        config.env,
        _demonstrating(config, environment),
        Path(config.machine.cache_dir),
        should_stop,
    )
    # Runs of a choice policy begin with one of several starts, selected by their seed. Runs of a
    # tiny model share one start, because it takes minutes to make.
    if config.model.kind == "choice":
        policy = imitating_policy(config.model.started(config.seed), *start)
        return policy.to(pick_device(config.machine.device))
    return _local_policy(config, *warm_started(config.model, *start))


def _huggingface_policy(config: RunConfig, settings: HuggingFaceModel) -> LocalPolicy:
    """Load a Hugging Face model, if the memory that the run is estimated to need is available.

    Without this check the kernel or CUDA would end the process with a less helpful message.

    Raises:
        ConfigError: The memory is too small, or the model cannot be loaded.
    """
    device = pick_device(config.machine.device)
    trained = config.method.kind == "trained"
    if reason := shortage(config, memory_gib(device)):
        raise ConfigError(str(reason))
    policy = _local_policy(config, *load_huggingface(settings, trained=trained))
    # The estimate of `scpo.memory` assumes bounded micro-batches, recomputed activations, and
    # float32 weights under autocast.
    if trained:
        policy.batch_tokens = BATCH_TOKENS
        policy.recomputes = True
        policy.autocast_dtype = torch.bfloat16 if settings.dtype == "bfloat16" else None
    return policy


def _local_policy(
    config: RunConfig, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> LocalPolicy:
    """Policy of a loaded model, on the configured device and with the trainer's limits."""
    return LocalPolicy(
        # transformers decorates to(), which hides its signature.
        model.to(pick_device(config.machine.device)),  # type: ignore[arg-type]
        tokenizer,
        max_prompt_tokens=config.trainer.max_prompt_tokens,
        max_response_tokens=config.trainer.max_response_tokens,
        batch_rows=config.trainer.rollout_batch,
    )


def _demonstrating(config: RunConfig, environment: Environment) -> DemonstratingEnvironment:
    """The environment, checked to have demonstrations.

    Raises:
        ConfigError: The environment has no demonstrations.
    """
    if not isinstance(environment, DemonstratingEnvironment):
        raise ConfigError(
            f"env={config.env.name} has no demonstrations to warm-start model={config.model.name} "
            "on"
        )
    return environment
