"""``python -m sweeps status [pattern]``: where things stand, from any shell."""

import argparse
import fnmatch
import sys
from pathlib import Path

from rich.console import Console

from scpo.errors import RecordError
from scpo.tracking import RunFolder, State, Status
from sweeps import console as show
from sweeps import store
from sweeps.reconcile import Observed


def main() -> int:
    """Parse the command line and answer."""
    parser = argparse.ArgumentParser(prog="python -m sweeps", description="Look at runs.")
    commands = parser.add_subparsers(dest="command", required=True)
    status = commands.add_parser("status", help="one line a run: state, step, attempt, commit")
    status.add_argument("pattern", nargs="?", default="*", help="run ids, with * and ?; for example 'alfworld-*-s0-*'")
    status.add_argument("--runs-dir", type=Path, default=Path("runs"))
    arguments = parser.parse_args()
    folders = store.run_folders(arguments.runs_dir)
    show.show_status(Console(), [_row(one) for one in folders if fnmatch.fnmatch(one.run_id, arguments.pattern)])
    return 0


def _row(folder: RunFolder) -> tuple[str, Observed, Status | None, str]:
    try:
        status = folder.read_status()
    except RecordError as error:
        return folder.run_id, Observed(None), None, str(error)
    seen = Observed(status.state, status.state is not State.DONE and store.is_alive(folder, status))
    return folder.run_id, seen, status, status.reason or ""


if __name__ == "__main__":
    sys.exit(main())
