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

# Parts of the working tree that a job needs; copied with uncommitted changes.
PARTS = (
    "scpo",
    "sweeps",
    "conf",
    "train.py",
)


def freeze(runs_dir: Path, secret_names: Collection[str] = ()) -> Path:
    """Snapshot of the present code, private (0700) and read-only; created if it is missing.

    Args:
        runs_dir: Folder of run folders.
        secret_names: Environment variables with secrets.

    Raises:
        ConfigError: A file holds a secret, or the value of one of these variables, which would be
            copied into every snapshot; or other users can access the snapshot.
        RecordWriteError: The disk is full or not writable; no snapshot is left.
    """
    files = _files(secret_names)
    target = _place(runs_dir, files)
    if not target.exists():
        _write(target, files, secret_names)
    check_private(target)
    return target


def locate(runs_dir: Path) -> Path:
    """Path of the present code's snapshot: ``<runs_dir>/.snapshots/<hash of its content>/``."""
    return _place(runs_dir, _files())


def _place(runs_dir: Path, files: dict[str, bytes]) -> Path:
    digest = hashlib.sha256()
    for path, data in files.items():
        digest.update(f"{path}\0{len(data)}\0".encode() + data)
    return (runs_dir / SNAPSHOTS / digest.hexdigest()[:16]).absolute()


def check_private(folder: Path) -> None:
    """Raise ConfigError unless the folder belongs to this user and is closed to others."""
    found = folder.stat()
    if found.st_uid != os.getuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigError(
            f"{folder} belongs to user {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}. Jobs "
            "execute what lies in it, so it must be yours and closed to others (0700). Delete it "
            "and start the same command again"
        )


def _files(secret_names: Collection[str] = ()) -> dict[str, bytes]:
    """Content of code files by path: all that git does not ignore; outside git, all sources."""
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
        for leak in redaction.leaks(data.decode(errors="replace"), names=secret_names):
            raise ConfigError(
                f"{path}, line {leak.line} holds {leak.what}: it would be copied into every "
                "snapshot of the code. Take it out, keep it in an environment variable, and start "
                "the same command again"
            )


def _write(target: Path, files: dict[str, bytes], secret_names: Collection[str]) -> None:
    with _naming_the_snapshot(target, files):
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # mkdtemp creates it with mode 0700.
        draft = Path(tempfile.mkdtemp(dir=target.parent, prefix=".new-"))
    try:
        with _naming_the_snapshot(target, files):
            _fill(draft, files, secret_names)
        # Renamed when complete, so that another sweep never finds half of a snapshot. That sweep
        # may have created the same one meanwhile.
        if not target.exists():
            draft.rename(target)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _fill(draft: Path, files: dict[str, bytes], secret_names: Collection[str]) -> None:
    for path, data in files.items():
        (draft / path).parent.mkdir(parents=True, exist_ok=True)
        (draft / path).write_bytes(data)
        (draft / path).chmod(0o400)
    write_json(draft / provenance.SNAPSHOT_RECORD, provenance.code_state(secret_names))


@contextmanager
def _naming_the_snapshot(target: Path, files: dict[str, bytes]) -> Iterator[None]:
    """Turn an OSError into a RecordWriteError with the snapshot's size and the free space."""
    try:
        yield
    except OSError as error:
        size = sum(map(len, files.values()))
        raise RecordWriteError(
            error.errno or 0,
            f"cannot write the snapshot of the code, {target}: "
            f"{os.strerror(error.errno) if error.errno else error}. It has {len(files)} files of "
            f"{size} bytes in all; {free_bytes(target)} bytes were free then. Make room (or fix "
            "the permissions), or name another folder: machine.runs_dir",
        ) from error
