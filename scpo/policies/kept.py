"""Build-once cache of warm starts under a file lock, shared by all runs."""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from pydantic import BaseModel, ConfigDict

from scpo.envs.base import DemonstratingEnvironment
from scpo.errors import RecordWriteError, ScpoError
from scpo.records.files import (
    FileSum,
    folder_change,
    folder_sums,
    replace_file,
    sealed,
    sync,
    unsealed,
)

logger = logging.getLogger(__name__)

SUMS = "checksums.json"

# Seconds between two tries to get the lock.
_POLL_S = 0.2


def made_once(folder: Path, make: Callable[[Path], None], should_stop: Callable[[], bool]) -> Path:
    """Return ``folder``, built by ``make(scratch)`` if it does not exist; complete or absent.

    Every run of a sweep begins with its content. So it holds checksums of its files, which are
    verified each time, and a damaged folder is built again.

    Args:
        folder: Where the result belongs; its name must tell apart all that the result depends on.
        make: Writes the files into the folder that it is given.
        should_stop: Asked while another process builds it.

    Raises:
        KeyboardInterrupt: ``should_stop`` returned True before it was built.
        RecordWriteError: It cannot be written.
    """
    with _naming_the_cache(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        # An existing folder is checked under the lock too: another process may be rebuilding it.
        with _locked(folder.with_suffix(".lock"), should_stop):
            damage = _damage(folder) if folder.exists() else None
            if damage is not None:
                logger.warning("%s is damaged (%s): it is made again", folder, damage)
                shutil.rmtree(folder)
            if not folder.exists():
                _make(folder, make)
    return folder


@contextmanager
def _naming_the_cache(folder: Path) -> Iterator[None]:
    """Convert write errors, such as a full disk, to an error that names the cache."""
    from safetensors import SafetensorError

    try:
        yield
    except (OSError, SafetensorError) as error:
        if isinstance(error, ScpoError):
            raise
        raise RecordWriteError(
            f"the cache {folder} could not be made ({error}). Free some space or name another "
            "folder, machine.cache_dir=..., and start the same command again"
        ) from error


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    """Build the folder under another name, flush and seal it, and rename it; the lock is held."""
    # Left by killed processes: the lock is ours.
    for left in folder.parent.glob(f"{folder.name}.tmp-*"):
        shutil.rmtree(left, ignore_errors=True)
    # Renamed when complete: readers see the whole folder or none.
    scratch = folder.with_suffix(f".tmp-{os.getpid()}")
    scratch.mkdir()
    try:
        make(scratch)
        files = folder_sums(scratch)
        for name in files:
            sync(scratch / name)
        record = {name: known.model_dump() for name, known in files.items()}
        # The record of the checksums is itself sealed, so that a change of it is found too.
        replace_file(scratch / SUMS, json.dumps(sealed({"files": record})).encode())
        scratch.rename(folder)
        sync(folder.parent)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise


class _Sums(BaseModel):
    """Content of ``checksums.json``: size and SHA-256 of each file of the folder."""

    model_config = ConfigDict(extra="forbid")

    files: dict[str, FileSum]


def _damage(folder: Path) -> str | None:
    """First difference between a folder and its checksums; None if it is as it was written."""
    try:
        record = _Sums.model_validate(unsealed(json.loads((folder / SUMS).read_bytes())))
    except Exception as error:  # noqa: BLE001 (whichever decoder finds the damage)
        return f"{SUMS}: {error}"
    return folder_change(folder, record.files)


def start_key(
    recipe: int,
    model: BaseModel,
    env: BaseModel,
    shown: set[str],
    environment: DemonstratingEnvironment,
) -> str:
    """Hash of everything that determines a supervised start.

    Recipe, model without its critic, and the parts of ``env`` that demonstrations show.

    Args:
        recipe: Version of the code that trains; raised when the same settings give other weights.
        model: Shape of the model and settings of its start.
        env: The environment's settings.
        shown: Fields of ``env`` that demonstrations depend on.
        environment: The environment; its training panel is hashed, because demonstrations are of
            the tasks outside it.
    """
    import torch

    content = {
        "recipe": recipe,
        # Another version of torch trains other weights.
        "torch": torch.__version__,
        "model": model.model_dump(mode="json", exclude={"value_model"}),
        # Settings that demonstrations do not show, such as the horizon, share one start.
        "env": env.model_dump(mode="json", include=shown),
        "train_panel": environment.panel("train").sha256,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def stop_if_asked(should_stop: Callable[[], bool]) -> None:
    """Stop before the first training step, where only time is lost.

    Raises:
        KeyboardInterrupt: ``should_stop`` returned True.
    """
    if should_stop():
        raise KeyboardInterrupt


@contextmanager
def _locked(path: Path, should_stop: Callable[[], bool]) -> Iterator[None]:
    """Hold an exclusive ``flock`` of a file, which ends with the process, however that ends.

    The file itself is left behind: deleting it would let two processes lock two different files of
    the same name.

    Raises:
        KeyboardInterrupt: ``should_stop`` returned True while another process held it.
    """
    with path.open("w") as file:
        if not (free := _try_lock(file)):
            kind = path.parent.name.replace("_", " ")  # "warm start": the hash alone says nothing
            logger.info("waiting for the %s %s, which another run makes", kind, path.stem)
        while not free:
            stop_if_asked(should_stop)
            # Polled instead of a blocking flock, so that a stop request ends the wait.
            time.sleep(_POLL_S)
            free = _try_lock(file)
        yield


def _try_lock(file: TextIO) -> bool:
    """Take the lock if it is free."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
