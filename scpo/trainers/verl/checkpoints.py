"""verl's checkpoints (``checkpoints/step_<n>/global_step_<n>``) and their completion markers."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from scpo.records import RunFolder
from scpo.records.files import FileSum, folder_sums
from scpo.records.run_folders import CHECKPOINT_MARKER


def verl_folder(folder: RunFolder, step: int) -> Path:
    """Folder of verl's part of a checkpoint; verl reads the step from its name."""
    return folder.checkpoint(step) / f"global_step_{step}"


def mark_complete(folder: RunFolder, step: int, logs: Mapping[str, FileSum], *, keep: int) -> None:
    """Mark a checkpoint as complete, and delete all complete ones but the newest ``keep``.

    Must be called after the checkpoint's step has been logged.

    Args:
        folder: The run.
        step: Training step of the checkpoint.
        logs: Checksums of the run's logs up to and including this step; a run that resumes from the
            checkpoint truncates its logs to them.
        keep: Number of checkpoints to keep, at least 1.
    """
    files = folder_sums(folder.checkpoint(step), leave_out=[CHECKPOINT_MARKER])
    folder.mark_complete(step, files, logs)
    for old in folder.complete_checkpoints()[:-keep]:
        checkpoint = folder.checkpoint(old)
        # The marker goes first: a folder whose deletion is interrupted must not look complete.
        (checkpoint / CHECKPOINT_MARKER).unlink()
        shutil.rmtree(checkpoint)


class Sealing:
    """Seals checkpoints (checksums and marker) in a thread, so that the next rollout need not wait.

    A checkpoint of a 7B model has 91 GB. It becomes valid, and older ones are deleted, when its
    marker is written. A run that is killed before that resumes from the previous checkpoint.
    """

    def __init__(self, folder: RunFolder, *, keep: int) -> None:
        self._folder = folder
        self._keep = keep
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checksums")
        self._pending: Future[None] | None = None

    def start(self, step: int, logs: Mapping[str, FileSum]) -> None:
        """Begin to seal a checkpoint whose files are written; arguments as in ``mark_complete``.

        Waits for the previous checkpoint first: two at a time would compete for the disk and might
        finish in the wrong order.

        Raises:
            OSError: See :meth:`wait`, for the previous checkpoint.
        """
        self.wait()
        arguments = (self._folder, step, dict(logs))
        self._pending = self._thread.submit(mark_complete, *arguments, keep=self._keep)

    def wait(self) -> float:
        """Wait until the pending checkpoint is sealed, if any; returns the seconds waited.

        Raises:
            OSError: A file of the checkpoint could not be read, its marker could not be written, or
                an older checkpoint could not be deleted.
        """
        pending = self._pending
        self._pending = None
        if pending is None:
            return 0.0
        started = time.perf_counter()
        pending.result()
        return time.perf_counter() - started


def newest(folder: RunFolder) -> int | None:
    """Remove incomplete checkpoints; return the newest undamaged one's step, or None.

    Raises:
        RecordError: The run has complete checkpoints, but all of them are damaged.
    """
    # First, because an incomplete checkpoint may fill the disk that the run will write to.
    folder.drop_half_checkpoints()
    return next(folder.whole_checkpoints(), None)


def logs_at(folder: RunFolder, step: int) -> dict[str, FileSum]:
    """The run's logs as they were when a checkpoint was written."""
    return folder.read_marker(step).logs
