"""Atomic, checksummed files and the locks on them.

If a process is killed, a file is either the old or the new version, never a mixture. JSON and YAML
records hold a checksum of their content, which detects damage when they are read.
"""

import contextlib
import errno
import fcntl
import functools
import hashlib
import json
import os
import pickle
import pwd
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, ValidationError

from scpo.errors import (
    RAISE_FILE_LIMIT,
    RecordError,
    RecordWriteError,
    UnreadableError,
    first_line,
)

# Key of a JSON record with the checksum of all other keys.
SEAL = "checksum"

# Number of hexadecimal digits of a SHA-256 that are kept: 64 bits detect any accident.
SEAL_LENGTH = 16

# YAML's end-of-document mark. Without it, a file that is cut inside its last number would be valid.
YAML_END = "...\n"

# Prefix of the last line before the end mark, with the checksum of all lines above.
YAML_SUM = "# checksum: "

# Largest number of values of a document. A configuration has some 300, but in a malicious file
# aliases of aliases expand to billions.
YAML_VALUES = 100_000

# Attempts to take a lock, and the pause between two of them: `is_locked` holds a lock for a moment,
# which must not look like a running process.
LOCK_ATTEMPTS = 4
LOCK_PAUSE_S = 0.02

# Remedies in messages. None deletes a run folder: the run may be finished, and its numbers whole.
RUN_AGAIN = "Restore the file from a copy, or move the run folder away to start that run again"
SAMPLE = (
    "Figures are made without it; no metric or result depends on it. Restore it from a copy, or, "
    "if you need it, move the run folder away and run it again"
)

# The C parser is ten times faster, but not every installation has it.
Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
_BLOCK = 1 << 20

# Number of threads that hash files. hashlib releases the interpreter's lock, and many disks are
# faster than the 1.5 GB/s of one core.
_READERS = 4

Model = TypeVar("Model", bound=BaseModel)

# Non-negative integers that every JSON reader represents exactly.
Count = Annotated[int, Field(ge=0, lt=1 << 53)]


class Record(BaseModel):
    """Base of the records that a run writes."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class FileSum(BaseModel):
    """SHA-256 of the first ``bytes`` bytes of a file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    bytes: NonNegativeInt
    sha256: str


class RunningSum:
    """Checksum of an append-only file, updated without reading the file again."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self._bytes = 0

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Start from the bytes that are in the file already."""
        running = cls()
        running.add(data)
        return running

    def add(self, data: bytes) -> None:
        """Add appended bytes."""
        self._hash.update(data)
        self._bytes += len(data)

    def now(self) -> FileSum:
        """The checksum of all bytes so far."""
        return FileSum(bytes=self._bytes, sha256=self._hash.hexdigest())


def replace_file(path: Path, data: bytes, *, readable: bool = False, durable: bool = True) -> None:
    """Replace ``path`` by ``data`` atomically: temporary file, fsync, rename.

    Args:
        path: The file; missing parent folders are created.
        data: The whole content.
        readable: Give other users read permission.
        durable: Survive a power cut. Not needed for caches, which verify and rebuild their files.

    Raises:
        OSError: It cannot be written; ``path`` is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # In the same folder, because a rename is atomic only within a file system.
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if readable:
            # mkstemp creates private files.
            os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
        raise

    if durable:
        sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file's bytes, or the names in a folder (after a rename), to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path, *, wait: bool = False) -> Iterator[bool]:
    """Hold an exclusive lock for the ``with`` block; False if another process holds it.

    The kernel releases a flock when its holder dies in any way, so there are no stale locks.

    Args:
        path: The lock file; created if missing.
        wait: Block until the other process releases it.

    Raises:
        RecordWriteError: The lock file cannot be opened.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise RecordWriteError(
            error.errno or 0, f"cannot open the lock {path}: {error.strerror}"
        ) from error

    try:
        if wait:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield wait or _lock_now(descriptor)
    finally:
        os.close(descriptor)


def _lock_now(descriptor: int) -> bool:
    """Lock an open file; False if another process still holds the lock after a few attempts."""
    for attempt in range(LOCK_ATTEMPTS):
        if attempt:
            time.sleep(LOCK_PAUSE_S)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        return True
    return False


def is_locked(path: Path) -> bool:
    """True if a process holds this lock; on other hosts, only if the file system forwards locks."""
    try:
        # Read-only, so that it works on a read-only mount, too. Without O_NONBLOCK, a pipe of this
        # name would block every command.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except FileNotFoundError:
        return False
    except OSError:
        # Without permission, assume that the lock is held: a second process would do more harm.
        return True

    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def file_sum(path: Path, first: int | None = None) -> FileSum:
    """Checksum of a file's ``first`` bytes (None: all); of all bytes if the file is shorter.

    Raises:
        OSError: The file cannot be read.
    """
    left = path.stat().st_size if first is None else first
    seen = RunningSum()
    with path.open("rb") as file:
        # Block by block, because checkpoints may be larger than the free memory.
        while left > 0 and (block := file.read(min(left, _BLOCK))):
            seen.add(block)
            left -= len(block)
    return seen.now()


def change(path: Path, known: FileSum, *, whole: bool, contents: bool = True) -> str | None:
    """Describe how a file differs from its recorded checksum; None if it does not.

    Args:
        path: The file.
        known: The checksum that its writer recorded.
        whole: True if the file must not have grown since; False for a log.
        contents: Read the file; False: compare its size only.

    Raises:
        UnreadableError: This user has no permission to read it.
    """
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            return "is not a regular file"
        size = status.st_size
        # The size is compared first, because it needs no reading.
        if size < known.bytes or (whole and size > known.bytes):
            return f"holds {size} bytes, not the {known.bytes} that were written"
        if not contents or file_sum(path, known.bytes) == known:
            return None
        return "does not hold what was written (sha256)"
    except PermissionError as error:
        raise no_permission(path) from error
    except OSError as error:
        return f"cannot be read ({error.strerror})"


def folder_sums(folder: Path, leave_out: Iterable[str] = ()) -> dict[str, FileSum]:
    """Checksums of all files below a folder, by relative path; several files are read at once."""
    paths = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            paths[str(path.relative_to(folder))] = path
    for name in leave_out:
        paths.pop(name, None)
    with ThreadPoolExecutor(_READERS) as readers:
        return dict(zip(paths, readers.map(file_sum, paths.values()), strict=True))


def folder_change(
    folder: Path, known: Mapping[str, FileSum], *, contents: bool = True
) -> str | None:
    """Describe the first file of a folder that differs from its checksum; None if all match.

    ``contents``: read the files; False: compare their sizes only.
    """

    def changed(name: str) -> str | None:
        return change(folder / name, known[name], whole=True, contents=contents)

    with ThreadPoolExecutor(_READERS) as readers:
        for name, what in zip(known, readers.map(changed, known), strict=True):
            if what:
                return f"{name} {what}"
    return None


def sealed(record: Mapping[str, Any]) -> dict[str, Any]:
    """A JSON record with its checksum as the last key."""
    rest = {key: value for key, value in record.items() if key != SEAL}
    return {**rest, SEAL: _digest(rest)}


def unsealed(record: Any) -> dict[str, Any]:
    """Verify a JSON record's checksum and return the record without it.

    Raises:
        ValueError: The checksum is missing, or does not match the content.
        TypeError: The record is not a JSON object.
    """
    if not isinstance(record, dict):
        raise TypeError(f"a JSON object was expected, got {type(record).__name__}")
    if SEAL not in record:
        raise ValueError(f"it has no {SEAL!r}: it was edited, or another program wrote it")
    rest = {key: value for key, value in record.items() if key != SEAL}
    if record[SEAL] != _digest(rest):
        raise ValueError("its checksum is not that of its content: it was edited or damaged")
    return rest


def text_sum(data: bytes) -> str:
    """Checksum of a text, shortened to the length in records."""
    return hashlib.sha256(data).hexdigest()[:SEAL_LENGTH]


def _digest(record: Mapping[str, Any]) -> str:
    # A canonical form, so that the checksum does not depend on the order of keys or white space.
    text = json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return text_sum(text.encode())


@contextlib.contextmanager
def naming_write_errors(path: Path, size: int) -> Iterator[None]:
    """Turn an OSError into a RecordWriteError with the needed and the free space, and a remedy.

    Args:
        path: The file that is written; its old content must be intact after a failure.
        size: Number of bytes to write.
    """
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            raise RecordWriteError(
                error.errno or 0,
                f"cannot write {path}: {reason}; its folder is not there and could not be made. "
                "Name another folder",
            ) from error
        remedy = "make room (or fix the permissions)"
        if error.errno == errno.EFBIG:
            remedy = RAISE_FILE_LIMIT
        raise RecordWriteError(
            error.errno or 0,
            f"cannot write {path} ({size} bytes needed, {free_bytes(path)} free): {reason}. "
            f"What it held before is intact; {remedy} and start the same command again",
        ) from error


def free_bytes(path: Path) -> str:
    """Free bytes where a file would be written, on the disk of its nearest folder."""
    for folder in path.absolute().parents:
        if folder.exists():
            try:
                return str(shutil.disk_usage(folder).free)
            except OSError:
                break
    return "unknown"


def write_bytes(path: Path, data: bytes, *, readable: bool = False) -> None:
    """Replace ``path`` by ``data`` atomically; ``readable`` gives other users read permission.

    Raises:
        RecordWriteError: It cannot be written; the old content is intact.
    """
    with naming_write_errors(path, len(data)):
        replace_file(path, data, readable=readable)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Write a JSON record atomically, with its checksum as the last key.

    Keys keep their order, floats are written as ``repr``, and NaN raises ValueError.
    """
    text = json.dumps(sealed(value), indent=1, ensure_ascii=False, allow_nan=False)
    write_bytes(path, (text + "\n").encode())


def write_yaml(path: Path, value: Any, *, checked: bool = False) -> None:
    """Write YAML atomically; the last line marks the end.

    Args:
        path: The record.
        value: Mappings, sequences and scalars.
        checked: Add a checksum, for files that users should not edit.
    """
    # Not sorted, because the order of the schema is easier to read.
    text = yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=120).encode()
    mark = f"{YAML_SUM}{text_sum(text)}\n" if checked else ""
    write_bytes(path, text + (mark + YAML_END).encode())


def read_json(path: Path, remedy: str = RUN_AGAIN) -> dict[str, Any]:
    """Read a JSON record and verify its checksum.

    Args:
        path: The record.
        remedy: How to recover from a damaged record, for the message.

    Raises:
        RecordError: The record is missing, cut short or damaged.
    """
    data = read_bytes(path, remedy)
    try:
        return unsealed(json.loads(data))
    except (ValueError, TypeError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {error}. {remedy}") from error


def read_yaml(path: Path) -> Any:
    """Read a YAML record of ``write_yaml`` and verify its end mark and, if present, its checksum.

    Raises:
        RecordError: The record is missing, cut short or damaged.
    """
    data = read_bytes(path, RUN_AGAIN)
    end = b"\n" + YAML_END.encode()
    if not data.endswith(end):
        raise RecordError(
            f"{path} is cut short: it does not end with the line {YAML_END.strip()!r}. {RUN_AGAIN}"
        )

    text, line_break, last = data.removesuffix(end).rpartition(b"\n")
    expected = YAML_SUM + text_sum(text + line_break)
    # Records that users may edit have no checksum.
    if b"checksum: " in last and last.decode(errors="replace") != expected:
        raise RecordError(
            f"{path} was edited or damaged: its checksum is not that of its content. {RUN_AGAIN}"
        )
    try:
        return pickle.loads(_parsed(data))  # noqa: S301 (pickled below, in this process)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RecordError(f"{path} is damaged: {first_line(error)}. {RUN_AGAIN}") from error


def yaml_problem(path: Path | str, error: yaml.YAMLError) -> str:
    """Message with file, line and column of a YAML file that cannot be parsed."""
    if not isinstance(error, yaml.MarkedYAMLError):
        return f"{path} is no YAML: {first_line(error)}"
    mark = error.problem_mark or error.context_mark
    problem = error.problem or error.context
    place = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    return f"{path}{place}: no YAML: {problem}"


@functools.lru_cache(maxsize=256)
def _parsed(data: bytes) -> bytes:
    """Parse YAML and return the value pickled.

    The result is cached, because several readers read the same record. Each unpickles a copy of its
    own, which it may modify.
    """
    value = yaml.load(data, Loader=Loader)  # noqa: S506 (a safe loader, chosen above)
    _count_values(value, 0)
    return pickle.dumps(value)


def _count_values(value: Any, before: int) -> int:
    """Count the values of a document with aliases expanded, starting from ``before``.

    Raises:
        ValueError: There are more than YAML_VALUES.
    """
    count = before + 1
    if count > YAML_VALUES:
        raise ValueError(f"it expands to more than {YAML_VALUES} values, which no record has")
    if isinstance(value, dict):
        children: Iterable[Any] = value.values()
    else:
        children = value if isinstance(value, list) else ()
    for child in children:
        count = _count_values(child, count)
    return count


def read_bytes(path: Path, remedy: str = "") -> bytes:
    """Read all bytes of a record.

    Args:
        path: The record.
        remedy: How to recover from a missing record, for the message.

    Raises:
        RecordError: The file is missing, unreadable or not a regular file.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            # Reading a pipe would block for ever.
            raise RecordError(f"cannot read record {path}: it is not a regular file")
        return path.read_bytes()
    except PermissionError as error:
        # Without the remedy, which may be to delete records that are undamaged.
        raise no_permission(path) from error
    except OSError as error:
        advice = f". {remedy}" if remedy else ""
        raise RecordError(f"cannot read record {path}: {error.strerror}{advice}") from error


def check_readable(folder: Path) -> None:
    """Check that this user may list a folder and open its files; a missing folder passes.

    Without this check, ``glob`` and ``exists`` would find nothing in it or raise other errors.

    Raises:
        UnreadableError: There is no permission.
    """
    try:
        # Not `exists`, which raises if a parent folder may not be opened.
        os.stat(folder)
    except PermissionError as error:
        raise no_permission(folder) from error
    except OSError:
        return
    if not is_open(folder):
        raise no_permission(folder)


def no_permission(path: Path) -> UnreadableError:
    """The error of a path that this user may not read, with its owner and how to get permission."""
    # If a folder above may not be opened, permission for the outermost such folder is needed.
    outer = [place for place in reversed(path.absolute().parents) if not is_open(place, os.X_OK)]
    place = outer[0] if outer else path
    try:
        status = place.stat()
        owner, mode = _user(status.st_uid), f", mode {stat.S_IMODE(status.st_mode):o}"
    except OSError:
        owner, mode = "its owner", ""
    whole = place if place.is_dir() else place.parent
    return UnreadableError(
        f"cannot read {place}: permission denied (owner {owner}{mode}; you are "
        f"{_user(os.geteuid())}). Ask {owner} for permission: chmod -R a+rX {whole}"
    )


def owner(path: Path) -> str:
    """Name of the user to whom a path belongs; "another user" if it cannot be found out."""
    try:
        return _user(path.stat().st_uid)
    except OSError:
        return "another user"


def is_open(folder: Path, mode: int = os.R_OK | os.X_OK) -> bool:
    """True if this user has the access ``mode`` to a folder: by default, to list and open it."""
    return os.access(folder, mode, effective_ids=os.access in os.supports_effective_ids)


def _user(number: int) -> str:
    """Name of a user, or the number of one without a name."""
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def read_record(path: Path, model: type[Model], what: str, remedy: str = RUN_AGAIN) -> Model:
    """Read a JSON record and validate it.

    Args:
        path: The record.
        model: Its schema.
        what: Its kind, for the message.
        remedy: How to recover from a damaged record, for the message.

    Raises:
        RecordError: The record is missing, cut short, damaged or invalid.
    """
    try:
        return model.model_validate(read_json(path, remedy))
    except ValidationError as error:
        complaint = first_complaint(error)
        raise RecordError(f"{path} is no valid {what}: {complaint}. {remedy}") from error


def first_complaint(error: ValidationError) -> str:
    """The first error of a validation, with the path of its key."""
    detail = error.errors()[0]
    place = ".".join(map(str, detail["loc"]))
    if place:
        return f"{place}: {detail['msg']}"
    return str(detail["msg"])
