"""Writing outputs: whole or not at all."""

import os
import tempfile
from pathlib import Path

from scpo.errors import RecordWriteError


def write_atomically(path: Path, content: bytes) -> None:
    """Write through a temporary file in the same folder, flush it to disk and rename it into place."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise RecordWriteError(
            f"cannot write into {path.parent}: {error.strerror}. Choose another folder with --out."
        ) from error
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise RecordWriteError(f"{path} was not written: {error.strerror}. The previous version is intact.") from error
