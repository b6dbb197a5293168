"""Index of an archive of finished runs: checksums of its files and of each run in them.

An archive consists of three files, which change together or not at all:

1. ``metrics.parquet`` and ``runs.parquet`` are written next to the old ones, with the suffix
   ``STAGED``.
2. ``experiments.json``, the index, is replaced. This commits the change.
3. The two new files get their final names.

At any point, a reader takes the copy of each file that has the checksum in the index.
"""

import json
import shlex
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from scpo.errors import RecordError, first_line
from scpo.records.files import SEAL, FileSum, change, first_complaint, read_bytes, unsealed

METRICS, RUNS, INDEX = "metrics.parquet", "runs.parquet", "experiments.json"
STAGED = ".new"
FORMAT = 2


class RunSums(BaseModel):
    """Checksums of a run's line in ``runs.parquet`` and of its rows in ``metrics.parquet``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    line: str
    metrics: str


class ArchiveIndex(BaseModel):
    """``experiments.json``; each of ``experiments`` is a record with a checksum of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal[2]
    files: dict[str, FileSum]
    runs: dict[str, RunSums]
    experiments: list[dict[str, Any]]


def is_archive(folder: Path) -> bool:
    """True if a folder is an archive; a folder of built tables has no index."""
    return (folder / INDEX).is_file()


def lost_index(folder: Path) -> bool:
    """True if a folder has an archive's tables but no index, without which nothing can be read."""
    if is_archive(folder):
        return False
    tables = [folder / f"{name}{end}" for name in (METRICS, RUNS) for end in ("", STAGED)]
    return any(table.is_file() for table in tables)


def read_index(folder: Path) -> tuple[ArchiveIndex, str | None]:
    """Read the index of an archive.

    Returns:
        The index, and a note if it has no checksum of its own; None if it has. Callers must then
        check each run.

    Raises:
        RecordError: The index is missing, not JSON, of another form, or was changed: its checksum
            or that of a record in it is not that of the content. Without its own record, a row of
            an experiment could be taken from another experiment.
    """
    damage = None
    try:
        record = json.loads(read_bytes(folder / INDEX))
        try:
            content = unsealed(record)
        except ValueError as error:
            damage = str(error)
            content = {key: value for key, value in record.items() if key != SEAL}
        index = ArchiveIndex.model_validate(content)
    except ValidationError as error:
        raise unreadable(folder, f"{INDEX}: {first_complaint(error)}") from error
    except (RecordError, ValueError, TypeError, RecursionError) as error:
        raise unreadable(folder, f"{INDEX}: {first_line(error)}") from error
    if damaged := _damaged_records(index):
        raise unreadable(folder, f"{INDEX}: edited or damaged records: {', '.join(damaged)}")
    if damage and SEAL in record:
        raise unreadable(folder, f"{INDEX}: {damage}")
    return index, damage


def _damaged_records(index: ArchiveIndex) -> list[str]:
    """Names of the experiments whose records do not have the checksum of their content."""
    names = []
    for number, record in enumerate(index.experiments, start=1):
        try:
            unsealed(record)
        except ValueError:
            # With its place, because the name may be what was changed.
            names.append(f"{str(record.get('experiment'))[:60]} (record {number})")
    return names


def unreadable(folder: Path, what: str) -> RecordError:
    """The error about an archive of which nothing can be read."""
    return RecordError(
        f"{folder} is no archive of runs that can be read ({what}). {restore(folder)}, or delete "
        f"them and add the runs again: {adding(folder)} --create --add '*'"
    )


def restore(folder: Path) -> str:
    """Advice on restoring a damaged archive; in a checkout, with the git command."""
    place = folder.resolve()
    if any((parent / ".git").exists() for parent in (place, *place.parents)):
        return f"Restore its files (git checkout {shlex.quote(str(folder))})"
    return "Restore its files from a copy"


def adding(folder: Path) -> str:
    """The command that adds runs to an archive, without ``--add``."""
    # The study of reworded observations has a command and a folder of its own.
    command = "meaning" if folder.name == "meaning" else "study"
    usual = folder == Path("docs") / command
    place = "" if usual else f" --archive {shlex.quote(str(folder))}"
    return f"python -m analysis {command}{place}"


def locate(folder: Path, name: str, index: ArchiveIndex) -> Path | None:
    """Path of the copy of a data file with the checksum in the index; None if it is damaged."""
    known = index.files.get(name)
    if known is None:
        return None
    # After a crash, the new file may still have its staged name.
    for path in (folder / name, folder / f"{name}{STAGED}"):
        if change(path, known, whole=True) is None:
            return path
    return None
