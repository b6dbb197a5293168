"""Where the tests' data lies: small golden sets in ``tests/data``, and large ones in a folder that few people have."""

import atexit
import functools
import os
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

import tests

DATA = Path(tests.__file__).with_name("data")


def shared(*parts: str) -> Path | None:
    """A file or folder of the large data; None where it is not there, and tests make do with ``tests/data``.

    It is looked for in the folder ``../shared`` beside the checkout. ``SCPO_TEST_SHARED`` names another one, or is
    ``none``: then the tests see what they see in anybody's clone.

    Raises:
        FileNotFoundError: ``SCPO_TEST_SHARED`` names a folder that is not there.
    """
    chosen = os.environ.get("SCPO_TEST_SHARED")
    if chosen == "none":
        return None
    root = Path(chosen) if chosen else DATA.parents[2] / "shared"
    if chosen and not root.is_dir():
        raise FileNotFoundError(f"SCPO_TEST_SHARED={chosen}: there is no such folder; name one, or say none")
    path = root.joinpath(*parts)
    return path if path.exists() else None


@functools.cache
def unpacked(archive: Path, choose: Callable[[list[str]], set[str]] = set) -> Path:
    """The folder into which an archive was unpacked, until this process ends; ``choose`` picks files by name."""
    folder = tempfile.TemporaryDirectory(prefix="scpo-test-data-")
    atexit.register(folder.cleanup)
    with tarfile.open(archive) as file:
        wanted = choose(sorted(member.name for member in file.getmembers() if member.isfile()))
        if hasattr(tarfile, "data_filter"):  # Python 3.11.4; Debian 12 has 3.11.2
            file.extraction_filter = tarfile.data_filter
        # In the archive's order: going back in an xz stream starts it again.
        chosen = [member for member in file.getmembers() if member.name in wanted]
        file.extractall(folder.name, chosen)  # noqa: S202 (our own archives)
    return Path(folder.name)
