"""Records that are either the old version or the new one, errors that say what is intact, readers that name damage."""

import contextlib
import functools
import json
import pickle
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from scpo.checksums import sealed, text_sum, unsealed
from scpo.errors import RecordError, RecordWriteError, first_line
from scpo.whole_file import replace_file

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
