"""Output of commands on a terminal, a pipe or a log."""

import errno
import sys
from io import TextIOWrapper

from rich.console import Console
from rich.markup import escape

from scpo.errors import ScpoError
from scpo.records import State
from scpo.records.redaction import redact

COLOURS = {
    State.DONE: "green",
    State.FAILED: "red",
    State.LOST: "red",
    State.DAMAGED: "red",
    State.UNREADABLE: "yellow",
    State.INTERRUPTED: "yellow",
    State.UNKNOWN: "yellow",
    State.RUNNING: "cyan",
    State.QUEUED: "blue",
}


def replace_what_cannot_be_printed() -> None:
    """Let stdout and stderr print ? for characters that they cannot encode (LANG=C, some pipes)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def complaint(error: ScpoError | OSError) -> str:
    """Message of an error; for an operating system's error with the path and a remedy."""
    if isinstance(error, ScpoError):
        # It may quote a key that was given in the place of another value.
        return redact(str(error))
    what = f"{error.filename}: " if error.filename else ""
    # The system names no file in an error that occurs while one is written.
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"{what}{error.strerror}. Make room on the disk of the run folders (machine.runs_dir), "
            "or name another one, and start the same command again"
        )
    if error.errno == errno.EFBIG:
        return (
            f"{what}{error.strerror}. Raise the limit on the size of files (`ulimit -f`) and start "
            "the same command again"
        )
    return (
        f"{what}{error.strerror or error}. Check the path and its permissions, or name another one"
    )


def say(console: Console, text: str) -> None:
    """Print plain text. Brackets are not markup, and long lines are left to the terminal."""
    say_markup(console, escape(text))


def say_markup(console: Console, text: str) -> None:
    """Print a text with rich's markup."""
    console.print(text, soft_wrap=True, highlight=False)


def say_error(console: Console, message: str) -> None:
    """Print an error."""
    say_markup(console, f"[red]error[/red]: {escape(message)}")


def coloured(state: State) -> str:
    """A state with its colour, in rich's markup."""
    return f"[{COLOURS.get(state, 'default')}]{state}[/]"


def wide(console: Console) -> Console:
    """Console for a table, which rich would wrap at 80 columns in a pipe or a log."""
    if console.is_terminal:
        return console
    return Console(file=console.file, width=250)
