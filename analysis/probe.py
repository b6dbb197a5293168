"""Reading probe files: one failed sibling against its reference, as the matcher saw them."""

from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np

from scpo.errors import RecordError

PATTERN = "probe_step_*.npz"


@dataclass(frozen=True)
class Pair:
    """The matrix, the credit and the walk of one failed sibling against its reference."""

    similarity_ml: np.ndarray
    matched_l: np.ndarray  # credited reference position of each failed step, -1: none
    order_l: np.ndarray  # failed steps in the order in which they were processed
    walk_l: np.ndarray  # reference position after each processed step, -1: before the first
    theta: float


@dataclass(frozen=True)
class Probe:
    """One probe; ``pair`` is None when its group held no success or no failure."""

    path: Path
    task: str
    pair: Pair | None

    @property
    def step(self) -> int:
        """The training step, from the file's name."""
        return int(self.path.stem.rpartition("_")[2])


def read_probe(path: Path) -> Probe:
    """Read ``diagnostics/probe_step_<n>.npz``; a broken one raises RecordError."""
    try:
        with np.load(path, allow_pickle=False) as file:
            task = str(file["task"])
            if "found" in file and not bool(file["found"]):
                return Probe(path, task, None)
            arrays = {name: file[name] for name in ("similarity_ml", "matched_l", "order_l", "walk_l")}
            return Probe(path, task, Pair(**arrays, theta=float(file["theta"])))
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise RecordError(
            f"{path.name} is no probe file ({error}). Delete it; the run writes probes again only when it is repeated."
        ) from error
