"""The folder that was probably meant by a path without runs, for error messages."""

from collections.abc import Iterable
from pathlib import Path

from scpo.records.archive_index import is_archive
from scpo.records.run_folders import list_runs
from scpo.suggestions import did_you_mean


def folder_meant(paths: Iterable[Path]) -> str:
    """`; did you mean x?` for the first path with a folder of runs near it, or an empty string.

    Near are the folders inside it, the folder of the run or file that it is, and folders of a
    similar name.
    """
    for path in paths:
        if hint := did_you_mean(str(path), (), [str(folder) for folder in _near(path)]):
            return hint
    return ""


def _near(path: Path) -> list[Path]:
    if path.is_dir():
        below = [folder for folder in _folders(path) if _has_runs(folder)]
        return below or _above(path)
    if path.is_file():
        return _above(path)
    beside = {folder.name: folder for folder in _folders(path.parent) if _has_runs(folder)}
    hint = did_you_mean(path.name, beside)
    return [folder for name, folder in beside.items() if f" {name}?" in hint]


def _above(path: Path) -> list[Path]:
    """The nearest folder above a run folder, or a file of a run or an archive."""
    return [folder for folder in list(path.parents)[:2] if _has_runs(folder)][:1]


def _folders(path: Path) -> list[Path]:
    return sorted(child for child in path.iterdir() if child.is_dir()) if path.is_dir() else []


def _has_runs(folder: Path) -> bool:
    return is_archive(folder) or bool(list_runs(folder))
