"""Storage of a study: Optuna's journal on any file system, or sqlite on one machine.

Optuna's journal is wrapped against two failures:

- A writer that is killed within a line leaves half of it. The next append would join the two into
  one unreadable line, and Optuna would then reject the whole file. Here a torn last line is cut off
  under the lock, before the next append.
- Optuna does not notice a changed bit or a lost line; the study would continue with other values.
  Here each line holds its checksum and that of the line before.
"""

import contextlib
import errno
import json
import os
import sqlite3
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scpo.errors import ConfigError, RecordError, RecordWriteError
from scpo.records.files import SEAL, sealed, unsealed
from scpo.records.logs import cut_torn_line
from scpo.schema.search import MedianPruning, Search

if TYPE_CHECKING:
    import optuna
    from optuna.pruners import BasePruner
    from optuna.storages import BaseStorage

FILES = {"journal": "journal.log", "sqlite": "study.db"}

# Age at which a lock counts as left by a process that died: an append takes milliseconds.
LOCK_GRACE_S = 10

# Time that a write waits for other writers of an sqlite file.
SQLITE_TIMEOUT_S = 60

MAKE_ROOM = "Make room or fix the permissions"

# Errors of sqlite that damage nothing, by their code: the errno and the remedy.
UNUSABLE = {
    sqlite3.SQLITE_FULL: (errno.ENOSPC, MAKE_ROOM),
    sqlite3.SQLITE_READONLY: (errno.EACCES, MAKE_ROOM),
    sqlite3.SQLITE_CANTOPEN: (errno.EACCES, MAKE_ROOM),
    # As of a quota or a limit on the size of files.
    sqlite3.SQLITE_IOERR: (errno.EIO, MAKE_ROOM),
    sqlite3.SQLITE_BUSY: (errno.EBUSY, "Wait for the process that holds it or end that process"),
}

# Key in a journal's line: the checksum of the line before.
BEFORE = "before"

# Bytes read from the end of a journal to find its last line, which has a few hundred.
LONGEST_LINE = 1 << 20


def open_study(folder: Path, search: Search) -> "tuple[optuna.Study, BaseStorage]":
    """Open or create the study of a search; returns it and its storage.

    Args:
        folder: The search's folder; its name is the study's.
        search: The search.

    Raises:
        ConfigError: Its records are in another storage than ``search.storage``.
        RecordError: Its records cannot be read.
    """
    import optuna

    _refuse_other_storage(folder, search)
    with naming_damage(folder):
        storage = _storage(folder, search)
        study = optuna.create_study(
            study_name=folder.name,
            storage=storage,
            direction="maximize",
            pruner=_pruner(search.pruner),
            load_if_exists=True,
        )
    return study, storage


def load_study(folder: Path, search: Search) -> "optuna.Study | None":
    """Load the study of a search; None if it was not begun.

    Nothing is written; Optuna's ``create_study`` writes even if the study exists.
    """
    import optuna

    _refuse_other_storage(folder, search)
    if not (folder / FILES[search.storage]).exists():
        return None
    with naming_damage(folder):
        return optuna.load_study(study_name=folder.name, storage=_storage(folder, search))


@contextlib.contextmanager
def naming_damage(folder: Path) -> Iterator[None]:
    """Turn the errors that Optuna raises for damaged files into a RecordError with the folder.

    Raises:
        RecordError: The files are damaged.
        RecordWriteError: The sqlite file is whole, but cannot be used now.
    """
    import optuna
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except (
        ValueError,
        LookupError,
        TypeError,
        SQLAlchemyError,
        optuna.exceptions.OptunaError,
    ) as error:
        refuse_unusable_sqlite(folder, error)
        raise RecordError(
            f"the records of the search in {folder} are damaged: {type(error).__name__}: {error}. "
            f"Delete {folder} to start the search again: its runs stay, and what is finished is "
            "not run again"
        ) from error


def refuse_unusable_sqlite(folder: Path, error: BaseException) -> None:
    """Raise RecordWriteError if an sqlite file that cannot be written or locked caused an error.

    Optuna and SQLAlchemy wrap such errors in their own, which are no OSError.

    Args:
        folder: The search's folder.
        error: The error.
    """
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, sqlite3.OperationalError):
        cause = cause.__cause__ or cause.__context__
    # The low byte is the kind of error; the rest of the code has details.
    kind = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if kind not in UNUSABLE:
        return
    number, remedy = UNUSABLE[kind]
    why = os.strerror(number) if kind == sqlite3.SQLITE_FULL else str(cause)
    raise RecordWriteError(
        number, f"cannot write the search's records in {folder}: {why}. {remedy}, then go on"
    ) from error


def _refuse_other_storage(folder: Path, search: Search) -> None:
    for kind, name in FILES.items():
        if kind != search.storage and (folder / name).exists():
            raise ConfigError(
                f"search.storage={search.storage}: this search has its records in "
                f"{folder / name}. Go on with search.storage={kind}, or delete {folder} "
                "to start it again: its runs stay"
            )


def _storage(folder: Path, search: Search) -> "BaseStorage":
    path = folder / FILES[search.storage]
    return _journal(path) if search.storage == "journal" else _sqlite(path)


def _journal(path: Path) -> "BaseStorage":
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileSymlinkLock

    class RepairingLock(JournalFileSymlinkLock):
        """Lock that cuts off the torn last line of a killed writer."""

        # Checksum of the journal's last line, valid while the lock is held.
        last_sum = ""

        def acquire(self) -> bool:
            acquired = super().acquire()
            cut_torn_line(path)
            self.last_sum = _last_sum(path)
            return acquired

    class CheckedJournal(JournalFileBackend):
        """Journal whose lines hold their checksum and that of the line before.

        So changed bits and lost, doubled or moved lines are detected.
        """

        def __init__(self, file_path: str, lock_obj: RepairingLock) -> None:
            super().__init__(file_path, lock_obj)
            self._repairing = lock_obj
            # Checksums of the lines that were read.
            self._sums: list[str] = []

        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            # A generator, because Optuna iterates over the logs only once it holds the lock.
            super().append_logs(self._chained(logs))  # type: ignore[arg-type]

        def _chained(self, logs: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
            before = self._repairing.last_sum
            for log in logs:
                line = sealed({**log, BEFORE: before})
                before = line[SEAL]
                yield line

        def read_logs(self, log_number_from: int) -> Generator[dict[str, Any], None, None]:
            # Each line is checked against the one before it. If the checksum of that line is not in
            # memory, all lines are read again.
            first = log_number_from if log_number_from <= len(self._sums) else 0
            del self._sums[first:]
            # Complete lines, counted before reading: another driver may append one at any time.
            whole = path.read_bytes().count(b"\n") if path.exists() else 0
            for line, log in enumerate(super().read_logs(first), start=first + 1):
                try:
                    content = unsealed(log)
                except (ValueError, TypeError) as error:
                    raise ValueError(f"{path.name}, line {line}: {error}") from error
                previous = self._sums[-1] if self._sums else ""
                if content.pop(BEFORE, None) != previous:
                    raise ValueError(
                        f"{path.name}: lines before line {line} were lost, doubled or moved"
                    )
                self._sums.append(log[SEAL])
                if line > log_number_from:
                    yield content
            # Optuna skips a last line that it cannot read, because a killed writer may leave half a
            # line. A line with its line break was complete, so it was damaged later.
            if len(self._sums) < whole:
                raise ValueError(f"{path.name}, line {len(self._sums) + 1}: it cannot be read")

    return JournalStorage(
        CheckedJournal(str(path), lock_obj=RepairingLock(str(path), LOCK_GRACE_S))
    )


def _last_sum(path: Path) -> str:
    """Checksum in the last line of a journal; empty without lines, or if it is damaged."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LONGEST_LINE))
        lines = file.read().splitlines()
    try:
        return str(json.loads(lines[-1])[SEAL]) if lines else ""
    except (ValueError, KeyError, TypeError):
        # Reading the journal reports the damage.
        return ""


def _sqlite(path: Path) -> "BaseStorage":
    from optuna.storages import RDBStorage

    return RDBStorage(
        f"sqlite:///{path}", engine_kwargs={"connect_args": {"timeout": SQLITE_TIMEOUT_S}}
    )


def _pruner(config: MedianPruning | None) -> "BasePruner":
    from optuna.pruners import MedianPruner, NopPruner

    if config is None:
        return NopPruner()
    return MedianPruner(n_startup_trials=config.startup_trials, n_warmup_steps=config.warmup_steps)
