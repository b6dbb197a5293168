"""Supervised start of a choice policy on demonstrations, cached for all runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from scpo.envs.base import DemonstratingEnvironment, Demonstration
from scpo.envs.projection import CLOSE_TAG
from scpo.errors import ConfigError, RecordError
from scpo.policies.choice.policy import ChoicePolicy, ScoreNet
from scpo.policies.choice.readers import OFFER
from scpo.policies.kept import made_once, start_key, stop_if_asked

if TYPE_CHECKING:
    from scpo.schema.env import EnvConfig
    from scpo.schema.model import ChoiceModel, Imitation

logger = logging.getLogger(__name__)

# Fields of the environment's configuration that demonstrations depend on. Those of a tiny model
# also depend on ``history_length``, which prompts with a memory do not use.
SHOWN = {"name", "games", "catalogue", "generated", "goals", "prompt"}

# Version of the cached weights: raise it when a change to the features, to the code below or to the
# demonstrations gives other weights.
RECIPE = 2
WEIGHTS = "model.safetensors"


def imitating_policy(
    config: ChoiceModel,
    env: EnvConfig,
    environment: DemonstratingEnvironment,
    cache_dir: Path,
    should_stop: Callable[[], bool],
) -> ChoicePolicy:
    """Return the policy after its supervised start, from the cache or built now.

    Args:
        config: Shape of the network and settings of the imitation.
        env: The environment's settings, for the key of the cache.
        environment: Gives the demonstrations.
        cache_dir: The machine's cache, shared by all runs.
        should_stop: Called between updates, and while another run builds the policy; True stops.

    Raises:
        KeyboardInterrupt: ``should_stop`` returned True before the policy was built.
        RecordError: The cached policy cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    def make(folder: Path) -> None:
        policy = ChoicePolicy(ScoreNet(config), config)
        demonstrations = environment.demonstrations(config.imitation)
        loss = imitate(policy, demonstrations, config.imitation, should_stop)
        logger.info(
            "imitation of %d demonstrations: loss %.3f nats a command", len(demonstrations), loss
        )
        policy.save(folder)

    folder = made_once(
        cache_dir / "imitation" / start_key(RECIPE, config, env, SHOWN, environment),
        make,
        should_stop,
    )
    # The run that has just built the start also reads it back, so that all runs begin alike.
    model = ScoreNet(config)
    try:
        load_model(model, folder / WEIGHTS)
    except (OSError, RuntimeError, ValueError, SafetensorError) as error:
        raise RecordError(
            f"the cached imitation start {folder} cannot be read ({error}); delete that folder"
        ) from error

    return ChoicePolicy(model, config)


def imitate(
    policy: ChoicePolicy,
    demonstrations: Sequence[Demonstration],
    config: Imitation,
    should_stop: Callable[[], bool] = lambda: False,
) -> float:
    """Train ``policy`` in place: cross-entropy of the demonstrated commands.

    ``config.steps`` updates of AdamW, each on a batch drawn without replacement. Their number is
    small on purpose: it sets the success rate at which reinforcement learning starts
    (REPRODUCTION.md, "Study scale").

    Returns:
        Loss in nats per command, mean over the updates.

    Raises:
        ConfigError: A demonstration gives a command that its prompt does not list.
    """
    texts: list[str] = []
    choices: list[int] = []
    for demonstration in demonstrations:
        for prompt, response in zip(demonstration.prompts, demonstration.responses, strict=True):
            texts.append(prompt)
            choices.append(_choice(prompt, response))
    prompts = policy.encode(texts)
    optimizer = torch.optim.AdamW(
        policy.model.parameters(), lr=config.learning_rate, weight_decay=0.0
    )
    rng = np.random.default_rng(config.seed)
    losses = []
    policy.model.train()
    for _ in range(config.steps):
        stop_if_asked(should_stop)
        drawn = rng.choice(len(texts), min(config.batch_size, len(texts)), replace=False)
        statistics, _ = policy.statistics(
            [prompts[row] for row in drawn], [(choices[row],) for row in drawn], 1.0
        )
        loss = -statistics.logprob_NL.mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))

    return float(np.mean(losses))


def _choice(prompt: str, response: str) -> int:
    """Index of the demonstrated command among those that the prompt lists.

    Raises:
        ConfigError: The prompt does not list it.
    """
    command = response.removesuffix(CLOSE_TAG).strip()
    listed = [line.removeprefix(OFFER) for line in prompt.split("\n") if line.startswith(OFFER)]
    if command not in listed:
        raise ConfigError(
            f"a demonstration gives the command {command!r}, which its prompt does not list: "
            f"{listed}"
        )
    return listed.index(command)
