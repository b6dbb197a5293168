"""Checkpoints that are whole or absent: written beside, synced, renamed, and checked when read."""

from __future__ import annotations

import json
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from scpo.errors import RecordError, RecordWriteError
from scpo.shaping.reference_buffer import FILE as REFERENCES
from scpo.tracking.folder import CHECKPOINT_MARKER
from scpo.whole_file import sync

if TYPE_CHECKING:
    from scpo.policies.base import TrainedPolicy
    from scpo.policies.critic import Critic
    from scpo.shaping.reference_buffer import ReferenceBuffer

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint: the policy as it saves itself, the optimiser's state, what else the method keeps."""

    step: int
    folder: Path


def save_checkpoint(
    folder: Path,
    step: int,
    policy: TrainedPolicy,
    optimizer: torch.optim.Optimizer,
    *,
    keep: int,
    critic: Critic | None = None,
    buffer: ReferenceBuffer | None = None,
) -> Checkpoint:
    """Write ``folder/step_<step>`` and drop all but the newest ``keep``.

    Random state is not stored: every generator of the trainer is seeded by (run seed, step).

    Raises:
        RecordWriteError: The disk is full or not writable; earlier checkpoints are intact.
    """
    target, scratch = folder / f"step_{step:05d}", folder / f".step_{step:05d}.tmp"
    try:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        _write(scratch, step, policy, optimizer, critic=critic, buffer=buffer)
        shutil.rmtree(target, ignore_errors=True)
        scratch.rename(target)
        sync(folder)
    except (OSError, RuntimeError) as error:
        # safetensors reports a full disk as its own error, a RuntimeError subclass or OSError by version
        shutil.rmtree(scratch, ignore_errors=True)
        free = shutil.disk_usage(folder).free if folder.exists() else 0
        raise RecordWriteError(
            f"checkpoint {target} could not be written ({error}); {free} bytes are free there; earlier checkpoints are "
            "intact: free some space and run the same command again"
        ) from error
    for old in complete_checkpoints(folder)[:-keep]:
        shutil.rmtree(old.folder)
    return Checkpoint(step, target)


def _write(
    scratch: Path,
    step: int,
    policy: TrainedPolicy,
    optimizer: torch.optim.Optimizer,
    *,
    critic: Critic | None,
    buffer: ReferenceBuffer | None,
) -> None:
    from safetensors.torch import save_file, save_model

    policy.save(scratch)
    save_file(_optimizer_tensors(optimizer), scratch / "optimizer.safetensors")
    if critic is not None:
        save_model(critic.model, str(scratch / "critic.safetensors"))
        save_file(_optimizer_tensors(critic.optimizer), scratch / "critic_optimizer.safetensors")
    if buffer is not None:
        (scratch / REFERENCES).write_bytes(buffer.dump())
    sizes = {path.name: path.stat().st_size for path in sorted(scratch.iterdir())}
    for name in sizes:
        sync(scratch / name)
    (scratch / CHECKPOINT_MARKER).write_text(json.dumps({"step": step, "bytes": sizes}))
    sync(scratch / CHECKPOINT_MARKER)
    sync(scratch)


def complete_checkpoints(folder: Path) -> list[Checkpoint]:
    """Complete checkpoints, oldest first; incomplete or truncated ones are passed over with a warning."""
    found = []
    for path in sorted(folder.glob("step_*")):
        try:
            marker = json.loads((path / CHECKPOINT_MARKER).read_text())
            sizes = {name: (path / name).stat().st_size for name in marker["bytes"]}
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("checkpoint %s is incomplete (%s); it is passed over", path, error)
            continue
        if sizes != marker["bytes"]:
            logger.warning("checkpoint %s is damaged: sizes %s, expected %s", path, sizes, marker["bytes"])
            continue
        found.append(Checkpoint(marker["step"], path))
    return found


def load_checkpoint(
    checkpoint: Checkpoint,
    policy: TrainedPolicy,
    optimizer: torch.optim.Optimizer,
    *,
    critic: Critic | None = None,
    buffer: ReferenceBuffer | None = None,
) -> None:
    """Put weights and optimiser state back in place, the critic's and the references too where the method has them.

    Raises:
        RecordError: The tensors are not those of this model, or the references cannot be read.
    """
    from safetensors.torch import load_file, load_model

    try:
        load_model(policy.model, checkpoint.folder / "model.safetensors", device=str(policy.device))
        _restore_optimizer(optimizer, load_file(checkpoint.folder / "optimizer.safetensors"))
        if critic is not None:
            load_model(critic.model, checkpoint.folder / "critic.safetensors", device=str(policy.device))
            _restore_optimizer(critic.optimizer, load_file(checkpoint.folder / "critic_optimizer.safetensors"))
        if buffer is not None:
            buffer.load((checkpoint.folder / REFERENCES).read_bytes())
    except (OSError, RuntimeError, KeyError, ValueError) as error:
        raise RecordError(
            f"checkpoint {checkpoint.folder} does not fit the model of this run ({error}); remove that folder to "
            "continue from the one before"
        ) from error


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    state = optimizer.state_dict()["state"]
    return {f"{index}.{name}": value.contiguous() for index, slots in state.items() for name, value in slots.items()}


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split(".")
        state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
