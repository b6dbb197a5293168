"""Append-only logs of JSON lines (metrics.jsonl, timing.jsonl), and a reader that verifies that they are complete."""

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
from scpo.records.files import RUN_AGAIN, RunningSum, naming_write_errors, read_bytes, write_bytes
from scpo.records.run_folders import RunFolder
from scpo.records.status import State, Status

TAIL_BYTES = 1 << 16  # more than any line: one read finds the last one


LARGEST = 1 << 53  # of whole numbers that every reader takes for what they are


def to_line(record: Mapping[str, Any]) -> bytes:
    """One line: ``step`` first, the other keys sorted, floats by repr, so that equal values are equal bytes.

    Mini-batches without a failed sibling and the like give means over nothing: NaN and the infinities become null.
    """
    keys = sorted(record, key=lambda key: (key != "step", key))
    return json.dumps({key: _plain(record[key]) for key in keys}, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value) if math.isfinite(value) else None
    raise TypeError(f"a log line holds numbers, strings and null, not {type(value).__name__} ({value!r})")


class JsonLines:
    """The log at ``path``. A line counts once its line break is written: a torn last line is skipped, then cut off."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def append(self, record: Mapping[str, Any]) -> bytes:
        """Add one line, wait until it is on disk and return it; one that does not fit on the disk leaves no trace."""
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
        """All whole lines; a line that is no JSON object raises RecordError with its number."""
        return self.parse(self.whole_lines())

    def whole_lines(self) -> bytes:
        """The bytes up to the last line break; none where there is no file."""
        data = read_bytes(self.path) if self.path.exists() else b""
        return data[: data.rfind(b"\n") + 1]

    def parse(self, data: bytes) -> list[dict[str, Any]]:
        """The lines in what was read of this log; RecordError for one that is damaged."""
        lines = data.split(b"\n")[:-1]
        return [self._object(line, f"line {number}") for number, line in enumerate(lines, start=1)]

    def up_to(self, step: int) -> bytes:
        """The lines up to and including ``step``, as they are on disk; whatever stands behind them is not looked at."""
        kept = []
        for number, line in enumerate(self.whole_lines().split(b"\n")[:-1], start=1):
            if self._object(line, f"line {number}")["step"] > step:
                break
            kept.append(line + b"\n")
        return b"".join(kept)

    def last(self) -> dict[str, Any] | None:
        """The last whole line, without reading the file's beginning."""
        if not self.path.exists():
            return None
        with self.path.open("rb") as file:
            start = max(0, file.seek(0, os.SEEK_END) - TAIL_BYTES)
            file.seek(start)
            lines = file.read().split(b"\n")[:-1]
        if len(lines) < 2 and start > 0:
            raise RecordError(f"{self.path}: the last line is longer than {TAIL_BYTES} bytes")
        return self._object(lines[-1], "the last line") if lines else None

    def replace(self, lines: bytes) -> None:
        """Put these lines in the place of all (atomically), as a run that resumes from an earlier step needs."""
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
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            _cut(descriptor)
            self._descriptor = descriptor
        return self._descriptor

    def _object(self, line: bytes, where: str) -> dict[str, Any]:
        try:
            record = json.loads(line, parse_constant=_refuse)
        except (ValueError, RecursionError) as error:
            raise RecordError(f"{self.path}, {where} is damaged: {error}. {RUN_AGAIN}") from error
        if not isinstance(record, dict) or type(record.get("step")) is not int:
            raise RecordError(f"{self.path}, {where} is damaged: not a JSON object with an integer `step`. {RUN_AGAIN}")
        odd = next((key for key, value in record.items() if not _is_plain(value)), None)
        if odd is not None or record["step"] < 0:
            key = "step" if odd is None else odd
            raise RecordError(
                f"{self.path}, {where} is damaged: {key} is {str(record[key])[:40]!r}, which nothing logs. {RUN_AGAIN}"
            )
        return record


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is written as null here")


def _is_plain(value: Any) -> bool:
    if isinstance(value, int):
        return abs(value) <= LARGEST
    return value is None or isinstance(value, str) or (isinstance(value, float) and math.isfinite(value))


def _write_all(descriptor: int, data: bytes) -> None:
    """os.write may stop short without an error, as it does on a disk that fills up."""
    while data:
        data = data[os.write(descriptor, data) :]


def cut_torn_line(path: Path) -> None:
    """Cut off what a killed writer left behind the last line break."""
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
    """The lines of ``metrics.jsonl`` or ``timing.jsonl``; a last line that a kill has torn is left out.

    A run that goes on rewrites status and logs one after the other, so what does not fit is looked at once more.

    Raises:
        RecordError: Lines are damaged, lost or not those that the run wrote: none of its numbers can be believed.
    """
    try:
        return _read_once(folder, path)
    except RecordError:
        return _read_once(folder, path)


def _read_once(folder: RunFolder, path: Path) -> list[dict[str, Any]]:
    status = folder.read_status()
    data = read_bytes(path) if path.exists() else b""
    whole = data[: data.rfind(b"\n") + 1]
    known = status.sums.get(path.name)
    if known is not None and RunningSum.of(whole).now() == known:
        # As they were written: there is nothing to look for.
        lines: list[dict[str, Any]] = json.loads(b"[" + whole[:-1].replace(b"\n", b",") + b"]")
    else:
        lines = JsonLines(path).parse(whole)  # first what says most: a line, a step, a sum
    if path == folder.metrics:
        _check_steps(folder, status, [line["step"] for line in lines])
    _check_sum(status, path, data)
    return lines


def _check_sum(status: Status, path: Path, data: bytes) -> None:
    known = status.sums.get(path.name)
    if known is None:
        return  # of an older version, or nothing is logged yet
    done = status.state is State.DONE
    if len(data) < known.bytes or (done and len(data) > known.bytes):
        raise RecordError(
            f"{path} holds {len(data)} bytes, the run has written {known.bytes}: lines were lost or added. "
            f"Restore the file, or d{RUN_AGAIN[1:]}"
        )
    if RunningSum.of(data[: known.bytes]).now() != known:
        raise RecordError(
            f"{path} does not hold what the run has written (sha256): it was edited or damaged. "
            f"Restore the file, or d{RUN_AGAIN[1:]}"
        )


def _check_steps(folder: RunFolder, status: Status, steps: list[int]) -> None:
    if any(after <= before for before, after in pairwise(steps)):
        raise RecordError(f"{folder.metrics}: steps do not ascend. {RUN_AGAIN}")
    last = steps[-1] if steps else 0
    if status.state is State.DONE and last != status.steps:
        raise RecordError(
            f"{folder.status} says DONE, but {folder.metrics} ends at step {last} of {status.steps}. {RUN_AGAIN}"
        )
    if status.state is not State.DONE and last < status.step:
        raise RecordError(
            f"{folder.metrics} ends at step {last}, and {folder.status} says {status.step}: lines were lost. "
            f"Restore the file, or d{RUN_AGAIN[1:]}"
        )


SUCCESS = "success_rate"


def panels(record: Mapping[str, Any]) -> dict[str, float]:
    """Validation panel -> its success rate, of a line of metrics.jsonl that has any."""
    keys = [key.split("/") for key in record]
    names = [key[1] for key in keys if len(key) == 3 and key[0] == "val" and key[2] == SUCCESS]
    return {name: record[f"val/{name}/{SUCCESS}"] for name in names if record[f"val/{name}/{SUCCESS}"] is not None}


def before_after(records: Sequence[Mapping[str, Any]]) -> list[str]:
    """A line for each validation panel: ``valid_seen: 3.3 % -> 51.7 % of 60 episodes (step 0 -> step 25)``."""
    measured = [record for record in records if panels(record)]
    if not measured:
        return []
    first, last = measured[0], measured[-1]
    lines = []
    for panel, rate in panels(last).items():
        episodes = last.get(f"val/{panel}/episodes")
        of = f" of {episodes:g} episodes" if episodes else ""
        start = panels(first).get(panel)
        if start is None or panels(first) == panels(last):
            lines.append(f"{panel}: success {100 * rate:.1f} %{of}")
        else:
            steps = f"step {first['step']} -> step {last['step']}"
            lines.append(f"{panel}: success {100 * start:.1f} % -> {100 * rate:.1f} %{of} ({steps})")
    return lines
