"""Atomic, checksummed files: either the old version or the new one, and damage is detected when they are read."""

import contextlib
import functools
import hashlib
import json
import os
import pickle
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeInt,
    ValidationError,
)

from scpo.errors import RecordError, RecordWriteError, first_line


def replace_file(path: Path, data: bytes, *, readable: bool = False, durable: bool = True) -> None:
    """Replace ``path`` by ``data``: a temporary file beside it, flushed to disk, takes its name.

    Args:
        path: Its folder is made if need be.
        data: The whole content.
        readable: By others than its owner, too.
        durable: Survives a power cut; not needed for what is checked when it is read, and made again if it is torn.

    Raises:
        OSError: It cannot be written; ``path`` is what it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if readable:  # mkstemp's files are not
            os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise
    if durable:
        sync(path.parent)


def sync(path: Path) -> None:
    """Make a file's bytes, or the names in a folder (a rename, a new file), survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


YAML_END = "...\n"  # YAML's own end-of-document mark: without it a file cut inside its last number would read as valid


YAML_SUM = "# checksum: "  # of all lines above; the last line before the end mark


RUN_AGAIN = "Delete the run folder to start that run again"


Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C parser is ten times faster, where it was built


Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@contextlib.contextmanager
def naming_write_errors(path: Path, size: int) -> Iterator[None]:
    """Turn an OSError while writing ``path`` into a RecordWriteError that says what was needed and what is intact."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise RecordWriteError(
            error.errno or 0,
            f"cannot write {path} ({size} bytes needed, {_free_bytes(path)} free): {reason}. "
            "What it held before is intact; make room (or fix the permissions) and start the same command again",
        ) from error


def _free_bytes(path: Path) -> str:
    try:
        return str(shutil.disk_usage(path.parent).free)
    except OSError:
        return "unknown"


def write_bytes(path: Path, data: bytes, *, readable: bool = False) -> None:
    """Replace ``path`` by ``data`` atomically; ``readable``: by others than who ran this, too.

    Raises:
        RecordWriteError: It cannot be written; what was there is intact.
    """
    with naming_write_errors(path, len(data)):
        replace_file(path, data, readable=readable)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON record atomically, its checksum last; keys keep their order, floats their repr, NaN is refused."""
    write_bytes(path, (json.dumps(sealed(value), indent=1, ensure_ascii=False, allow_nan=False) + "\n").encode())


def write_yaml(path: Path, value: Any, *, checked: bool = False) -> None:
    """Write YAML atomically; keys keep their order; the last line marks the end.

    Args:
        path: The record.
        value: What YAML knows.
        checked: Its checksum stands in it: nobody is meant to edit it.
    """
    text = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120).encode()
    mark = f"{YAML_SUM}{text_sum(text)}\n" if checked else ""
    write_bytes(path, text + (mark + YAML_END).encode())


def read_json(path: Path, remedy: str = RUN_AGAIN) -> dict[str, Any]:
    """Read a JSON record without its checksum; one that is missing, cut or damaged is a RecordError that names it.

    Args:
        path: The record.
        remedy: What to do about a damaged one.
    """
    try:
        return unsealed(json.loads(read_bytes(path)))
    except (ValueError, TypeError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {error}. {remedy}") from error


def read_yaml(path: Path) -> Any:
    """Read a YAML record that ``write_yaml`` wrote; a missing, cut or damaged file is a RecordError that names it."""
    data = read_bytes(path)
    if not data.endswith(b"\n" + YAML_END.encode()):
        raise RecordError(f"{path} is cut short: it does not end with the line {YAML_END.strip()!r}. {RUN_AGAIN}")
    text, line_break, last = data.removesuffix(b"\n" + YAML_END.encode()).rpartition(b"\n")
    if b"checksum: " in last and last.decode(errors="replace") != YAML_SUM + text_sum(text + line_break):
        raise RecordError(
            f"{path} was edited or damaged: its checksum is not that of its content. Restore it, or "
            f"{RUN_AGAIN[0].lower()}{RUN_AGAIN[1:]}"
        )
    try:
        return pickle.loads(_parsed(data))  # noqa: S301 (written below, in this process)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {first_line(error)}. {RUN_AGAIN}") from error


@functools.lru_cache(maxsize=256)
def _parsed(data: bytes) -> bytes:
    """Pickled: the same record is read again and again, by each who looks at a run, and may be written to."""
    return pickle.dumps(yaml.load(data, Loader=Loader))  # noqa: S506 (a safe loader, chosen above)


def read_bytes(path: Path) -> bytes:
    """Read a record whole; a missing or unreadable file is a RecordError that names it."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise RecordError(f"cannot read record {path}: {error.strerror}") from error


Model = TypeVar("Model", bound=BaseModel)


Count = Annotated[int, Field(ge=0, lt=1 << 53)]  # what every JSON reader takes for a whole number


class Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def read_record(path: Path, model: type[Model], what: str, remedy: str = RUN_AGAIN) -> Model:
    """Read a JSON record.

    Raises:
        RecordError: It is missing, cut, damaged or of another form; ``what`` says what it should be.
    """
    try:
        return model.model_validate(read_json(path, remedy))
    except ValidationError as error:
        raise RecordError(f"{path} is no valid {what}: {first_complaint(error)}. {remedy}") from error


def first_complaint(error: ValidationError) -> str:
    """The first thing that is wrong, and where."""
    detail = error.errors()[0]
    place = ".".join(map(str, detail["loc"]))
    return f"{place}: {detail['msg']}" if place else str(detail["msg"])
