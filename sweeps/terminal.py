"""How commands write on a terminal, or into a pipe or a log in its place."""

from rich.console import Console
from rich.markup import escape

from scpo.tracking import State

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


def say(console: Console, text: str) -> None:
    """Print a text as it is: nothing in it is markup, and the terminal folds its lines."""
    say_markup(console, escape(text))


def say_markup(console: Console, text: str) -> None:
    """Print a text with rich's markup."""
    console.print(text, soft_wrap=True, highlight=False)


def say_error(console: Console, message: str) -> None:
    """What was wrong."""
    say_markup(console, f"[red]error[/red]: {escape(message)}")


def coloured(state: State) -> str:
    """A state in markup."""
    return f"[{COLOURS.get(state, 'default')}]{state}[/]"


def wide(console: Console) -> Console:
    """For a table: in a pipe or a log it is not folded at 80 columns."""
    return console if console.is_terminal else Console(file=console.file, width=250)
