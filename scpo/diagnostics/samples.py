"""Samples of training steps as arrays: step texts for the scatter plot, the probe for the heatmap.

Each sample is one ``.npz`` file in the run's ``diagnostics`` folder, ``step_texts_step_<n>.npz`` or
``probe_step_<n>.npz``, without pickles.
"""

from __future__ import annotations

import gzip
import io
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, ValidationError

from scpo.errors import RecordError
from scpo.records.files import SAMPLE, RunningSum, first_complaint, write_bytes
from scpo.shaping.drive import MatchTask, Scorer, checked
from scpo.shaping.shaper import ShaperConfig, shape
from scpo.steps import BoolArray, FloatArray, IntArray, StrArray

if TYPE_CHECKING:
    from scpo.credit.metrics import CreditDiagnostics
    from scpo.records import RunFolder
    from scpo.shaping.order import Seed
    from scpo.steps import StepBatch


def save_arrays(
    folder: RunFolder, kind: str, step: int, arrays: Mapping[str, NDArray[Any]]
) -> None:
    """Write ``diagnostics/<kind>_step_<n>.npz``, without pickles.

    A pickle can run code when it is read, and run folders are shared between people.
    """
    buffer = io.BytesIO()
    # Into memory first, for the checksum of the bytes that are written.
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    keep(folder, f"{kind}_step_{step:05d}.npz", buffer.getvalue())


def keep(folder: RunFolder, name: str, content: bytes) -> None:
    """Write a sample and add its checksum to the run's status, so that a later loss is detected."""
    path = folder.diagnostics / name
    write_bytes(path, content)
    folder.note_sums({str(path.relative_to(folder.path)): RunningSum.of(content).now()})


def read_arrays(path: Path, what: str) -> dict[str, NDArray[Any]]:
    """Read all arrays of a file.

    Raises:
        RecordError: The file is missing or damaged; the message names it and calls it ``what``.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return dict(file)
    except (
        OSError,
        ValueError,
        EOFError,
        BadZipFile,
        zlib.error,
        NotImplementedError,
        RuntimeError,
    ) as error:
        raise damaged(path, what, error) from error


def read_gzipped_json(path: Path, what: str) -> Any:
    """Read a gzipped JSON file.

    Raises:
        RecordError: The file is missing or damaged, or it holds what JSON or UTF-8 does not allow;
            the message calls it ``what``.
    """
    try:
        record = json.loads(gzip.decompress(path.read_bytes()))
        # Refuses NaN and halves of surrogate pairs, which Python's parser accepts and a web page
        # cannot show.
        json.dumps(record, ensure_ascii=False, allow_nan=False).encode()
    except (OSError, EOFError, ValueError, RecursionError, zlib.error) as error:
        raise damaged(path, what, error) from error
    return record


def gzipped_json(record: Any) -> bytes:
    """A record as gzipped JSON; equal records give equal bytes, because no time is written."""
    text = json.dumps(record, ensure_ascii=False, allow_nan=False)
    return gzip.compress(text.encode(), mtime=0)


def cut_text(text: str, longest: int) -> str:
    """The text; if it is longer, its beginning and the number of characters left out."""
    dropped = len(text) - longest
    if dropped > 0:
        return f"{text[:longest]} … ({dropped} more characters)"
    return text


class SampleContent(BaseModel):
    """Base of the schemas of gzipped samples; other trainers may write further keys."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


def check_content(path: Path, what: str, schema: type[SampleContent], record: Any) -> None:
    """Validate the content of a file.

    Raises:
        RecordError: The record does not fit the schema; the message names the key.
    """
    try:
        schema.model_validate(record)
    except ValidationError as error:
        raise damaged(path, what, ValueError(first_complaint(error))) from error


def damaged(path: Path, what: str, error: Exception) -> RecordError:
    """Error that names a damaged file."""
    return RecordError(f"{path.name} is not a {what} ({error}). {SAMPLE}")


STEP_TEXTS_PATTERN = "step_texts_step_*.npz"

# The paper's t-SNE embeds five early batches (appendix C.2).
TEXT_BATCHES = 5
COLUMNS = ("group", "trajectory", "text", "success", "credit")
"""Columns that readers require; the files also hold each row's step in its trajectory."""
STEP_TEXT_KINDS = r"[iu][iu]Ub[fiu]"
"""NumPy's type letters of ``COLUMNS``: integers twice, texts, booleans, and numbers."""


def save_step_texts(
    folder: RunFolder, step: int, batch: StepBatch, diagnostics: CreditDiagnostics
) -> None:
    """Store the step texts of the batch if it is one of the first five with an active group.

    The paper embeds 2,555 steps of five early batches (appendix C.2); here all steps of five
    batches are stored, and analysis draws a sample (ledger 28). Nothing is stored if no step passed
    the step filter.

    Args:
        folder: The run.
        step: The training step.
        batch: Its steps.
        diagnostics: Diagnostics of ``assign``; those of a method without a shaper hold no texts.
    """
    shaped = diagnostics.shaped
    if not diagnostics.metrics.get("credit/active_groups") or shaped is None:
        return
    # Counted on disk, so that a resumed run samples the same batches.
    stored = [_step_of(path) for path in folder.diagnostics.glob(STEP_TEXTS_PATTERN)]
    if sum(earlier < step for earlier in stored) >= TEXT_BATCHES:
        return
    rows = np.flatnonzero(batch.original_N & shaped.surviving_N)
    if len(rows):
        columns = {
            "group": batch.group_N[rows],
            "trajectory": batch.trajectory_N[rows],
            "step": batch.step_N[rows].astype(np.int64),
            "text": shaped.text_N[rows].astype(str),
            "success": batch.success_N[rows],
            "credit": shaped.credit_N[rows].astype(np.float64),
        }
        save_arrays(folder, "step_texts", step, columns)


@dataclass(frozen=True)
class StepTexts:
    """Steps of several batches that passed the step filter, one entry per step (N).

    Attributes:
        text_N: Text of each step.
        group_N: Rollout group of each step, numbered over all batches.
        success_N: True where the step's rollout succeeded.
        credit_N: Credit of each step.
        batches: Number of batches.
    """

    text_N: StrArray
    group_N: IntArray
    success_N: BoolArray
    credit_N: FloatArray
    batches: int


def read_step_texts(paths: Sequence[Path]) -> StepTexts:
    """Read several files and concatenate them.

    Raises:
        RecordError: One of them holds no step texts.
    """
    batches = [_read(path) for path in paths]
    joined = {name: np.concatenate([batch[name] for batch in batches]) for name in COLUMNS}
    batch_N = np.concatenate([np.full(len(batch["group"]), i) for i, batch in enumerate(batches)])
    # Two batches may use the same group number, so groups are numbered anew.
    _, group_N = np.unique(np.stack([batch_N, joined["group"]]), axis=1, return_inverse=True)
    return StepTexts(
        joined["text"], group_N, joined["success"].astype(bool), joined["credit"], len(batches)
    )


def _read(path: Path) -> dict[str, NDArray[Any]]:
    """The checked columns of one file of step texts."""
    arrays = read_arrays(path, "file of step texts")
    missing = [name for name in COLUMNS if name not in arrays]
    if missing:
        raise damaged(path, "file of step texts", KeyError(*missing))
    columns = [arrays[name] for name in COLUMNS]
    if arrays["text"].ndim != 1 or {column.shape for column in columns} != {arrays["text"].shape}:
        raise damaged(path, "file of step texts", ValueError("its columns differ in length"))

    # A file of another version may have the same names with other types.
    kinds = "".join(column.dtype.kind for column in columns)
    if not re.fullmatch(STEP_TEXT_KINDS, kinds) or not np.isfinite(arrays["credit"]).all():
        raise damaged(
            path, "file of step texts", ValueError(f"columns of kinds {kinds}, or not finite")
        )
    return arrays


PROBE_PATTERN = "probe_step_*.npz"


def dense_probe(
    batch: StepBatch, scorer: Scorer, config: ShaperConfig, seed: Seed
) -> dict[str, Any] | None:
    """Score the most credited failure of a batch against its reference, every pair of steps.

    Ties go to the smallest group and trajectory. Metrics do not count the scored pairs.

    Args:
        batch: The probe's rollouts, usually one group.
        scorer: Answers text pairs with similarities in [0, 1].
        config: The shaper that the run uses.
        seed: Run seed and training step.

    Returns:
        Arrays for an ``.npz`` file, or None when no group has both a success and a failure with a
        surviving step. The m reference steps and l failed steps are those that passed the step
        filter; failed steps are in time order, reference steps in reference order.

        - ``similarity_ml``: M, reference step u against failed step v.
        - ``credit_l``: credit of each failed step.
        - ``matched_l``: credited reference position of each failed step, -1 for none.
        - ``order_l``: failed steps in processing order.
        - ``walk_l``: matched reference position after each processed step, -1 for none; shorter
          than l if the walk ended early.
        - ``reference_text_m``, ``failed_text_l``: step texts.
        - ``reference_slot``, ``failed_slot``: numbers of the trajectories.

    Raises:
        ScorerError: The scorer returned anything but similarities in [0, 1].
    """
    shaped = shape(batch, scorer, config, seed)
    matches = [match for match in shaped.matches if match.task.reference and match.task.failed]
    if not matches:
        return None

    # The most credited failure shows most of the walk; `max` takes the first of equals.
    match = max(matches, key=lambda match: float(match.credit_l.sum()))
    task = match.task
    trace = match.trace
    matched_l = np.full(len(task.failed), -1, dtype=np.int32)
    for cell in trace.credited:
        matched_l[cell.v] = cell.u
    return {
        "similarity_ml": dense_similarity(task, scorer),
        "credit_l": match.credit_l,
        "matched_l": matched_l,
        "order_l": np.array(task.order, dtype=np.int32),
        "walk_l": np.array([j for _, j in trace.walk], dtype=np.int32),
        "reference_text_m": np.array(task.reference),
        "failed_text_l": np.array(task.failed),
        "reference_slot": int(batch.trajectory_N[match.reference_row_m[0]]),
        "failed_slot": int(batch.trajectory_N[match.failed_row_l[0]]),
    }


def dense_similarity(task: MatchTask, scorer: Scorer) -> FloatArray:
    """Score the whole M of one failed trajectory, ``(m, l)``; metrics do not count these pairs.

    Cells that a walk of this training step has read get the same scores again, because the run's
    scorer caches them until the next step; all others are scored in one call.

    Raises:
        ScorerError: The scorer returned anything but similarities in [0, 1].
    """
    pairs = [task.texts(cell) for cell in task.cells("failed")]
    scores: FloatArray = checked(scorer, pairs) if pairs else np.zeros(0, np.float32)
    return scores.reshape(len(task.reference), len(task.failed))


def save_probe(
    folder: RunFolder,
    step: int,
    batch: StepBatch,
    scorer: Scorer,
    shaper: ShaperConfig,
    *,
    seed: tuple[int, int],
) -> None:
    """Write the probe of a step: arrays of :func:`dense_probe`, threshold and task.

    ``found`` is False, and the arrays are missing, if the probe's group had no success or no
    failure at this step. The file is written nevertheless, so that figures can distinguish this
    case from a missing probe.
    """
    probe = dense_probe(batch, scorer, shaper, seed)
    arrays: dict[str, Any] = {
        "found": probe is not None,
        "task": str(batch.task_N[0]),
        "step": step,
    }
    # θ and λ are stored, because a figure may be drawn without the run's configuration.
    arrays |= {"theta": shaper.theta, "soft_base": shaper.soft_base, **(probe or {})}
    save_arrays(folder, "probe", step, {name: np.asarray(value) for name, value in arrays.items()})


@dataclass(frozen=True)
class Pair:
    """The matrix, the credit and the walk of one failed sibling against its reference.

    Attributes:
        similarity_ml: M, as in :func:`dense_probe`.
        matched_l: Credited reference position of each failed step, -1: none.
        order_l: Failed steps in the order in which they were processed.
        walk_l: Reference position after each processed step, -1: before the first.
        theta: The threshold.
    """

    similarity_ml: FloatArray
    matched_l: IntArray
    order_l: IntArray
    walk_l: IntArray
    theta: float


# NumPy's type letters and number of dimensions of each array of a probe. PROBE_ARRAYS are in every
# file, PAIR_ARRAYS only in files with a pair.
PROBE_ARRAYS = {"found": ("b", 0), "task": ("U", 0), "step": ("iu", 0)}
PAIR_ARRAYS = {
    "similarity_ml": ("f", 2),
    "credit_l": ("f", 1),
    "matched_l": ("iu", 1),
    "order_l": ("iu", 1),
    "walk_l": ("iu", 1),
    "reference_text_m": ("U", 1),
    "failed_text_l": ("U", 1),
    "theta": ("f", 0),
    "soft_base": ("f", 0),
    "reference_slot": ("iu", 0),
    "failed_slot": ("iu", 0),
}


def _check_arrays(arrays: Mapping[str, NDArray[Any]], kinds: Mapping[str, tuple[str, int]]) -> None:
    """Check types and dimensions, and that numbers are finite.

    Raises:
        KeyError: An array is missing.
        ValueError: An array is of another type or shape, or holds NaN or an infinity.
    """
    for name, (letters, dimensions) in kinds.items():
        array = arrays[name]
        if array.ndim != dimensions or array.dtype.kind not in letters:
            raise ValueError(f"{name} is {array.dtype} of shape {array.shape}")
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise ValueError(f"{name} is not finite")


def _check_pair(pair: Pair) -> None:
    """Check that the sizes of the arrays agree, and that positions are within the matrix.

    Raises:
        ValueError: A size or position does not fit; the message names the array.
    """
    references, failures = pair.similarity_ml.shape
    for name, array, end in (
        ("matched_l", pair.matched_l, references),
        ("walk_l", pair.walk_l, references),
    ):
        if ((array < -1) | (array >= end)).any():
            raise ValueError(f"{name} names a position outside of -1..{end - 1}")

    # The walk may end early, at the reference's last step.
    lengths = len(pair.matched_l), len(pair.order_l)
    if lengths != (failures, failures) or len(pair.walk_l) > failures:
        raise ValueError(
            f"{failures} failed steps, but matched_l and order_l have {lengths} entries"
        )
    if len(pair.walk_l) < failures and (not len(pair.walk_l) or pair.walk_l[-1] != references - 1):
        raise ValueError(
            f"walk_l ends after {len(pair.walk_l)} of {failures} failed steps, but not at the "
            "reference's last step"
        )

    if not np.array_equal(np.sort(pair.order_l), np.arange(failures)):
        raise ValueError(f"order_l does not name each of the {failures} failed steps once")

    # A step is credited at the reference position that the walk reaches with it.
    processed_l = pair.order_l[: len(pair.walk_l)]
    expected_l = np.full(failures, -1)
    expected_l[processed_l] = pair.walk_l
    if ((pair.matched_l >= 0) & (pair.matched_l != expected_l)).any():
        raise ValueError("matched_l credits a position that walk_l does not reach at that step")


def _check_steps(arrays: Mapping[str, Any], pair: Pair) -> None:
    """Check that each row and column of the matrix has a text, and each column a credit.

    Raises:
        ValueError: An array has another number of entries; the message names it.
    """
    references, failures = pair.similarity_ml.shape
    for name, steps in (
        ("reference_text_m", references),
        ("failed_text_l", failures),
        ("credit_l", failures),
    ):
        if len(arrays[name]) != steps:
            raise ValueError(
                f"similarity_ml is of shape {pair.similarity_ml.shape}, but {name} has "
                f"{len(arrays[name])} entries"
            )


@dataclass(frozen=True)
class Probe:
    """Content of a probe file; ``pair`` is None if the probe's group had no success or failure."""

    path: Path
    task: str
    pair: Pair | None

    @property
    def step(self) -> int:
        """The training step, from the file's name."""
        return _step_of(self.path)


def _step_of(path: Path) -> int:
    """The training step in the name of a ``.npz`` sample."""
    return int(path.stem.rpartition("_")[2])


def read_probe(path: Path) -> Probe:
    """Read a file of :func:`save_probe`.

    Raises:
        RecordError: The file is not a probe.
    """
    arrays = read_arrays(path, "probe file")
    try:
        _check_arrays(arrays, PROBE_ARRAYS)
        task = str(arrays["task"])
        pair = None
        if arrays["found"]:
            _check_arrays(arrays, PAIR_ARRAYS)
            pair = Pair(
                similarity_ml=arrays["similarity_ml"],
                matched_l=arrays["matched_l"],
                order_l=arrays["order_l"],
                walk_l=arrays["walk_l"],
                theta=float(arrays["theta"]),
            )
            _check_pair(pair)
            _check_steps(arrays, pair)
        probe = Probe(path, task, pair)
        if probe.step != arrays["step"]:
            raise ValueError(f"its step is {arrays['step']}")
    except (KeyError, ValueError) as error:
        raise damaged(path, "probe file", error) from error
    return probe
