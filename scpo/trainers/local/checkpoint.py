"""Atomic checkpoints: written to a scratch folder, synced, renamed, and verified when read."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from scpo.errors import RecordError, RecordWriteError
from scpo.records.files import (
    FileSum,
    folder_change,
    folder_sums,
    free_bytes,
    read_record,
    sync,
    write_json,
)
from scpo.records.run_folders import (
    CHECKPOINT,
    CHECKPOINT_MARKER,
    SCRATCH,
    CheckpointMarker,
    RunFolder,
    numbered,
)
from scpo.shaping.reference_buffer import FILE as REFERENCES
from scpo.states.identity import MEMORY_FILE

if TYPE_CHECKING:
    from scpo.policies.base import TrainedPolicy
    from scpo.policies.critic import Critic
    from scpo.shaping.reference_buffer import ReferenceBuffer
    from scpo.states.identity import Memory

logger = logging.getLogger(__name__)


@dataclass
class Learned:
    """Learned state of a run: everything that a checkpoint stores.

    Attributes:
        policy: Weights, configuration and tokenizer.
        optimizer: Optimizer of the policy, with its moments.
        critic: Value model and its optimizer, for methods that require values.
        buffer: Successes of earlier steps, for shapers with a reference buffer.
        memory: Findings of a state identity that keeps some.
    """

    policy: TrainedPolicy
    optimizer: torch.optim.Optimizer
    critic: Critic | None = field(default=None, kw_only=True)
    buffer: ReferenceBuffer | None = field(default=None, kw_only=True)
    memory: Memory | None = field(default=None, kw_only=True)


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint of a ``Learned``.

    Attributes:
        step: The training step after which it was written.
        folder: Its folder.
        files: Checksums of its files, by name.
        logs: Checksums of the run's logs when it was written.
    """

    step: int
    folder: Path
    files: Mapping[str, FileSum] = field(default_factory=dict)
    logs: Mapping[str, FileSum] = field(default_factory=dict)

    def damage(self) -> str | None:
        """Describe the damage, or None if all files are intact. Reads the whole checkpoint."""
        return folder_change(self.folder, self.files)


def save_checkpoint(
    folder: Path,
    step: int,
    learned: Learned,
    *,
    keep: int,
    logs: Mapping[str, FileSum] | None = None,
) -> Checkpoint:
    """Write the checkpoint ``folder/step_<step>``, then delete all but the newest ``keep``.

    Random state is not stored: every generator of the trainer is seeded by (run seed, step).

    Args:
        folder: Folder of the run's checkpoints.
        step: The training step that has just ended.
        learned: The state to store.
        keep: Number of checkpoints to keep, at least 1. With more than one, a run whose newest
            checkpoint is damaged resumes from an earlier one.
        logs: Checksums of the run's logs at this step; a resume truncates the logs to them.

    Returns:
        The new checkpoint.

    Raises:
        RecordWriteError: The disk is full or not writable; earlier checkpoints, if any, are intact.
    """
    target = folder / f"step_{step:05d}"
    scratch = folder / SCRATCH.format(step)
    with _removing_incomplete(scratch, target):
        # An attempt that was killed while writing may have left this folder.
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        marker = _write(scratch, step, learned, logs or {})
        # A damaged checkpoint of this step, which the resume skipped, would block the rename.
        shutil.rmtree(target, ignore_errors=True)
        scratch.rename(target)
        # Flushes the rename to the disk.
        sync(folder)

    for old in complete_checkpoints(folder)[:-keep]:
        # The marker goes first: a folder whose deletion is interrupted must not look complete.
        (old.folder / CHECKPOINT_MARKER).unlink()
        shutil.rmtree(old.folder)
    return Checkpoint(step, target, marker.files, marker.logs)


@contextmanager
def _removing_incomplete(scratch: Path, target: Path) -> Iterator[None]:
    """Remove an incomplete checkpoint after any error; explain errors of writing.

    Raises:
        RecordWriteError: The checkpoint could not be written.
    """
    from safetensors import SafetensorError

    try:
        yield
    except BaseException as error:
        # Measured before the removal, which frees space.
        free = free_bytes(scratch)
        written = sum(path.stat().st_size for path in scratch.glob("*") if path.is_file())
        shutil.rmtree(scratch, ignore_errors=True)
        # A full disk appears as OSError, as safetensors' own error or as torch's RuntimeError,
        # depending on the writer.
        if not isinstance(error, OSError | RuntimeError | SafetensorError):
            raise
        steps = [str(checkpoint.step) for checkpoint in complete_checkpoints(target.parent)]
        earlier = f"intact: step {', '.join(steps)}" if steps else "there is no other checkpoint"
        raise RecordWriteError(
            f"checkpoint {target} could not be written ({error}): {free} bytes were free there "
            f"after {written} of its bytes, which are removed again; {earlier}. Free some space "
            "and run the same command again"
        ) from error


def _write(
    scratch: Path, step: int, learned: Learned, logs: Mapping[str, FileSum]
) -> CheckpointMarker:
    """Write all files of a checkpoint, the marker last; returns the marker."""
    from safetensors.torch import save_file, save_model

    learned.policy.save(scratch)
    save_file(_optimizer_tensors(learned.optimizer), scratch / "optimizer.safetensors")
    if learned.critic is not None:
        # save_model, because a critic's tensors may share memory, which save_file rejects.
        save_model(learned.critic.model, str(scratch / "critic.safetensors"))
        save_file(
            _optimizer_tensors(learned.critic.optimizer), scratch / "critic_optimizer.safetensors"
        )

    # State of the method besides weights.
    if learned.buffer is not None:
        (scratch / REFERENCES).write_bytes(learned.buffer.dump())
    if learned.memory is not None:
        (scratch / MEMORY_FILE).write_bytes(learned.memory.dump())

    # All files must be on the disk before the marker declares them complete.
    marker = CheckpointMarker(step=step, files=folder_sums(scratch), logs=dict(logs))
    for name in marker.files:
        sync(scratch / name)

    # The marker comes last: a folder without it is not a checkpoint.
    write_json(scratch / CHECKPOINT_MARKER, marker.model_dump(mode="json"))
    return marker


def complete_checkpoints(folder: Path) -> list[Checkpoint]:
    """Complete checkpoints, oldest first; incomplete and truncated ones are skipped.

    The weights are not read here: see :meth:`Checkpoint.damage`.
    """
    found = []
    for path in sorted(folder.glob("step_*")):
        step = numbered(path, CHECKPOINT)
        if step is None:
            # A copy that a user made, which must not be deleted.
            continue
        try:
            marker = read_record(
                path / CHECKPOINT_MARKER, CheckpointMarker, "marker of a checkpoint"
            )
        except RecordError:
            continue
        # Truncated files have other sizes, which can be compared without reading the files.
        if marker.step == step and not folder_change(path, marker.files, contents=False):
            found.append(Checkpoint(step, path, marker.files, marker.logs))
    return found


def newest_usable(folder: RunFolder, cut_logs: Callable[[Checkpoint], None]) -> Checkpoint | None:
    """Find the newest undamaged checkpoint whose logs are undamaged, too; None without checkpoints.

    Weights of one step with logs of another would give a log with missing or duplicate metrics.

    Args:
        folder: The run.
        cut_logs: Truncates the logs to a checkpoint's step; raises RecordError if they differ from
            the logs at the time of the checkpoint.

    Raises:
        RecordError: All checkpoints are damaged, or the logs before every undamaged one are.
    """
    lost: RecordError | None = None
    for step in folder.whole_checkpoints():
        marker = folder.read_marker(step)
        checkpoint = Checkpoint(step, folder.checkpoint(step), marker.files, marker.logs)
        try:
            cut_logs(checkpoint)
        except RecordError as error:
            logger.warning("%s; trying an earlier checkpoint", error)
            # The error of the newest checkpoint is the most helpful one if none is usable.
            lost = lost or error
            continue
        return checkpoint

    if lost is not None:
        raise lost
    return None


def load_checkpoint(checkpoint: Checkpoint, learned: Learned) -> None:
    """Restore ``learned`` from a checkpoint, in place.

    Raises:
        RecordError: The tensors do not fit this model, or references or memory cannot be read.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file, load_model

    device = str(learned.policy.device)
    critic = learned.critic
    try:
        load_model(learned.policy.model, checkpoint.folder / "model.safetensors", device=device)
        _restore_optimizer(
            learned.optimizer, load_file(checkpoint.folder / "optimizer.safetensors")
        )
        if critic is not None:
            load_model(critic.model, checkpoint.folder / "critic.safetensors", device=device)
            _restore_optimizer(
                critic.optimizer, load_file(checkpoint.folder / "critic_optimizer.safetensors")
            )
        if learned.buffer is not None:
            learned.buffer.load((checkpoint.folder / REFERENCES).read_bytes())
        if learned.memory is not None:
            learned.memory.load((checkpoint.folder / MEMORY_FILE).read_bytes())
    except (OSError, RuntimeError, KeyError, ValueError, SafetensorError) as error:
        raise RecordError(
            f"checkpoint {checkpoint.folder} does not fit the model of this run ({error}); remove "
            "that folder to continue from the one before"
        ) from error


def _optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, torch.Tensor]:
    """Moments and step counts by ``<parameter number>.<name>``, for safetensors.

    ``torch.save`` is not used, because its files are pickles, which may run code when loaded.
    """
    tensors = {}
    for index, slots in optimizer.state_dict()["state"].items():
        for name, value in slots.items():
            # safetensors stores contiguous tensors only.
            tensors[f"{index}.{name}"] = value.contiguous()
    return tensors


def _restore_optimizer(optimizer: torch.optim.Optimizer, tensors: dict[str, torch.Tensor]) -> None:
    """Load the result of :func:`_optimizer_tensors` into an optimizer of the same parameters."""
    state: dict[int, dict[str, torch.Tensor]] = {}
    for key, value in tensors.items():
        index, name = key.split(".")
        state.setdefault(int(index), {})[name] = value
    # Learning rate and weight decay are not restored but taken from the configuration.
    optimizer.load_state_dict(
        {"state": state, "param_groups": optimizer.state_dict()["param_groups"]}
    )
