"""Mounted folders below a folder, which must not be deleted with it."""

import os
import re
from pathlib import Path

# Of Linux. It also lists bind mounts, which may have the device number of the folder around them.
MOUNTS = Path("/proc/self/mountinfo")


def mounted_in(folder: Path) -> Path | None:
    """A mount at or below a folder, or None; links are not followed."""
    real = folder.resolve()
    try:
        table = MOUNTS.read_bytes()
    except OSError:
        return _on_other_device(folder)
    for line in table.splitlines():
        point = Path(os.fsdecode(_unescaped(line.split()[4])))
        if point.is_relative_to(real):
            return folder / point.relative_to(real)
    return None


def _unescaped(path: bytes) -> bytes:
    """The kernel writes blanks, tabs, newlines and backslashes as three octal digits."""
    return re.sub(rb"\\([0-7]{3})", lambda digits: bytes([int(digits[1], 8)]), path)


def _on_other_device(folder: Path) -> Path | None:
    """A folder at or below this one with another device number than the folder around it."""
    device = _device(folder.parent)
    if _device(folder) != device:
        return folder
    for parent, names, _ in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            if _device(path) != device:
                return path
    return None


def _device(path: Path) -> int:
    return path.lstat().st_dev
