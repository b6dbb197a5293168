"""Frozen copy of the code that jobs run from, so that later edits do not affect waiting jobs."""

import hashlib
import os
import shutil
import stat
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from scpo.errors import ConfigError, RecordWriteError
from scpo.installed import REPOSITORY
from scpo.records import provenance, redaction
from scpo.records.files import free_bytes, write_json

SNAPSHOTS = ".snapshots"

# Files and folders of the repository that a job needs; uncommitted changes are copied too.
PARTS = (
    "scpo",
    "sweeps",
    "conf",
    "train.py",
)


def freeze(runs_dir: Path, secret_names: Collection[str] = ()) -> Path:
    """Return the snapshot of the present code; create it if it does not exist.

    Only this user can open its folder (mode 0700), and its files are read-only.

    Args:
        runs_dir: Folder of run folders.
        secret_names: Environment variables with secrets.

    Raises:
        ConfigError: A file of the code contains a secret, such as the value of one of
            ``secret_names``; or other users can access the snapshot.
        RecordWriteError: The disk is full or not writable; no partial snapshot is left.
    """
    files = _files(secret_names)
    target = _snapshot_path(runs_dir, files)
    if not target.exists():
        _write(target, files, secret_names)
    check_private(target)
    return target


def locate(runs_dir: Path) -> Path:
    """Path of the present code's snapshot, which need not exist yet."""
    return _snapshot_path(runs_dir, _files())


def _snapshot_path(runs_dir: Path, files: dict[str, bytes]) -> Path:
    """Path of the snapshot of these files: ``<runs_dir>/.snapshots/<hash of its content>/``."""
    digest = hashlib.sha256()
    for path, data in files.items():
        # With the length, the same bytes split differently into files have another hash.
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    return (runs_dir / SNAPSHOTS / digest.hexdigest()[:16]).absolute()


def check_private(folder: Path) -> None:
    """Raise ConfigError unless the folder belongs to this user and no other user can access it."""
    found = folder.stat()
    mode = stat.S_IMODE(found.st_mode)
    if found.st_uid != os.getuid() or mode & 0o077:
        raise ConfigError(
            f"{folder} belongs to user {found.st_uid}, mode {mode:o}. Jobs execute the code in "
            "it, so it must be yours and closed to others (0700). Delete it and start the same "
            "command again"
        )


def _files(secret_names: Collection[str] = ()) -> dict[str, bytes]:
    """Contents of the files in ``PARTS``, by path relative to the repository.

    In a git repository: all files that git does not ignore, untracked ones included. Elsewhere: all
    files except ``.pyc``.

    Raises:
        ConfigError: A file contains a secret.
    """
    listed = provenance.output(
        "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *PARTS
    )
    if listed is not None:
        names = listed.decode().split("\0")
    else:
        names = [str(path.relative_to(REPOSITORY)) for path in _walk() if path.suffix != ".pyc"]
    paths = {name: REPOSITORY / name for name in sorted(set(names)) if name}
    files = {name: path.read_bytes() for name, path in paths.items() if path.is_file()}
    _refuse_secrets(files, secret_names)
    return files


def _walk() -> list[Path]:
    """All paths in ``PARTS``, folders included."""
    paths: list[Path] = []
    for part in PARTS:
        top = REPOSITORY / part
        if top.is_file():
            paths.append(top)
        else:
            paths += top.rglob("*")
    return paths


def _refuse_secrets(files: dict[str, bytes], secret_names: Collection[str]) -> None:
    for path, data in files.items():
        leaks = redaction.leaks(data.decode(errors="replace"), names=secret_names)
        if leaks:
            first = leaks[0]
            raise ConfigError(
                f"{path}, line {first.line} holds {first.what}: it would be copied into every "
                "snapshot of the code. Move it to an environment variable, and start the same "
                "command again"
            )


def _write(target: Path, files: dict[str, bytes], secret_names: Collection[str]) -> None:
    """Write the snapshot to a temporary folder, and rename this to ``target``."""
    with _describing_write_errors(target, files):
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkdtemp creates the folder with mode 0700.
        draft = Path(tempfile.mkdtemp(dir=target.parent, prefix=".new-"))
    try:
        with _describing_write_errors(target, files):
            _fill(draft, files, secret_names)
            # Renamed only when complete, so that other sweeps never use an incomplete snapshot.
            try:
                draft.rename(target)
            except OSError:
                # Another sweep may have created the same snapshot in the meantime.
                if not target.exists():
                    raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _fill(draft: Path, files: dict[str, bytes], secret_names: Collection[str]) -> None:
    for path, data in files.items():
        (draft / path).parent.mkdir(parents=True, exist_ok=True)
        (draft / path).write_bytes(data)
        (draft / path).chmod(0o400)
    write_json(draft / provenance.SNAPSHOT_RECORD, provenance.code_state(secret_names))


@contextmanager
def _describing_write_errors(target: Path, files: dict[str, bytes]) -> Iterator[None]:
    """Turn an OSError into a RecordWriteError with the snapshot's size and the free space."""
    try:
        yield
    except OSError as error:
        cause = os.strerror(error.errno) if error.errno else error
        size = sum(map(len, files.values()))
        raise RecordWriteError(
            error.errno or 0,
            f"cannot write the snapshot of the code, {target}: {cause}. It has {len(files)} files "
            f"of {size} bytes in all; {free_bytes(target)} bytes were free then. Make room (or "
            "fix the permissions), or set machine.runs_dir to another folder",
        ) from error
