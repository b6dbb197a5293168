"""Reading W&B's transaction log, the ``run-<id>.wandb`` file of an offline (or online) run, without network.

The file is a LevelDB log: a 7-byte head, then 32-KiB blocks of records, each with a CRC-32, a
length and a kind, since a record may be spread over blocks. Each whole record is a protobuf message
of the wandb package (format of wandb 0.31).
"""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scpo.errors import RecordError

from analysis.sources.differences import leaves

MAGIC = b":W&B\xe1\xbe"
FILE_HEAD, BLOCK = 7, 32768  # bytes; the file's head is one byte of version longer than the magic
RECORD_HEAD = struct.Struct("<IHB")  # CRC-32 of kind and data, length, kind
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4


@dataclass
class LoggedRun:
    """What one transaction log holds. ``exit_code`` is None when the run was killed before it could say goodbye."""

    id: str = ""
    project: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    lines: list[dict[str, Any]] = field(
        default_factory=list
    )  # one a step: {"step": n, metric: value}
    exit_code: int | None = None
    damaged: int = 0  # places where bytes were skipped


def read_transaction_log(path: Path) -> LoggedRun:
    """Read all that is whole; of a run that was killed the torn end is skipped and counted.

    Raises:
        RecordError: The file is none of W&B's, cannot be read, or wandb is not installed.
    """
    try:
        from wandb.proto.wandb_internal_pb2 import Record  # type: ignore[attr-defined]  # made when it is imported
    except ImportError as error:
        raise RecordError(
            f"{path.name} is a W&B log; to read it: pip install 'scpo[track]'"
        ) from error
    run = LoggedRun()
    for payload in _payloads(_read(path), run):
        record = Record()
        record.ParseFromString(payload)
        _take(run, record)
    run.config.pop("_wandb", None)
    run.id = run.id or path.stem.removeprefix("run-")
    return run


def _read(path: Path) -> bytes:
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RecordError(f"{path.name} cannot be read: {error.strerror}") from error
    if not data.startswith(MAGIC):
        raise RecordError(
            f"{path.name} is no W&B log: it starts with {data[:6]!r}, not {MAGIC!r}. Delete or "
            f"move it."
        )
    return data


def _payloads(data: bytes, run: LoggedRun) -> Iterator[bytes]:
    """Whole payloads. After damage reading goes on at the next block, where a record's head stands again."""
    place, parts = FILE_HEAD, b""
    while place + RECORD_HEAD.size <= len(data):
        left = BLOCK - place % BLOCK
        if left < RECORD_HEAD.size:  # too little for a head: padding
            place += left
            continue
        checksum, length, kind = RECORD_HEAD.unpack_from(data, place)
        part = data[place + RECORD_HEAD.size : place + RECORD_HEAD.size + length]
        whole = len(part) == length <= left - RECORD_HEAD.size and FULL <= kind <= LAST
        if not whole or zlib.crc32(bytes([kind]) + part) != checksum:
            run.damaged += 1
            place, parts = place + left, b""
            continue
        place += RECORD_HEAD.size + length
        parts = part if kind in (FULL, FIRST) else parts + part if parts else b""
        if kind in (FULL, LAST) and parts:
            yield parts


def _take(run: LoggedRun, record: Any) -> None:
    kind = record.WhichOneof("record_type")
    if kind == "run":
        run.id, run.project = record.run.run_id, record.run.project
        _assign(run.config, record.run.config.update)
    elif kind == "config":
        _assign(run.config, record.config.update)
    elif kind == "history":
        line: dict[str, Any] = {}
        _assign(line, record.history.item)
        step = record.history.step.num if record.history.HasField("step") else line.get("_step")
        run.lines += [{"step": step, **flat(line)}] if isinstance(step, int) else []
    elif kind == "exit":
        run.exit_code = record.exit.exit_code


def _assign(target: dict[str, Any], items: Iterable[Any]) -> None:
    for item in items:
        *parents, key = list(item.nested_key) or [item.key]
        place = target
        for parent in parents:
            place = place.setdefault(parent, {})
        place[key] = json.loads(item.value_json)


def flat(line: Mapping[str, Any]) -> dict[str, Any]:
    """Nested metrics under dotted names, as W&B shows them; W&B's own keys (``_step``, ``_runtime``) left out."""
    logged = {key: value for key, value in line.items() if not key.startswith("_")}
    return {key: value for key, value in leaves(logged) if value != {}}
