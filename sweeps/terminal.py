"""Output of commands on a terminal, a pipe or a log."""

import sys
from io import TextIOWrapper

from rich.console import Console
from rich.markup import escape

from scpo.errors import ScpoError
from scpo.records import State

COLOURS = {
    State.DONE: "green",
    State.FAILED: "red",
    State.LOST: "red",
    State.DAMAGED: "red",
    State.INTERRUPTED: "yellow",
    State.UNKNOWN: "yellow",
    State.RUNNING: "cyan",
    State.QUEUED: "blue",
}


def replace_what_cannot_be_printed() -> None:
    """Print a question mark for letters that stdout cannot encode (LANG=C, some pipes)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def complaint(error: ScpoError | OSError) -> str:
    """Message of an error in one line, with the path for errors of the system."""
    if isinstance(error, ScpoError):
        return str(error)
    what = f"{error.filename}: " if error.filename else ""
    return (
        f"{what}{error.strerror or error}. Check the path and its permissions, or name another one"
    )


def say(console: Console, text: str) -> None:
    """Print a text as it is: nothing in it is markup, and the terminal folds its lines."""
    say_markup(console, escape(text))


def say_markup(console: Console, text: str) -> None:
    """Print a text with rich's markup."""
    console.print(text, soft_wrap=True, highlight=False)


def say_error(console: Console, message: str) -> None:
    """Print an error."""
    say_markup(console, f"[red]error[/red]: {escape(message)}")


def coloured(state: State) -> str:
    """A state in markup."""
    return f"[{COLOURS.get(state, 'default')}]{state}[/]"


def wide(console: Console) -> Console:
    """For a table: in a pipe or a log it is not folded at 80 columns."""
    if console.is_terminal:
        return console
    return Console(file=console.file, width=250)
