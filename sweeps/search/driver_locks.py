"""Which drivers of a study live: each holds a lock that the kernel lets go of when it dies, however it dies."""

import contextlib
import fcntl
import os
import uuid
from collections.abc import Iterator
from pathlib import Path


class DriverLocks:
    """One driver's place among the drivers of a study. ``me`` is what it signs its trials with."""

    def __init__(self, folder: Path) -> None:
        self.me = uuid.uuid4().hex
        self._drivers = folder / "drivers"
        self._turn = folder / "lock"
        self._drivers.mkdir(parents=True, exist_ok=True)
        self._held = _open(self._drivers / self.me)
        fcntl.flock(self._held, fcntl.LOCK_EX)

    def close(self) -> None:
        """Let go: another driver may take over."""
        (self._drivers / self.me).unlink(missing_ok=True)
        os.close(self._held)

    def alive(self, driver: str) -> bool:
        """Whether a driver still holds its lock; what a dead one left is removed."""
        path = self._drivers / driver
        if driver == self.me:
            return True
        if not path.exists():
            return False
        descriptor = _open(path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        else:
            path.unlink(missing_ok=True)
            return False
        finally:
            os.close(descriptor)

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        """One driver at a time decides what comes next."""
        descriptor = _open(self._turn)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
