"""What a check says."""

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
    """One line: what was looked at, what was found and, unless it is fine, how to mend it."""

    check: str
    level: Level
    text: str
    mend: str = ""

    def as_record(self) -> dict[str, Any]:
        """For --json."""
        return asdict(self)


def ok(check: str, text: str) -> Finding:
    """It is fine."""
    return Finding(check, Level.OK, text)


def warning(check: str, text: str, mend: str) -> Finding:
    """It may go wrong."""
    return Finding(check, Level.WARNING, text, mend)


def error(check: str, text: str, mend: str) -> Finding:
    """It will go wrong."""
    return Finding(check, Level.ERROR, text, mend)
