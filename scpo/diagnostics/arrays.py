"""Arrays in a run's ``diagnostics`` folder: one ``.npz`` file a training step, and readers that name damage."""

from __future__ import annotations

import io
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from scpo.errors import RecordError
from scpo.records.files import RunningSum, write_bytes

if TYPE_CHECKING:
    from scpo.records import RunFolder


def save_arrays(folder: RunFolder, kind: str, step: int, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write ``diagnostics/<kind>_step_<n>.npz``, without pickles."""
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    keep(folder, f"{kind}_step_{step:05d}.npz", buffer.getvalue())


def keep(folder: RunFolder, name: str, content: bytes) -> None:
    """Write a file of samples and note it in the run's status: one that is lost later is missed."""
    path = folder.diagnostics / name
    write_bytes(path, content)
    folder.note_sums({str(path.relative_to(folder.path)): RunningSum.of(content).now()})


def read_arrays(path: Path, what: str) -> dict[str, NDArray[Any]]:
    """All arrays of a file.

    Raises:
        RecordError: It is no such file; ``what`` says what it should be.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except (OSError, ValueError, EOFError, BadZipFile, zlib.error, NotImplementedError, RuntimeError) as error:
        raise damaged(path, what, error) from error


def damaged(path: Path, what: str, error: Exception) -> RecordError:
    """The error that names a file which is not what it should be."""
    return RecordError(f"{path.name} is no {what} ({error}). Delete it; only a run that is repeated writes it again.")
