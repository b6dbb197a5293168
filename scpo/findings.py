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
        check: Name of the check, such as ``GPU memory``.
        level: Severity.
        text: Result of the check.
        fix: What to change; empty if nothing needs to be.
    """

    check: str
    level: Level
    text: str
    fix: str = ""

    def as_record(self) -> dict[str, Any]:
        """Dictionary for ``--json`` output and for exchange between processes."""
        return asdict(self)


def ok(check: str, text: str) -> Finding:
    """Finding of a check that passed."""
    return Finding(check, Level.OK, text)


def warning(check: str, text: str, fix: str) -> Finding:
    """Finding of something that may make the run fail."""
    return Finding(check, Level.WARNING, text, fix)


def error(check: str, text: str, fix: str) -> Finding:
    """Finding of something that will make the run fail."""
    return Finding(check, Level.ERROR, text, fix)
