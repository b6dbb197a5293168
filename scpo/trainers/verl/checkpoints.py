"""Checkpoints of verl inside the run folder: ``checkpoints/step_<n>/global_step_<n>``, complete once it says so."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

from scpo.tracking import RunFolder
from scpo.tracking.atomic import write_json
from scpo.tracking.folder import CHECKPOINT_MARKER

logger = logging.getLogger(__name__)


def verl_folder(folder: RunFolder, step: int) -> Path:
    """Where verl's part of a checkpoint lies; verl reads the step off its name."""
    return folder.checkpoint(step) / f"global_step_{step}"


def mark_complete(folder: RunFolder, step: int, *, keep: int) -> None:
    """Say that a checkpoint is whole, once its step is recorded too, and drop all but the newest ``keep``."""
    target = folder.checkpoint(step)
    write_json(target / CHECKPOINT_MARKER, {"step": step, "bytes": _sizes(target)})
    for old in folder.complete_checkpoints()[:-keep]:
        (folder.checkpoint(old) / CHECKPOINT_MARKER).unlink()  # first: what dies here must not look whole
        shutil.rmtree(folder.checkpoint(old))


def newest(folder: RunFolder) -> int | None:
    """Step of the newest whole checkpoint; None: there is none. Damaged ones are passed over, half ones removed."""
    complete = folder.complete_checkpoints()
    for path in folder.checkpoints.glob("step_*"):
        if int(path.name.removeprefix("step_")) not in complete:
            logger.warning("checkpoint %s was never completed; it is removed", path)
            shutil.rmtree(path)
    for step in reversed(complete):
        expected = json.loads((folder.checkpoint(step) / CHECKPOINT_MARKER).read_text())["bytes"]
        if _sizes(folder.checkpoint(step)) == expected:
            return step
        logger.warning("checkpoint %s is damaged: its files are not those it was made of", folder.checkpoint(step))
    return None


def _sizes(folder: Path) -> dict[str, int]:
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != CHECKPOINT_MARKER)
    return {str(path.relative_to(folder)): path.stat().st_size for path in files}
