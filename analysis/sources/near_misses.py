"""The folder that was probably meant by a path without runs, for error messages."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

from scpo.errors import UnreadableError
from scpo.records.archive_index import is_archive, lost_index
from scpo.records.run_folders import list_runs
from scpo.suggestions import did_you_mean


def folder_meant(paths: Iterable[Path]) -> str:
    """`; did you mean x?` for the first path with a folder of runs near it, or an empty string.

    A path is near the folders inside it, folders of a similar name and, if it is itself a run
    folder or a file, the folders that contain it. For an archive that is damaged or lost its index,
    and for an offline folder of W&B, there is no hint, because no other folder has its runs.
    """
    for path in paths:
        if is_archive(path) or lost_index(path) or is_offline(path):
            continue
        if hint := did_you_mean(str(path), (), [str(folder) for folder in _near(path)]):
            return hint
    return ""


def is_offline(folder: Path) -> bool:
    """True for the folder of one run that W&B wrote offline."""
    return any(folder.glob("*.wandb"))


def _near(path: Path) -> list[Path]:
    if path.is_dir():
        below = [folder for folder in _folders(path) if _has_runs(folder)]
        return below or _above(path)
    if path.is_file():
        return _above(path)
    siblings = {folder.name: folder for folder in _folders(path.parent) if _has_runs(folder)}
    hint = did_you_mean(path.name, siblings)
    return [folder for name, folder in siblings.items() if f" {name}?" in hint]


def _above(path: Path) -> list[Path]:
    """The nearest folder with runs that contains the path, as a list of at most one."""
    # Two levels: a file of a run lies in the run's folder, which lies in the folder of runs.
    return [folder for folder in list(path.parents)[:2] if _has_runs(folder)][:1]


def _folders(path: Path) -> list[Path]:
    return sorted(child for child in path.iterdir() if child.is_dir()) if path.is_dir() else []


def _has_runs(folder: Path) -> bool:
    # A hint names no folder that this user may not read.
    with contextlib.suppress(UnreadableError, PermissionError):
        return is_archive(folder) or bool(list_runs(folder))
    return False
