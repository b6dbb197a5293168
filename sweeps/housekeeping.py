"""``python -m sweeps rm | clean``: delete run folders, after asking.

Finished and damaged runs are deleted only with ``--finished``; live runs, and those that this user
has no permission to read, never. Manifests keep their rows: tables show the runs as missing, and
the same sweep starts them again. One of which no run is left is named with what deleting it does.
"""

import argparse
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from scpo.errors import ConfigError, RecordError
from scpo.progress import counted
from scpo.records import RunFolder, State, manifest, verify
from scpo.records.files import locked
from scpo.records.run_folders import command_on
from scpo.records.status import state_of
from sweeps.launchers.slurm.observer import Observer
from sweeps.launchers.slurm.scheduler import Slurm
from sweeps.records.process import EXIT_DONE, EXIT_FAILED
from sweeps.terminal import coloured, say, say_error, say_markup

FAILED = (State.FAILED, State.LOST)

# Prefix of a folder that is being deleted, so that no reader takes it for a run.
REMOVED = ".removed-"

Choose = Callable[[argparse.Namespace], list[RunFolder]]


def remove(console: Console, folders: Sequence[RunFolder], arguments: argparse.Namespace) -> int:
    """Delete run folders after asking; finished ones only with --finished.

    The exit status is 1 if a run that was named is kept.
    """
    return _remove(console, folders, arguments, lambda state: True, named=True)


def clean(console: Console, folders: Sequence[RunFolder], arguments: argparse.Namespace) -> int:
    """Delete the folders of runs that failed or whose process was lost, after asking."""
    return _remove(console, folders, arguments, lambda state: state in (*FAILED, State.UNREADABLE))


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
    *,
    named: bool = False,
) -> int:
    observer = Observer(Slurm())
    states = {folder: _state(observer, folder) for folder in folders}
    chosen = {folder: state for folder, state in states.items() if wanted(state)}
    finished = getattr(arguments, "finished", False)
    reasons = {folder: _why_kept(folder, state, finished) for folder, state in chosen.items()}
    kept = {folder: why for folder, why in reasons.items() if why}
    for folder, why in kept.items():
        say(console, f"{folder.run_id} is kept: it {why}")
    to_delete = [folder for folder in chosen if folder not in kept]
    # `clean` names no runs, so that leaving some is what was asked.
    as_asked = EXIT_FAILED if named and kept else EXIT_DONE
    for folder in to_delete:
        say_markup(console, f"{folder.run_id}  {coloured(chosen[folder])}  {_steps(folder)}")
    if not to_delete:
        say(console, "nothing to delete")
        return as_asked
    if arguments.dry_run:
        say(console, f"{counted(len(to_delete), 'run folder')} would be deleted")
        return as_asked
    if not arguments.yes and not _agreed(len(to_delete)):
        say(console, "nothing was deleted")
        return EXIT_DONE
    # Locked one by one: a run may have started since its state was read.
    failed = [folder for folder in to_delete if not _delete(console, folder)]
    deleted = [folder for folder in to_delete if folder not in failed]
    say(console, f"{counted(len(deleted), 'run folder')} deleted")
    for path in _without_runs(deleted):
        say(
            console,
            f"{path} is left, a record of runs that are all deleted: tables and figures name them "
            "as missing; delete this file to drop its rows",
        )
    return EXIT_FAILED if failed else as_asked


def _state(observer: Observer, folder: RunFolder) -> State:
    """State of a run as `status` shows it; a finished run without intact results is DAMAGED."""
    try:
        state = observer.observe(folder).state
        if state is not State.NEW:
            verify.check_usable(folder, state)
        return state
    except RecordError as error:
        return state_of(error)


def _why_kept(folder: RunFolder, state: State, finished: bool) -> str | None:
    """Reason why a run is not deleted; None if it may be deleted."""
    if state.live:
        cancel = command_on(folder.path.parent, "sweeps cancel", folder.run_id)
        return f"is running or waits for its job: `{cancel}` first"
    if state is State.DONE and not finished:
        return "is finished: --finished deletes it too"
    if state is State.UNREADABLE:
        return "is not readable for you (permission denied) and may be finished: ask its owner"
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


def _without_runs(deleted: Sequence[RunFolder]) -> list[Path]:
    """Manifests of which runs were deleted, and none has a folder any more."""
    ids = {folder.run_id for folder in deleted}
    empty = []
    for runs_dir in dict.fromkeys(folder.path.parent for folder in deleted):
        for path in manifest.manifest_paths(runs_dir):
            try:
                planned = {run.id for row in manifest.read(path).rows for run in row.runs}
            except RecordError:
                # The commands that read it report it; here it must not fail after deleting.
                continue
            if ids & planned and not any((runs_dir / run).exists() for run in planned):
                empty.append(path)
    return empty


def _delete(console: Console, folder: RunFolder) -> bool:
    """Delete a folder; False if a process has just started the run.

    The folder is renamed first, so that no reader finds half a run.
    """
    with locked(folder.lock) as free:
        if not free:
            say_error(console, f"{folder.run_id} is kept: a process has just started it")
            return False
        renamed = folder.path.with_name(f"{REMOVED}{folder.run_id}")
        # An interrupted deletion may have left it.
        shutil.rmtree(renamed, ignore_errors=True)
        folder.path.rename(renamed)
    # Outside the lock, whose file was moved with the folder.
    shutil.rmtree(renamed)
    return True
