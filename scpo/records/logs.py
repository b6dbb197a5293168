"""Append-only logs of JSON lines (metrics.jsonl, timing.jsonl): writer, reader, verification.

Each line is on disk before ``append`` returns. A line is complete once its line break is written. A
killed writer may leave a torn last line; readers skip it, and the next writer cuts it off.

The module also checks that the status of a finished run agrees with its logs.
"""

import contextlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from itertools import pairwise
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from scpo.errors import RecordError
from scpo.progress import counted
from scpo.records.files import (
    RUN_AGAIN,
    RunningSum,
    naming_write_errors,
    read_bytes,
    write_bytes,
)
from scpo.records.run_folders import TIMING, RunFolder
from scpo.records.status import State, Status

SUCCESS = "success_rate"

# More bytes than any line has, so that one read at the end finds the last line.
TAIL_BYTES = 1 << 16

# Readers that use doubles round larger integers.
LARGEST = 1 << 53


def to_line(record: Mapping[str, Any]) -> bytes:
    """One line of a log; equal values give equal bytes.

    ``step`` comes first, the other keys are sorted, and floats are written as ``repr``. NaN and the
    infinities become null: the mean over an empty set is undefined, for example over the failed
    siblings of a mini-batch of successes.
    """
    keys = sorted(record, key=lambda key: (key != "step", key))
    plain = {key: _plain(record[key]) for key in keys}
    return json.dumps(plain, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    # NumPy's numbers are registered as Integral and Real.
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    raise TypeError(
        f"a log line holds numbers, strings and null, not {type(value).__name__} ({value!r})"
    )


class JsonLines:
    """The log at ``path``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def append(self, record: Mapping[str, Any]) -> bytes:
        """Append one line, flush it to disk and return it; a failed write is undone."""
        line = to_line(record)
        with naming_write_errors(self.path, len(line)):
            descriptor = self._open()
            size = os.fstat(descriptor).st_size
            try:
                _write_all(descriptor, line)
                os.fsync(descriptor)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.ftruncate(descriptor, size)
                raise
        return line

    def records(self) -> list[dict[str, Any]]:
        """All complete lines; a damaged one raises RecordError with its number."""
        return self.parse(self.whole_lines())

    def whole_lines(self) -> bytes:
        """The bytes up to the last line break; empty without a file."""
        data = read_bytes(self.path) if self.path.exists() else b""
        return data[: data.rfind(b"\n") + 1]

    def parse(self, data: bytes) -> list[dict[str, Any]]:
        """Parse bytes of this log; a damaged line raises RecordError with its number."""
        records = []
        for number, line in enumerate(data.split(b"\n")[:-1], start=1):
            records.append(self._object(line, f"line {number}"))
        return records

    def up_to(self, step: int) -> bytes:
        """The bytes of the lines up to and including ``step``; later lines are not parsed."""
        kept = []
        for number, line in enumerate(self.whole_lines().split(b"\n")[:-1], start=1):
            if self._object(line, f"line {number}")["step"] > step:
                # Steps ascend, so all further lines are of later steps.
                break
            kept.append(line + b"\n")
        return b"".join(kept)

    def last(self) -> dict[str, Any] | None:
        """The last complete line, read from the end of the file; None without one."""
        if not self.path.exists():
            return None
        with self.path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
            file.seek(start)
            lines = file.read().split(b"\n")[:-1]
        if len(lines) < 2 and start > 0:
            raise RecordError(f"{self.path}: the last line is longer than {TAIL_BYTES} bytes")
        if not lines:
            return None
        return self._object(lines[-1], "the last line")

    def replace(self, lines: bytes) -> None:
        """Replace the content atomically, for a run that resumes from an earlier step."""
        self.close()
        if self.path.exists():
            write_bytes(self.path, lines)

    def close(self) -> None:
        """Close the file; the next append opens it again."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _open(self) -> int:
        if self._descriptor is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            # O_APPEND: each write goes to the end, even after a truncation.
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            _cut(descriptor)
            self._descriptor = descriptor
        return self._descriptor

    def _object(self, line: bytes, where: str) -> dict[str, Any]:
        damaged = f"{self.path}, {where} is damaged"
        try:
            record = json.loads(line, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{damaged}: {error}. {_remedy(self.path)}") from error

        if not isinstance(record, dict) or type(record.get("step")) is not int:
            raise RecordError(
                f"{damaged}: not a JSON object with an integer `step`. {_remedy(self.path)}"
            )
        odd = next((key for key, value in record.items() if not _is_plain(value)), None)
        if odd is None and record["step"] < 0:
            odd = "step"
        if odd is not None:
            raise RecordError(
                f"{damaged}: {odd} is {str(record[odd])[:40]!r}, which nothing logs. "
                f"{_remedy(self.path)}"
            )
        return record


def _remedy(path: Path) -> str:
    """How to recover from a damaged log, and what is lost if it is not that of the metrics."""
    if path.name == TIMING:
        return f"It has wall times only, no results. {RUN_AGAIN}"
    return RUN_AGAIN


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is written as null here")


def _is_plain(value: Any) -> bool:
    if isinstance(value, int):
        return abs(value) <= LARGEST
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, str)


def _write_all(descriptor: int, data: bytes) -> None:
    """Write all bytes. A single os.write may write fewer without an error, as on a full disk."""
    while data:
        data = data[os.write(descriptor, data) :]


def cut_torn_line(path: Path) -> None:
    """Cut off the incomplete last line that a killed writer left."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        _cut(descriptor)
    finally:
        os.close(descriptor)


def _cut(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    data = os.pread(descriptor, TAIL_BYTES, max(0, size - TAIL_BYTES))
    torn = len(data) - (data.rfind(b"\n") + 1)
    if torn:
        os.ftruncate(descriptor, size - torn)


def read_whole(folder: RunFolder, path: Path) -> list[dict[str, Any]]:
    """Read metrics.jsonl or timing.jsonl and verify that it is what the run has written.

    A torn last line is left out.

    Raises:
        RecordError: Lines are damaged, lost or changed, so the run's numbers cannot be used.
    """
    try:
        return _read_once(folder, path)
    except RecordError:
        # A live run may have written the log, but not yet the status, between the two reads.
        return _read_once(folder, path)


def check_logs_at(folder: RunFolder, step: int) -> None:
    """Verify that the logs begin with the lines that were there when a checkpoint was written.

    Raises:
        RecordError: Lines up to ``step``, the step of the checkpoint, were lost or changed.
    """
    for name, known in folder.read_marker(step).logs.items():
        path = folder.path / name
        if RunningSum.of(JsonLines(path).up_to(step)).now() != known:
            raise changed_lines(path, step)


def changed_lines(path: Path, step: int) -> RecordError:
    """Error of a log whose lines before a checkpoint were lost or changed."""
    return RecordError(
        f"{path}: the lines up to step {step} are not those that were there when the checkpoint of "
        f"that step was written. {RUN_AGAIN}"
    )


def _read_once(folder: RunFolder, path: Path) -> list[dict[str, Any]]:
    status = folder.read_status()
    data = read_bytes(path) if path.exists() else b""
    whole = data[: data.rfind(b"\n") + 1]
    known = status.sums.get(path.name)
    lines = None
    if known is not None and RunningSum.of(whole).now() == known:
        lines = _parse_at_once(whole)
    if lines is None:
        # Line by line, for a more precise message than that of the checksum below.
        lines = JsonLines(path).parse(whole)
    steps = [line["step"] for line in lines]
    if any(after <= before for before, after in pairwise(steps)):
        raise RecordError(f"{path}: steps do not ascend. {_remedy(path)}")
    if path == folder.metrics:
        if status.step and not path.exists():
            raise RecordError(
                f"{path} is missing, and {folder.status} says step {status.step}. {RUN_AGAIN}"
            )
        _check_steps(folder, status, steps)
    _check_sum(status, path, data)
    return lines


def _parse_at_once(data: bytes) -> list[dict[str, Any]] | None:
    """Parse all lines at once, which is faster; None if any is not a valid log line."""
    joined = b"[" + data[:-1].replace(b"\n", b",") + b"]"
    try:
        lines: list[dict[str, Any]] = json.loads(joined, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return lines if all(map(_is_line, lines)) else None


def _is_line(record: Any) -> bool:
    return (
        isinstance(record, dict)
        and type(record.get("step")) is int
        and record["step"] >= 0
        and all(map(_is_plain, record.values()))
    )


def _check_sum(status: Status, path: Path, data: bytes) -> None:
    known = status.sums.get(path.name)
    if known is None:
        # Nothing was logged yet.
        return

    done = status.state is State.DONE
    if len(data) < known.bytes or (done and len(data) > known.bytes):
        raise RecordError(
            f"{path} holds {len(data)} bytes, the run has written {known.bytes}: lines were lost "
            f"or added. {_remedy(path)}"
        )
    if RunningSum.of(data[: known.bytes]).now() != known:
        raise RecordError(
            f"{path} does not hold what the run has written (sha256): it was edited or damaged. "
            f"{_remedy(path)}"
        )


def _check_steps(folder: RunFolder, status: Status, steps: list[int]) -> None:
    last = steps[-1] if steps else 0
    if status.state is State.DONE and last != status.steps:
        raise RecordError(
            f"{folder.status} says DONE, but {folder.metrics} ends at step {last} of "
            f"{status.steps}. {RUN_AGAIN}"
        )
    if status.state is not State.DONE and last < status.step:
        raise RecordError(
            f"{folder.metrics} ends at step {last}, and {folder.status} says {status.step}: lines "
            f"were lost. {RUN_AGAIN}"
        )


def read_present(folder: RunFolder, path: Path) -> list[dict[str, Any]]:
    """Verified lines of a log (``read_whole``), without lines that a resumed run will drop.

    Until a resumed run has loaded its checkpoint, the log still has the lines of the killed attempt
    after the checkpoint; those steps are trained again.

    Raises:
        RecordError: See ``read_whole``.
    """
    status = folder.read_status()
    lines = read_whole(folder, path)
    if status.state is not State.RUNNING:
        return lines
    return [line for line in lines if line["step"] <= status.step]


def panels(record: Mapping[str, Any]) -> dict[str, float]:
    """Validation panel -> success rate in a line of metrics.jsonl; empty without validation."""
    rates = {}
    for key, value in record.items():
        # val/<panel>/success_rate. With four parts, it is the rate of a task family.
        parts = key.split("/")
        is_panel = len(parts) == 3 and parts[0] == "val" and parts[2] == SUCCESS
        if is_panel and value is not None:
            rates[parts[1]] = value
    return rates


def before_after(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lines such as ``valid_seen: success 3.3 % -> 51.7 % of 60 episodes (step 0 -> step 25)``."""
    measured = [record for record in records if panels(record)]
    if not measured:
        return []
    first, last = measured[0], measured[-1]
    lines = []
    for panel, rate in panels(last).items():
        episodes = last.get(f"val/{panel}/episodes")
        of = f" of {episodes:g} episodes" if episodes else ""
        start = panels(first).get(panel)
        if start is None or first is last:
            lines.append(f"{panel}: success {100 * rate:.1f} %{of}")
        else:
            steps = f"step {first['step']} -> step {last['step']}"
            change = f"{100 * start:.1f} % -> {100 * rate:.1f} %"
            lines.append(f"{panel}: success {change}{of} ({steps})")
    return lines


def check_end(folder: RunFolder, status: Status) -> None:
    """Verify that a finished run has reached its last step.

    Raises:
        RecordError: Its status is DONE at another step.
    """
    if status.state is State.DONE and status.step != status.steps:
        raise RecordError(
            f"{folder.status} says DONE at step {status.step} of {status.steps}: it was edited. "
            f"{RUN_AGAIN}"
        )


def check_provenance(folder: RunFolder, status: Status, attempts: list[dict[str, Any]]) -> None:
    """Verify that a finished run has a record of its attempts, with their commit and processor.

    Raises:
        RecordError: The run has made attempts, but no record of any exists.
    """
    if status.state is State.DONE and status.attempt and not attempts:
        raise RecordError(
            f"{folder.provenance} is lost: it had the commit and the processor of "
            f"{counted(status.attempt, 'attempt')}. {RUN_AGAIN}"
        )
