"""What was written, in a few bytes: so that a file that changed since is named, and not believed."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, NonNegativeInt

SEAL = "checksum"  # the key of a JSON record that speaks of all its others
SEAL_LENGTH = 16  # hexadecimal digits of a sha256: 64 bits find any accident
_BLOCK = 1 << 20
_READERS = 4  # hashlib lets go of the interpreter: one core does some 1.5 GB/s, a disk often more


class FileSum(BaseModel):
    """The first ``bytes`` of a file have this ``sha256``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bytes: NonNegativeInt
    sha256: str


class RunningSum:
    """The sum of a file that only grows, without reading it again."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._bytes = 0

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Begin with what is there."""
        made = cls()
        made.add(data)
        return made

    def add(self, data: bytes) -> None:
        """It grew by these bytes."""
        self._hash.update(data)
        self._bytes += len(data)

    def now(self) -> FileSum:
        """The sum so far."""
        return FileSum(bytes=self._bytes, sha256=self._hash.hexdigest())


def file_sum(path: Path, first: int | None = None) -> FileSum:
    """The sum of a file's ``first`` bytes, or of all; of a shorter file that of all it has.

    Raises:
        OSError: It cannot be read.
    """
    left = path.stat().st_size if first is None else first
    seen = RunningSum()
    with path.open("rb") as file:
        while left > 0 and (block := file.read(min(left, _BLOCK))):
            seen.add(block)
            left -= len(block)
    return seen.now()


def change(path: Path, known: FileSum, *, whole: bool) -> str | None:
    """How a file differs from what is known of it, in a few words; None: it does not.

    Args:
        path: The file.
        known: What its writer noted of it.
        whole: It may not have grown since.
    """
    try:
        size = path.stat().st_size
        if size < known.bytes or (whole and size > known.bytes):
            return f"holds {size} bytes, not the {known.bytes} that were written"
        return None if file_sum(path, known.bytes) == known else "does not hold what was written (sha256)"
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def folder_sums(folder: Path, leave_out: Iterable[str] = ()) -> dict[str, FileSum]:
    """The sums of all files below a folder, by their paths in it; big files at the same time."""
    paths = {str(path.relative_to(folder)): path for path in sorted(folder.rglob("*")) if path.is_file()}
    for name in leave_out:
        paths.pop(name, None)
    with ThreadPoolExecutor(_READERS) as readers:
        return dict(zip(paths, readers.map(file_sum, paths.values()), strict=True))


def folder_change(folder: Path, known: Mapping[str, FileSum]) -> str | None:
    """The first file of a folder that is not what its writer noted, and how; None: all are."""
    with ThreadPoolExecutor(_READERS) as readers:
        changes = readers.map(lambda name: change(folder / name, known[name], whole=True), known)
        return next((f"{name} {what}" for name, what in zip(known, changes, strict=True) if what), None)


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON record with its checksum as the last key."""
    rest = {key: value for key, value in record.items() if key != SEAL}
    return {**rest, SEAL: _digest(rest)}


def unsealed(record: Any) -> dict[str, Any]:
    """The record without its checksum; one that never had any, as those of older versions, is taken as it is.

    Raises:
        ValueError: The checksum is another one.
        TypeError: It is no object.
    """
    if not isinstance(record, dict):
        raise TypeError(f"a JSON object was expected, got {type(record).__name__}")
    if SEAL not in record:
        return record
    rest = {key: value for key, value in record.items() if key != SEAL}
    if record[SEAL] != _digest(rest):
        raise ValueError("its checksum is not that of its content: it was edited or damaged")
    return rest


def text_sum(data: bytes) -> str:
    """The checksum of a text, as records hold it."""
    return hashlib.sha256(data).hexdigest()[:SEAL_LENGTH]


def _digest(record: Mapping[str, Any]) -> str:
    return text_sum(json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode())
