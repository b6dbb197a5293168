"""``python -m sweeps rm | clean``: delete run folders, after asking.

A finished run, or one whose records cannot be read, goes only with ``--finished``, a live one
never. Manifests keep their rows, so that tables show the runs as missing and the same sweep makes
them again.
"""

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence

from rich.console import Console

from scpo.errors import ConfigError, RecordError
from scpo.progress import counted
from scpo.records import RunFolder, State
from scpo.records.files import locked
from sweeps.launchers.slurm.observer import Observer
from sweeps.launchers.slurm.scheduler import Slurm
from sweeps.records.process import EXIT_DONE, EXIT_FAILED
from sweeps.terminal import coloured, say, say_error, say_markup

FAILED = (State.FAILED, State.LOST)

# Prefix of a folder that is being deleted, so that no reader takes it for a run.
REMOVED = ".removed-"

Choose = Callable[[argparse.Namespace], list[RunFolder]]


def remove(console: Console, folders: Sequence[RunFolder], arguments: argparse.Namespace) -> int:
    """Delete run folders after asking; finished ones only with --finished."""
    return _remove(console, folders, arguments, lambda state: True)


def clean(console: Console, folders: Sequence[RunFolder], arguments: argparse.Namespace) -> int:
    """Delete the folders of runs that failed or whose process was lost, after asking."""
    return _remove(console, folders, arguments, lambda state: state in FAILED)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of rm and clean, except the patterns."""
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="only list what would be deleted")
    if parser.prog.endswith("rm"):
        parser.add_argument("--finished", action="store_true", help="delete finished runs too")


def _remove(
    console: Console,
    folders: Sequence[RunFolder],
    arguments: argparse.Namespace,
    wanted: Callable[[State], bool],
) -> int:
    # States are read again here, because a run may have started since the list was shown.
    observer = Observer(Slurm())
    states = {folder: _state(observer, folder) for folder in folders}
    chosen = {folder: state for folder, state in states.items() if wanted(state)}
    finished = getattr(arguments, "finished", False)
    reasons = {folder: _why_kept(state, finished) for folder, state in chosen.items()}
    kept = {folder: why for folder, why in reasons.items() if why}
    for folder, why in kept.items():
        say(console, f"{folder.run_id} is kept: it {why}")
    doomed = [folder for folder in chosen if folder not in kept]
    for folder in doomed:
        say_markup(console, f"{folder.run_id}  {coloured(chosen[folder])}  {_steps(folder)}")
    if not doomed:
        say(console, "nothing to delete")
        return EXIT_DONE
    if arguments.dry_run:
        say(console, f"{counted(len(doomed), 'run folder')} would be deleted")
        return EXIT_DONE
    if not arguments.yes and not _agreed(len(doomed)):
        say(console, "nothing was deleted")
        return EXIT_DONE
    failed = [folder for folder in doomed if not _delete(console, folder)]
    say(console, f"{counted(len(doomed) - len(failed), 'run folder')} deleted")
    return EXIT_FAILED if failed else EXIT_DONE


def _state(observer: Observer, folder: RunFolder) -> State:
    try:
        return observer.observe(folder).state
    except RecordError:
        return State.DAMAGED


def _why_kept(state: State, finished: bool) -> str | None:
    """Why a run is not deleted; None if it may be."""
    if state.live:
        return "is running or waits for its job: `python -m sweeps cancel` first"
    if state is State.DONE and not finished:
        return "is finished: --finished deletes it too"
    if state is State.DAMAGED and not finished:
        return "has damaged records and may be finished: --finished deletes it too"
    return None


def _steps(folder: RunFolder) -> str:
    try:
        status = folder.read_status()
    except RecordError:
        return "its records cannot be read"
    return f"step {status.step} of {status.steps}"


def _agreed(count: int) -> bool:
    """Ask for confirmation.

    Raises:
        ConfigError: The standard input is not a terminal.
    """
    # A script that forgot --yes would wait for an answer for ever.
    if not sys.stdin.isatty():
        raise ConfigError(
            f"{counted(count, 'run folder')} to delete, no terminal to ask at; --yes deletes them"
        )
    return input(f"Delete {counted(count, 'run folder')}? [y/N] ").strip().lower() in ("y", "yes")


def _delete(console: Console, folder: RunFolder) -> bool:
    """Rename, so that no reader sees half a run, then delete; False if a process has the run."""
    with locked(folder.lock) as free:
        if not free:
            say_error(console, f"{folder.run_id} is kept: a process has just started it")
            return False
        grave = folder.path.with_name(f"{REMOVED}{folder.run_id}")
        # Left by a deletion that was interrupted.
        shutil.rmtree(grave, ignore_errors=True)
        folder.path.rename(grave)
    # Outside the lock, whose file was moved with the folder.
    shutil.rmtree(grave)
    return True
