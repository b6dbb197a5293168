"""Files that are either the old version or the new one, whatever dies in between."""

import contextlib
import os
import tempfile
from pathlib import Path


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
