"""An append-only log of JSON objects, one a line, each on disk before the call returns."""

import contextlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from scpo.errors import RecordError
from scpo.tracking.atomic import naming_write_errors, read_bytes, write_bytes

TAIL_BYTES = 1 << 16  # more than any line: one read finds the last one


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

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one line and wait until it is on disk; a line that does not fit on the disk leaves no trace."""
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

    def records(self) -> list[dict[str, Any]]:
        """All whole lines; a line that is no JSON object raises RecordError with its number."""
        return list(self._parse(read_bytes(self.path))) if self.path.exists() else []

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

    def truncate_after(self, step: int) -> None:
        """Keep the lines up to and including ``step`` (atomically), as a run that resumes from that step needs."""
        self.close()
        kept = [record for record in self.records() if record["step"] <= step]
        if self.path.exists():
            write_bytes(self.path, b"".join(map(to_line, kept)))

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

    def _parse(self, data: bytes) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(data.split(b"\n")[:-1], start=1):
            yield self._object(line, f"line {number}")

    def _object(self, line: bytes, where: str) -> dict[str, Any]:
        try:
            record = json.loads(line)
        except ValueError as error:
            raise RecordError(f"{self.path}, {where} is damaged: {error}") from error
        if not isinstance(record, dict) or not isinstance(record.get("step"), int):
            raise RecordError(f"{self.path}, {where} is damaged: not a JSON object with an integer `step`")
        return record


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
