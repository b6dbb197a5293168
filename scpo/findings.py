"""Result type of the checks before a run: machine, environment data, model files."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """ERROR: it will not run. WARNING: it may not, or not as meant."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, what was found and, unless it is fine, how to fix it."""

    check: str
    level: Level
    text: str
    fix: str = ""

    def as_record(self) -> dict[str, Any]:
        """For --json, and from one process to another."""
        return asdict(self)


def ok(check: str, text: str) -> Finding:
    """It is fine."""
    return Finding(check, Level.OK, text)


def warning(check: str, text: str, fix: str) -> Finding:
    """It may go wrong."""
    return Finding(check, Level.WARNING, text, fix)


def error(check: str, text: str, fix: str) -> Finding:
    """It will go wrong."""
    return Finding(check, Level.ERROR, text, fix)
