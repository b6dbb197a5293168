"""Checkpoints of verl inside the run folder: ``checkpoints/step_<n>/global_step_<n>``, complete once it says so."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping
from pathlib import Path

from scpo.errors import RecordError
from scpo.records import RunFolder
from scpo.records.files import FileSum, folder_change, folder_sums, read_record
from scpo.records.run_folders import CHECKPOINT_MARKER, CheckpointMarker

logger = logging.getLogger(__name__)


def verl_folder(folder: RunFolder, step: int) -> Path:
    """Where verl's part of a checkpoint lies; verl reads the step off its name."""
    return folder.checkpoint(step) / f"global_step_{step}"


def mark_complete(folder: RunFolder, step: int, logs: Mapping[str, FileSum], *, keep: int) -> None:
    """Say that a checkpoint is whole, once its step is recorded too, and drop all but the newest ``keep``.

    ``logs``: the run's logs, this step included.
    """
    folder.mark_complete(step, folder_sums(folder.checkpoint(step), leave_out=[CHECKPOINT_MARKER]), logs)
    for old in folder.complete_checkpoints()[:-keep]:
        (folder.checkpoint(old) / CHECKPOINT_MARKER).unlink()  # first: what dies here must not look whole
        shutil.rmtree(folder.checkpoint(old))


def newest(folder: RunFolder) -> int | None:
    """Step of the newest whole checkpoint; None: there is none. Damaged ones are passed over, half ones removed."""
    folder.drop_half_checkpoints()
    for step in reversed(folder.complete_checkpoints()):
        damage = _damage(folder, step)
        if damage is None:
            return step
        logger.warning("checkpoint %s is damaged: %s; the one before is tried", folder.checkpoint(step), damage)
    return None


def logs_at(folder: RunFolder, step: int) -> dict[str, FileSum]:
    """The run's logs as they were when a checkpoint was written."""
    return _marker(folder, step).logs


def _damage(folder: RunFolder, step: int) -> str | None:
    try:
        marker = _marker(folder, step)
    except RecordError as error:
        return str(error)
    return folder_change(folder.checkpoint(step), marker.files) if marker.step == step else "it is of another step"


def _marker(folder: RunFolder, step: int) -> CheckpointMarker:
    return read_record(folder.checkpoint(step) / CHECKPOINT_MARKER, CheckpointMarker, "marker of a checkpoint")
