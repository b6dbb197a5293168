"""The commands of ``python -m analysis`` in this process, as judges."""

import contextlib
import io
import threading
import traceback
from dataclasses import dataclass
from pathlib import Path

from analysis.__main__ import main

# matplotlib's state and stdout are the process's: threads take turns.
ONE_AT_A_TIME = threading.Lock()


@dataclass(frozen=True)
class Said:
    """The exit status of a command and what it printed; ``code`` None: an exception escaped it."""

    code: int | None
    text: str


def analysis(*words: str | Path) -> Said:
    """Run ``python -m analysis <words>``."""
    output = io.StringIO()
    with ONE_AT_A_TIME, contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            code: int | None = main([*map(str, words)])
        except Exception:  # noqa: BLE001 (this is what is counted)
            code = None
            output.write(traceback.format_exc(limit=-6))
    return Said(code, output.getvalue())


def show(*lines: str) -> None:
    """Print for the person who started the campaign, never into a command's output."""
    with ONE_AT_A_TIME:
        print(*lines, sep="\n", flush=True)
