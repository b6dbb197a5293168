"""Result type of the checks before a run: machine, environment data, model files."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Level(StrEnum):
    """Severity of a finding.

    Attributes:
        OK: Nothing to do.
        WARNING: The run may fail, or not do what is meant.
        ERROR: The run will not start, or will stop.
    """

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class Finding:
    """One line of a check's report.

    Attributes:
        check: What was looked at, such as ``GPU memory``.
        level: Severity.
        text: What was found.
        fix: What to change; empty if it is fine.
    """

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
