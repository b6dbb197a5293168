"""``python -m sweeps rm | clean``: delete run folders, after asking.

Finished and damaged runs are deleted only with ``--finished``. Live runs, runs that this user has
no permission to read, and folders with a mounted folder below them are never deleted. Nor is a run
that has changed since it was listed.

A removal that was interrupted leaves a hidden folder, which ``clean`` deletes.

The manifests of sweeps are not changed: tables show deleted runs as missing, and the same sweep
starts them again. If none of a manifest's runs is left, its path is printed, since the user may
want to delete it too.
"""

import argparse
import contextlib
import errno
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from shutil import which
from typing import NamedTuple

from rich.console import Console

from scpo.errors import ConfigError, RecordError, RecordWriteError
from scpo.progress import counted
from scpo.records import RunFolder, State, manifest, verify
from scpo.records.files import locked
from scpo.records.manifest import select_ids
from scpo.records.run_folders import command_on
from scpo.records.status import JobState, Status, state_of
from sweeps.launchers.slurm.job_records import Job, read_job
from sweeps.launchers.slurm.observer import Observer
from sweeps.launchers.slurm.scheduler import Slurm
from sweeps.mounts import mounted_in
from sweeps.records.process import EXIT_DONE, EXIT_FAILED
from sweeps.terminal import coloured, say, say_error, say_markup

# States of the runs that `clean` deletes.
FAILED = (State.FAILED, State.LOST)

GONE = "is gone: another process has deleted it"

# Prefix of a folder that is being deleted, so that no command takes it for a run.
REMOVED = ".removed-"


class _Seen(NamedTuple):
    """A run at one moment.

    Attributes:
        status: Its status; None if missing or unreadable.
        job: The record of its Slurm job; None if missing or unreadable.
        state: Its observed state.
        waits: For a damaged run, the reason why its job may still be queued or running, if any.
    """

    status: Status | None
    job: Job | None
    state: State
    waits: str | None


def remove(console: Console, folders: Sequence[RunFolder], arguments: argparse.Namespace) -> int:
    """Delete these run folders after asking; returns the exit status of the command.

    It is 1 if one of the runs may not be deleted or has changed since it was listed, even if the
    user declines to delete the others.
    """
    return _remove(console, folders, arguments, lambda state: True, named=True)


def clean(console: Console, folders: Sequence[RunFolder], arguments: argparse.Namespace) -> int:
    """Delete the folders of runs that are FAILED or LOST, after asking; returns the exit status.

    What interrupted removals have left is deleted too. Runs that cannot be read are listed as kept:
    they may have failed too.
    """

    def wanted(state: State) -> bool:
        return state in (*FAILED, State.UNREADABLE)

    rests = _rests(arguments.runs_dir, arguments.patterns)
    return _remove(console, folders, arguments, wanted, rests)


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
    rests: Sequence[Path] = (),
    *,
    named: bool = False,
) -> int:
    """Delete those of the run folders whose state is wanted, after asking.

    Args:
        console: Where to print.
        folders: The run folders.
        arguments: Those of ``add_arguments``.
        wanted: True for the states of runs to delete; of these, the ones to keep are listed.
        rests: Folders that interrupted removals have left, to be deleted too.
        named: True if the user has named the runs: then keeping one is a failure.
    """
    finished = getattr(arguments, "finished", False)
    to_delete, kept = _divided(folders, wanted, finished)
    mounted = {rest: why for rest in rests if (why := _why_mounted(rest))}
    rests_to_delete = [rest for rest in rests if rest not in mounted]
    for name, why in [*kept.items(), *mounted.items()]:
        say(console, f"{name} is kept: it {why}")
    for folder, seen in to_delete.items():
        say_markup(console, f"{folder.run_id}  {coloured(seen.state)}  {_steps(seen.status)}")
    for rest in rests_to_delete:
        say(console, f"{rest}  left by a removal that was interrupted")
    status_if_kept = EXIT_FAILED if named and kept else EXIT_DONE
    if not to_delete and not rests_to_delete:
        say(console, "nothing to delete")
        return status_if_kept
    what = _counted(len(to_delete), len(rests_to_delete))
    if arguments.dry_run:
        say(console, f"{what} would be deleted")
        return status_if_kept
    if not arguments.yes and not _agreed(what):
        say(console, "nothing was deleted")
        return status_if_kept

    # The user may have taken long to answer, and agreed to what the list said.
    now = to_delete if arguments.yes else _look(to_delete)
    deleted = _delete_unchanged(console, to_delete, now, finished)
    rests_deleted = [rest for rest in rests_to_delete if _delete_rest(console, rest)]
    say(console, f"{_counted(len(deleted), len(rests_deleted))} deleted")
    for path in _without_runs(deleted):
        say(
            console,
            f"{path} is left, a record of runs that are all deleted: tables and figures name them "
            "as missing; delete this file to drop its rows",
        )
    complete = len(deleted) == len(to_delete) and len(rests_deleted) == len(rests_to_delete)
    return status_if_kept if complete else EXIT_FAILED


def _delete_unchanged(
    console: Console,
    listed: Mapping[RunFolder, _Seen],
    now: Mapping[RunFolder, _Seen],
    finished: bool,
) -> list[RunFolder]:
    """Delete the runs that are as they were listed for the user; returns them."""
    deleted = []
    for folder, seen in now.items():
        if seen.state is State.NEW:
            say_error(console, f"{folder.run_id} {GONE}")
            continue
        if seen == listed[folder]:
            why = _why_kept(folder, seen, finished)
        else:
            why = f"has changed since it was listed, and is {seen.state} now"
        if why is not None:
            say_error(console, f"{folder.run_id} is kept: it {why}")
        elif _delete(console, folder, seen):
            deleted.append(folder)
    return deleted


def _look(folders: Iterable[RunFolder]) -> dict[RunFolder, _Seen]:
    """Records and states of runs, with one query of Slurm for all."""
    observer = Observer(Slurm())
    seen = {}
    for folder in folders:
        # Before the state: `_rename` then notices every change since this look began.
        status, job = _records(folder)
        state = _state(observer, folder)
        waits = _job_of_damaged(observer, folder) if state is State.DAMAGED else None
        seen[folder] = _Seen(status, job, state, waits)
    return seen


def _divided(
    folders: Iterable[RunFolder], wanted: Callable[[State], bool], finished: bool
) -> tuple[dict[RunFolder, _Seen], dict[str, str]]:
    """The runs of wanted states: those to delete, and the ids of those to keep with the reasons."""
    to_delete: dict[RunFolder, _Seen] = {}
    kept: dict[str, str] = {}
    for folder, seen in _look(folders).items():
        if not wanted(seen.state):
            continue
        why = _why_kept(folder, seen, finished)
        if why is None:
            to_delete[folder] = seen
        else:
            kept[folder.run_id] = why
    return to_delete, kept


def _records(folder: RunFolder) -> tuple[Status | None, Job | None]:
    """Status and job record of a run, each None if missing or unreadable."""
    status, job = None, None
    with contextlib.suppress(RecordError, OSError):
        status = folder.read_status()
    with contextlib.suppress(RecordError, OSError):
        job = read_job(folder)
    return status, job


def _rests(runs_dir: Path, patterns: Sequence[str]) -> list[Path]:
    """Folders that interrupted removals of the runs of these patterns have left."""
    by_id = {path.name.removeprefix(REMOVED): path for path in runs_dir.glob(f"{REMOVED}*")}
    return [by_id[run_id] for run_id in sorted(select_ids(runs_dir, by_id, patterns))]


def _counted(folders: int, rests: int) -> str:
    """``2 run folders and 1 rest of an interrupted removal``."""
    parts = [counted(folders, "run folder")] if folders or not rests else []
    if rests:
        parts.append(f"{counted(rests, 'rest')} of an interrupted removal")
    return " and ".join(parts)


def _state(observer: Observer, folder: RunFolder) -> State:
    """State of a run as `sweeps status` shows it; DAMAGED if its records or results are."""
    try:
        state = observer.observe(folder).state
        if state is not State.NEW:
            verify.check_usable(folder, state)
        return state
    except RecordError as error:
        return state_of(error)


def _job_of_damaged(observer: Observer, folder: RunFolder) -> str | None:
    """Reason why the job of a damaged run may still be queued or running; None if it is over.

    The state DAMAGED does not include the job's state.
    """
    try:
        state = observer.job_state(folder)
    except RecordError:
        return (
            f"is damaged, and so is {folder.job}: a job of it may still be in the queue. If squeue "
            "does not list one, delete this file and run the command again"
        )
    # Records may lie on a machine without Slurm, which never answers.
    is_over = state is JobState.ENDED or (state is JobState.UNKNOWN and not which("squeue"))
    if state is None or is_over:
        return None
    job = read_job(folder)
    number = job.job_id if job else None
    return f"is damaged, and its job may wait or run: `scancel {number or '<its job>'}` first"


def _why_kept(folder: RunFolder, seen: _Seen, finished: bool) -> str | None:
    """Reason why a run is not deleted; None if it may be deleted."""
    state = seen.state
    if state.live:
        cancel = command_on(folder.path.parent, "sweeps cancel", folder.run_id)
        return f"is running or waits for its job: `{cancel}` first"
    # Deleting the link would leave the data, and the data may be used under its own name.
    if folder.path.is_symlink():
        remove = shlex.join(["rm", str(folder.path)])
        return (
            f"is a link to {folder.path.resolve()}, which may be the only copy of its run: "
            f"`{remove}` removes the link only"
        )
    if state is State.DONE and not finished:
        return "is finished: --finished deletes it too"
    if state is State.UNREADABLE:
        return "is not readable for you (permission denied) and may be finished: ask its owner"
    if state is State.DAMAGED and not finished:
        return "has damaged records and may be finished: --finished deletes it too"
    # What an interrupted removal of the same run has left is deleted with it.
    return seen.waits or _why_mounted(folder.path) or _why_mounted(_renamed(folder))


def _why_mounted(folder: Path) -> str | None:
    """Reason why a folder is not deleted if a mount is at or below it, and None otherwise.

    Its content would be deleted with the folder, although it belongs to another place.
    """
    # Of a link that was left, only the link is deleted.
    if folder.is_symlink() or not folder.exists():
        return None
    mounted = mounted_in(folder)
    return None if mounted is None else f"holds a mounted folder {mounted}: unmount it first"


def _renamed(folder: RunFolder) -> Path:
    """Path of a run folder while it is being deleted."""
    return folder.path.with_name(f"{REMOVED}{folder.run_id}")


def _steps(status: Status | None) -> str:
    """Progress of a run, for the list of what would be deleted."""
    if status is None:
        return "its records cannot be read"
    return f"step {status.step} of {status.steps}"


def _agreed(what: str) -> bool:
    """Ask for confirmation to delete this; True for yes.

    Raises:
        ConfigError: The standard input is not a terminal.
    """
    # A script without --yes would wait forever for an answer.
    if not sys.stdin.isatty():
        raise ConfigError(f"{what} to delete, no terminal to ask at; --yes deletes them")
    try:
        answer = input(f"Delete {what}? [y/N] ")
    except EOFError:
        # Ctrl-D, after which the terminal is still in the line of the question.
        answer = ""
        sys.stdout.write("\n")
    return answer.strip().lower() in ("y", "yes")


def _without_runs(deleted: Sequence[RunFolder]) -> list[Path]:
    """Manifests that list a deleted run and whose runs all have no folder any more."""
    deleted_ids = {folder.run_id for folder in deleted}
    without_runs = []
    for runs_dir in dict.fromkeys(folder.path.parent for folder in deleted):
        for path in manifest.manifest_paths(runs_dir):
            try:
                rows = manifest.read(path).rows
            except RecordError:
                # Other commands report the damage. This one must not fail after the deletion.
                continue
            planned = {run.id for row in rows for run in row.runs}
            if deleted_ids & planned and not any((runs_dir / run).exists() for run in planned):
                without_runs.append(path)
    return without_runs


def _delete(console: Console, folder: RunFolder, seen: _Seen) -> bool:
    """Delete a folder; False if the run has changed since it was seen, or cannot be deleted."""
    try:
        if not _rename(console, folder, seen):
            return False
    except RecordWriteError as error:
        if folder.path.exists():
            say_error(console, f"{folder.run_id} is kept: {error}")
        else:
            say_error(console, f"{folder.run_id} {GONE}")
        return False
    return _delete_rest(console, _renamed(folder))


def _rename(console: Console, folder: RunFolder, seen: _Seen) -> bool:
    """Rename a folder to be deleted, so that no command finds a partly deleted run.

    Returns:
        False if the run has changed since it was seen, or may not be deleted or renamed.

    Raises:
        RecordWriteError: The run's lock cannot be opened.
    """
    renamed = _renamed(folder)
    # A running process holds this lock.
    with locked(folder.lock) as free:
        if not free:
            say_error(console, f"{folder.run_id} is kept: a process has just started it")
            return False
        # It may have started and ended, or got a job, since.
        if _records(folder) != (seen.status, seen.job):
            say_error(console, f"{folder.run_id} is kept: its records have just changed")
            return False
        # A folder of this name may be left from a deletion that was interrupted, or a link.
        if not _delete_rest(console, renamed):
            return False
        try:
            folder.path.rename(renamed)
        except OSError as error:
            say_error(console, f"{folder.run_id} is kept: {folder.path}: {error.strerror}")
            return False
    return True


def _delete_rest(console: Console, rest: Path) -> bool:
    """Delete a renamed folder or a link in its place; False if something is left of it."""
    if rest.is_symlink():
        rest.unlink()
        return True
    if not rest.exists():
        return True
    if mounted := _why_mounted(rest):
        say_error(console, f"{rest} is kept: it {mounted}")
        return False
    try:
        shutil.rmtree(rest)
    except OSError as error:
        # Another process may be deleting the same folder.
        if not rest.exists():
            return True
        clean_up = f"`{command_on(rest.parent, 'sweeps clean')}`"
        if error.errno == errno.EACCES:
            # A folder that may not be written keeps its files.
            clean_up = f"`{shlex.join(['chmod', '-R', 'u+w', str(rest)])}`, then {clean_up}"
        say_error(
            console,
            f"{rest.name.removeprefix(REMOVED)} is deleted in part, {error.filename} cannot be "
            f"({error.strerror}); the rest is in {rest}, and {clean_up} deletes it",
        )
        return False
    return True
