"""Reading sampled step texts: what the steps of early batches said, how their rollout ended, what credit they got."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from scpo.errors import RecordError

PATTERN = "step_texts_step_*.npz"
COLUMNS = ("group", "trajectory", "text", "success", "credit")


@dataclass(frozen=True)
class StepTexts:
    """Filtered steps of several batches, one entry each (N). ``group_N`` numbers groups over all batches."""

    text_N: np.ndarray
    group_N: np.ndarray
    success_N: np.ndarray  # the step's rollout succeeded
    credit_N: np.ndarray
    batches: int


def read_step_texts(paths: Sequence[Path]) -> StepTexts:
    """Read ``diagnostics/step_texts_step_<n>.npz`` files as one; a broken one raises RecordError."""
    batches = [_read(path) for path in paths]
    joined = {name: np.concatenate([batch[name] for batch in batches]) for name in COLUMNS}
    batch_N = np.concatenate([np.full(len(batch["group"]), i) for i, batch in enumerate(batches)])
    _, group_N = np.unique(np.stack([batch_N, joined["group"]]), axis=1, return_inverse=True)
    return StepTexts(joined["text"], group_N, joined["success"].astype(bool), joined["credit"], len(batches))


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in COLUMNS}
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise RecordError(
            f"{path.name} is no file of step texts ({error}). Delete it; only a run that is repeated writes it again."
        ) from error
