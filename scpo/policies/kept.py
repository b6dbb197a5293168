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
    """Return ``folder``, built by ``make`` if it does not exist; it is never incomplete.

    Every run of a sweep begins with the folder's content. Checksums of its files are therefore
    verified each time, and a damaged folder is built again.

    Args:
        folder: Folder of the result; its name must contain a hash of all that the result depends
            on.
        make: Writes the files into the temporary folder that it is called with.
        should_stop: Called repeatedly while another process builds the folder; True ends the wait.

    Raises:
        KeyboardInterrupt: ``should_stop`` returned True before the folder was built.
        RecordWriteError: The folder cannot be written.
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
    """Build the folder under another name, add checksums, flush it, and rename it.

    The caller holds the lock.
    """
    # While the lock is held, no other process builds the folder: killed processes left these.
    for left in folder.parent.glob(f"{folder.name}.tmp-*"):
        shutil.rmtree(left, ignore_errors=True)
    # Renamed when complete, so that readers never see an incomplete folder.
    scratch = folder.with_suffix(f".tmp-{os.getpid()}")
    scratch.mkdir()
    try:
        make(scratch)
        files = folder_sums(scratch)
        for name in files:
            sync(scratch / name)
        record = {name: known.model_dump() for name, known in files.items()}
        # The file of checksums has a checksum, too, so that a change of it is detected.
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
    """First difference between a folder and its checksums; None if they are equal."""
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
    """Hash of everything that the weights after a supervised start depend on.

    Args:
        recipe: Version of the code that trains; raised when it gives other weights than before.
        model: Shape of the model and settings of its start; the critic's are left out.
        env: The environment's settings.
        shown: Fields of ``env`` that demonstrations depend on.
        environment: The environment; its training panel is hashed, because only tasks outside the
            panel are demonstrated.
    """
    import torch

    content = {
        "recipe": recipe,
        # Another version of torch trains other weights.
        "torch": torch.__version__,
        "model": model.model_dump(mode="json", exclude={"value_model"}),
        # Other settings, such as the horizon, are left out: runs that differ in them share a start.
        "env": env.model_dump(mode="json", include=shown),
        "train_panel": environment.panel("train").sha256,
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]


def stop_if_asked(should_stop: Callable[[], bool]) -> None:
    """Stop a supervised start, of which nothing is stored yet.

    Raises:
        KeyboardInterrupt: ``should_stop`` returned True.
    """
    if should_stop():
        raise KeyboardInterrupt


@contextmanager
def _locked(path: Path, should_stop: Callable[[], bool]) -> Iterator[None]:
    """Hold an exclusive ``flock`` of a file, which the kernel releases if the process is killed.

    The file is not deleted afterwards, because two processes could then lock two different files of
    the same name.

    Raises:
        KeyboardInterrupt: ``should_stop`` returned True while another process held the lock.
    """
    with path.open("w") as file:
        locked = _try_lock(file)
        if not locked:
            # Users do not know the hash, so the folder around it is named, such as "warm start".
            kind = path.parent.name.replace("_", " ")
            logger.info("waiting for the %s %s, which another run makes", kind, path.stem)
        while not locked:
            stop_if_asked(should_stop)
            # Polled instead of a blocking flock, so that a stop request ends the wait.
            time.sleep(_POLL_S)
            locked = _try_lock(file)
        yield


def _try_lock(file: TextIO) -> bool:
    """Take the lock if it is free; return True if it was taken."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
