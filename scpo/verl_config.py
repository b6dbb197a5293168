"""Settings shared by verl and its fork verl-agent: configuration values and their sources."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scpo.schema.run import RunConfig
from scpo.schema.trainer import VerlTrainer

# verl's placement groups reserve three of Ray's CPUs with each GPU.
CPUS_A_GPU = 3

# Storage units of TransferQueue, each with a CPU of its own; verl's default is 8.
STORAGE_UNITS = 2
CONTROLLER_CPUS = 1


def cores_needed(trainer: VerlTrainer) -> int:
    """CPU cores per node: with fewer, Ray never places all actors and verl waits forever.

    These are Ray's logical CPUs, that is reservations; they do not show how busy a core is.
    """
    return CONTROLLER_CPUS + STORAGE_UNITS + CPUS_A_GPU * trainer.verl.gpus


SOCKET_PATH_BYTES = 107
"""Longest path of a Unix socket (Linux: sun_path holds 108 bytes with the final zero)."""

# Longest path that Ray appends to its temporary folder, with its date and a process id of 7 digits.
RAY_SOCKET = "/session_2026-11-23_22-16-43_123456_1234567/sockets/plasma_store"


def ray_temp_folder(run_folder: Path) -> Path:
    """Temporary folder of the Ray that a run starts: one for each user and run, with a short path.

    It lies in the node's temporary folder, or in /tmp where that path is too long for Ray's sockets
    (some Slurm clusters set such a TMPDIR). Ray's default, /tmp/ray, is shared by all users of a
    node: a run would join the cluster that is recorded there.
    """
    # A hash of the run folder: two runs of one user on a node never meet, and the path stays short.
    name = hashlib.sha256(str(run_folder.resolve()).encode()).hexdigest()[:8]
    return temp_root() / f"ray-{os.getuid()}-{name}"


def temp_root() -> Path:
    """The node's temporary folder, or /tmp where sockets below it would have too long a path."""
    root = Path(tempfile.gettempdir())
    return root if _sockets_fit(root) else Path("/tmp")  # noqa: S108 (Ray's folder is private)


def _sockets_fit(root: Path) -> bool:
    longest = f"{root}/ray-{os.getuid()}-01234567{RAY_SOCKET}"
    return len(os.fsencode(longest)) <= SOCKET_PATH_BYTES


def engine_seed(seed: int) -> int:
    """Seed of a run's first rollout engine; verl adds the number of the replica to it.

    A hash separates the seeds of different runs: with ``seed`` itself, the second engine of seed 0
    would use the same seed as the first engine of seed 1.
    """
    # 30 bits: with the number of a replica added it still fits a signed int32.
    return int.from_bytes(hashlib.sha256(f"rollout engine {seed}".encode()).digest()[:4]) >> 2


@dataclass(frozen=True)
class Setting:
    """One key of the trainer's Hydra configuration.

    Attributes:
        key: Dotted path in the trainer's configuration.
        value: Text, number, truth value, list of these, or None.
        source: Key of our configuration, or reason, that the value comes from.
        added: The trainer's configuration lacks this key, so that Hydra requires a ``+``.
    """

    key: str
    value: Any
    source: str
    added: bool = False

    @property
    def override(self) -> str:
        """The setting as an argument of the trainer's command line."""
        return f"{'+' if self.added else ''}{self.key}={_literal(self.value)}"


def _literal(value: Any) -> str:
    """A value in Hydra's grammar; strings are quoted because paths may contain its syntax."""
    if isinstance(value, str):
        return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
    if isinstance(value, list):
        return f"[{','.join(map(_literal, value))}]"
    # Numbers, true, false and null are written alike in JSON and in Hydra's grammar.
    return json.dumps(value)


def prompts_per_step(config: RunConfig) -> int:
    """Tasks of one training step: more than ``trainer.groups`` where tasks have no siblings.

    All methods play the same number of episodes: PPO plays 128 tasks once where GRPO plays 16
    tasks eight times.
    """
    return config.trainer.groups * config.trainer.group_size // siblings(config)


def siblings(config: RunConfig) -> int:
    """Episodes of each task: verl's ``rollout.n``."""
    sampling = config.trained.sampling
    if sampling is not None and sampling.rule == "independent":
        return 1
    return config.trainer.group_size
