"""What is expensive to make, made once for all runs: in a cache folder, under a lock that the others wait at."""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

logger = logging.getLogger(__name__)

_POLL_S = 0.2


def made_once(folder: Path, make: Callable[[Path], None], should_stop: Callable[[], bool]) -> Path:
    """``folder``, made by ``make(scratch)`` if nobody has made it yet; whole or absent.

    Raises:
        KeyboardInterrupt: ``should_stop`` said yes before it was there.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with _locked(folder.with_suffix(".lock"), should_stop):
        if not folder.exists():
            scratch = folder.with_suffix(f".tmp-{os.getpid()}")
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir()
            make(scratch)
            scratch.rename(folder)
    return folder


def heed(should_stop: Callable[[], bool]) -> None:
    """Stopping here loses nothing but time: no training step was taken yet.

    Raises:
        KeyboardInterrupt: ``should_stop`` says yes.
    """
    if should_stop():
        raise KeyboardInterrupt


@contextmanager
def _locked(path: Path, should_stop: Callable[[], bool]) -> Iterator[None]:
    with path.open("w") as file:
        if not (free := _try_lock(file)):
            logger.info("waiting for %s, which another run makes", path.stem)
        while not free:
            heed(should_stop)
            time.sleep(_POLL_S)
            free = _try_lock(file)
        yield


def _try_lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
