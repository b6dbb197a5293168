"""What we say to verl and to verl-agent, its fork: values of their configuration, each with where it comes from."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from scpo.errors import ConfigError
from scpo.schema import RunConfig, VerlTrainer

CPUS_A_GPU = 3  # verl's placement groups reserve three of Ray's CPUs with each GPU
STORAGE_UNITS = 2  # of TransferQueue, each with a CPU of its own; verl's default is 8
CONTROLLER_CPUS = 1


def cores_needed(trainer: VerlTrainer) -> int:
    """Of a node: with fewer, Ray places TransferQueue or the workers never, and verl waits for ever."""
    return CONTROLLER_CPUS + STORAGE_UNITS + CPUS_A_GPU * trainer.verl.gpus


@dataclass(frozen=True)
class Setting:
    """One key of the trainer's Hydra configuration; ``added``: it has no such key of its own."""

    key: str
    value: Any
    source: str
    added: bool = False

    @property
    def override(self) -> str:
        """As the trainer's command line takes it."""
        return f"{'+' if self.added else ''}{self.key}={_literal(self.value)}"


def _literal(value: Any) -> str:
    """A value in Hydra's grammar; strings are quoted, for paths hold what it would read as syntax."""
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, list):
        return f"[{','.join(map(_literal, value))}]"
    return json.dumps(value)


def prompts_per_step(config: RunConfig) -> int:
    """Tasks of one training step."""
    return config.trainer.groups * config.trainer.group_size // siblings(config)


def siblings(config: RunConfig) -> int:
    """Episodes of each task: verl's ``rollout.n``."""
    sampling = config.trained.sampling
    return 1 if sampling is not None and sampling.rule == "independent" else config.trainer.group_size


def micro_batch(trainer: VerlTrainer) -> tuple[int, str]:
    """Rows of a micro-batch on one GPU, and the source: as many as the configuration says that divide a rank's share.

    What is learned does not depend on it.

    Raises:
        ConfigError: The ranks cannot share a mini-batch evenly.
    """
    ranks = trainer.verl.gpus * trainer.verl.nodes
    share, rest = divmod(trainer.mini_batch_rows, ranks)
    if rest:
        raise ConfigError(
            f"trainer.mini_batch_rows={trainer.mini_batch_rows} cannot be shared by {ranks} GPUs (trainer.verl.gpus x "
            f"nodes) evenly; allowed: multiples of {ranks}"
        )
    return math.gcd(share, trainer.micro_batch_rows), "trainer.micro_batch_rows, dividing a rank's share"
