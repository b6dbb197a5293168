"""Inspect and control runs from any shell.

    python -m sweeps status ['ablation*' ...]   one line a run: state, step, attempt, remarks
    python -m sweeps top                        the same, live runs first, updated every two seconds
    python -m sweeps logs [-f] <pattern>        the end of each run's newest log; -f: follow it
    python -m sweeps cancel <pattern>           stop runs; no sweep starts them again before `retry`
    python -m sweeps retry <pattern>            let runs start again that failed or were cancelled
    python -m sweeps rm <pattern>               delete run folders, after asking (also --finished)
    python -m sweeps clean                      delete folders of failed and lost runs, after asking
    python -m sweeps export <run> [-o FILE]     a run's configuration as an experiment for sweep.py
    python -m sweeps verify ['*']               check that records and checkpoints are undamaged
    python -m sweeps health ['*']               find collapse, spikes, stalls (conf/health.yaml)
    python -m sweeps sync ['*']                 push what offline runs wrote for Weights & Biases
    python -m sweeps view ENTITY/PROJECT        save an overview of a W&B project
    python -m sweeps search [<search>]          write a search's summary, winner and plots
    python -m sweeps completion                 shell completion: source <(python -m sweeps ...)
    python -m sweeps doctor [key=value ...]     find problems of these runs, and their fixes

A pattern matches run ids and names of experiments; quote its wildcards * and ?. The name of an
experiment matches the runs of all its calls, with any overrides.
Exit status: 0 done; 1 problems that verify, health or doctor found, runs that retry, rm or sync
left as they were, or jobs that cancel could not end; 2 wrong command.
`status` ends with 0 in whatever state runs are (--json has the states).
"""

import argparse
import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from scpo.installed import REPOSITORY
from scpo.start import explain_wrong_start

if wrong := explain_wrong_start():
    sys.exit(f"error: {wrong}")

from rich.console import Console

from scpo.errors import ConfigError, ScpoError, UnreadableError
from scpo.progress import counted
from scpo.records import RunFolder, State, run_config, run_folders, verify
from scpo.records.files import check_readable, replace_file
from scpo.records.manifest import experiment_members, manifests_of, other_names, select
from scpo.records.run_folders import command_on
from scpo.suggestions import SuggestingParser
from sweeps import housekeeping, wandb_commands
from sweeps.doctor import examination
from sweeps.export import experiment_yaml, launcher_words, machine_words
from sweeps.launchers.run_process import tail
from sweeps.launchers.slurm import observer
from sweeps.launchers.slurm.job_records import read_job
from sweeps.launchers.slurm.observer import Cancelled, Observer
from sweeps.launchers.slurm.scheduler import Slurm
from sweeps.records import cancellation
from sweeps.records.process import EXIT_BAD_CONFIG, EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED
from sweeps.search import search_command
from sweeps.status import (
    RunStatus,
    add_health_arguments,
    follow_logs,
    newest_log,
    show_health,
    show_statuses,
    statuses,
    watch,
    why_ended,
)
from sweeps.terminal import complaint, replace_what_cannot_be_printed, say, say_error

RUNS = Path("runs")
TOP_S = 2.0


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status."""
    # A terminal with another encoding must not end a command in the middle of its output.
    replace_what_cannot_be_printed()
    arguments = _parser().parse_args(argv)
    command: Callable[[Console, argparse.Namespace], int] = arguments.run
    try:
        if runs_dir := getattr(arguments, "runs_dir", None):
            check_readable(runs_dir)
        _name_records(arguments)
        _name_missing_folder(arguments)
        return command(Console(), arguments)
    except (ScpoError, OSError) as error:
        say_error(Console(stderr=True), complaint(error))
        return EXIT_BAD_CONFIG
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def status(console: Console, arguments: argparse.Namespace) -> int:
    """Show the states of runs."""
    read = partial(_statuses, arguments)
    if arguments.json:
        console.print_json(json.dumps([asdict(report) for report in read()]))
    elif arguments.watch is None:
        show_statuses(console, read())
    else:
        watch(console, read, arguments.watch)
    return EXIT_DONE


def top(console: Console, arguments: argparse.Namespace) -> int:
    """Show live runs first, with success and time left, until all have ended."""
    if console.is_terminal:
        watch(console, partial(_statuses, arguments), TOP_S)
    else:
        show_statuses(console, _statuses(arguments))
    return EXIT_DONE


def logs(console: Console, arguments: argparse.Namespace) -> int:
    """Show the end of each run's newest log."""
    folders = []
    code = EXIT_DONE
    for folder in _chosen(arguments):
        try:
            check_readable(folder.path)
            folders.append(folder)
        except UnreadableError as error:
            say_error(console, f"{folder.run_id}: {error}")
            code = EXIT_FAILED
    if arguments.follow:
        follow_logs(console, folders, arguments.lines)
        return code
    look = Observer(Slurm())
    for folder in folders:
        path = newest_log(folder)
        say(console, f"{folder.run_id}  {path}")
        lines = tail(path, arguments.lines)
        for line in lines or ["(nothing yet)"]:
            say(console, f"    {line}")
        # The log of a run that was cut off does not have the reason.
        for line in why_ended(folder, look, lines):
            say(console, f"    {line}")
    return code


def cancel(console: Console, arguments: argparse.Namespace) -> int:
    """Stop runs that wait, run, or would be continued by a sweep; others keep their states."""
    scheduler = Slurm()
    look = Observer(scheduler)
    code = EXIT_DONE
    for folder in _chosen(arguments):
        try:
            done = _cancel(console, folder, scheduler, look, arguments.reason)
        except ScpoError as error:
            say_error(console, f"{folder.run_id} may go on: {error}")
            done = False
        if not done:
            code = EXIT_FAILED
    return code


def _cancel(
    console: Console, folder: RunFolder, scheduler: Slurm, look: Observer, reason: str
) -> bool:
    """Cancel one run and say how; False if its job may still be in the queue."""
    state = look.observe(folder).state
    # A failed run stays FAILED, because CANCELLED would hide the failure. Sweeps stop trying it
    # again after max_failures.
    result = Cancelled.LEFT
    if state is not State.FAILED:
        result = observer.cancel(folder, scheduler, reason=reason, look=look)
    if result is Cancelled.UNANSWERED:
        again = command_on(folder.path.parent, "sweeps cancel", folder.run_id)
        say_error(
            console,
            f"{folder.run_id}: Slurm did not answer, so its job may still be in the queue. The "
            "run is cancelled, and the job would end as it starts; to take the job out of the "
            f"queue when Slurm answers: {again}",
        )
        return False
    if result is Cancelled.JOB_ENDED:
        say(console, f"{folder.run_id}: was cancelled before; its job was still in the queue")
    elif result is Cancelled.UNLISTED:
        why = look.doubt(read_job(folder))
        say(console, f"{folder.run_id}: cancelled, and its job with scancel: {why}")
    elif result is Cancelled.ASKED:
        say(console, f"{folder.run_id}: {_how_it_ends(folder)}")
    else:
        console.print(f"{folder.run_id}: left as it is, {state}", highlight=False)
    return True


def _how_it_ends(folder: RunFolder) -> str:
    """Describe the end of a run that was asked to stop."""
    status = folder.read_status()
    if status.state is not State.RUNNING:
        return "cancelled"
    if run_config.read_config(folder).method.kind == "prompted":
        return "ends after the episodes that it plays"
    checkpoints = folder.complete_checkpoints()
    # A resumed run that is still loading has the same record as one that has just saved.
    if checkpoints and status.step <= checkpoints[-1]:
        return (
            "ends with a checkpoint after its present step, or at once if it is still loading: its "
            f"last checkpoint is of step {checkpoints[-1]}"
        )
    if status.step:
        return "ends with a checkpoint after its present step"
    return "ends at once, or after its first step if that has begun: it has no checkpoint yet"


def retry(console: Console, arguments: argparse.Namespace) -> int:
    """Let runs start again."""
    look = Observer(Slurm())
    code = EXIT_DONE
    # Read for the first pruned run, because it composes the runs of all searches.
    pruned_by_search: dict[str, set[str]] | None = None
    retried: list[tuple[RunFolder, bool]] = []
    for folder in _chosen(arguments):
        try:
            before = folder.read_status().state
            # The name of an experiment means its finished runs, too.
            if before is State.DONE and folder.run_id not in arguments.patterns:
                console.print(f"{folder.run_id}: left as it is, {before}", highlight=False)
                continue
            if before is State.CANCELLED:
                look.forget_lost_job(folder)
            cancellation.retry(folder)
            retried.append((folder, before is State.PRUNED))
        except ScpoError as error:
            say_error(console, str(error))
            code = EXIT_FAILED

    # After all of them were cleared, because a search may need several of them.
    searches: list[Any] | None = None
    for folder, pruned in retried:
        try:
            how = _why_not_yet(folder, look) or _next_call_of_sweep(folder)
            if how is None and not pruned:
                if searches is None:
                    searches = search_command.trials_by_search(arguments.runs_dir)
                how = search_command.next_call(searches, folder.run_id)
            say(console, f"{folder.run_id}: {how or _how_it_goes_on(folder)}")
            if pruned and pruned_by_search is None:
                pruned_by_search = search_command.runs_by_search(arguments.runs_dir, "PRUNED")
            for name, members in (pruned_by_search or {}).items():
                if pruned and folder.run_id in members:
                    say(console, f"    its trial in search {name} has ended and stays PRUNED")
        except ScpoError as error:
            say_error(console, str(error))
            code = EXIT_FAILED
    return code


def _why_not_yet(folder: RunFolder, look: Observer) -> str | None:
    """Why no call starts a run before more is known of its job; None if a call may start it."""
    seen = look.observe(folder)
    if seen.state is not State.UNKNOWN:
        return None
    runs_dir = folder.path.parent
    cancel = command_on(runs_dir, "sweeps cancel", folder.run_id)
    retry = command_on(runs_dir, "sweeps retry", folder.run_id)
    return (
        "may start again, but is left as it is until Slurm answers that its job is over "
        f"({look.remark(folder, seen)}). If the job is lost, when squeue answers: `{cancel}`, "
        f"`{retry}`"
    )


def _next_call_of_sweep(folder: RunFolder) -> str | None:
    """Name the call of sweep.py that starts a run again; None for a run of no experiment."""
    runs_dir = folder.path.parent
    here = () if runs_dir == RUNS else (f"machine.runs_dir={runs_dir}",)
    manifest = next(manifests_of(runs_dir, folder.run_id), None)
    if manifest is None:
        return None
    config = run_config.read_config(folder)
    of_machine = (*launcher_words(config.launcher), *machine_words(config), *here)
    words = (*manifest.words, f"seeds=[{config.seed}]", *of_machine)
    return (
        "goes on at the next call of sweep.py for its experiment with the same overrides: "
        f"python sweep.py {shlex.join(words)}"
    )


def _how_it_goes_on(folder: RunFolder) -> str:
    """Name the command that starts a run of no experiment again, that of train.py."""
    try:
        run_config.read_config(folder).check_started_here()
    except ConfigError as error:
        return f"may start again; {error}"
    path = shlex.quote(str(folder.path))
    return f"belongs to no experiment; goes on with: python train.py {path}"


def remove(console: Console, arguments: argparse.Namespace) -> int:
    """Delete run folders, after asking."""
    return housekeeping.remove(console, _chosen(arguments), arguments)


def clean(console: Console, arguments: argparse.Namespace) -> int:
    """Delete the folders of failed and lost runs, after asking."""
    return housekeeping.clean(console, _chosen(arguments), arguments)


def export(console: Console, arguments: argparse.Namespace) -> int:
    """Write a run's configuration as an experiment."""
    folders = _chosen(arguments)
    if len(folders) != 1:
        found = ", ".join(folder.run_id for folder in folders) or "none"
        raise ConfigError(f"export takes one run; {' '.join(arguments.patterns)} matches {found}")

    text = experiment_yaml(folders[0])
    if arguments.output is None:
        sys.stdout.write(text)
        return EXIT_DONE
    if arguments.output.suffix != ".yaml":
        raise ConfigError(
            f"-o {arguments.output}: sweep.py reads experiments from files that end in .yaml; name "
            f"{arguments.output.stem or 'mine'}.yaml"
        )
    # The file may be an experiment that was edited since, so it is never overwritten.
    if arguments.output.exists():
        raise ConfigError(f"-o {arguments.output}: the file exists already; name another file")
    parent = arguments.output.parent
    if not parent.is_dir():
        make = shlex.join(["mkdir", "-p", str(parent)])
        raise ConfigError(f"-o {arguments.output}: there is no folder {parent}: `{make}` first")
    replace_file(arguments.output, text.encode(), readable=True)
    scale = run_config.read_config(folders[0]).scale
    say(
        console,
        f"{arguments.output}: python sweep.py +experiment={arguments.output} scale={scale} "
        "dry_run=true",
    )
    return EXIT_DONE


def check(console: Console, arguments: argparse.Namespace) -> int:
    """Check that records and newest checkpoints are undamaged and agree."""
    folders = _chosen(arguments)
    found: list[str] = []
    for folder in folders:
        found += verify.problems(folder)
    found += verify.panel_conflicts(folders)
    _, damaged_manifests = experiment_members(arguments.runs_dir)
    found += damaged_manifests
    for problem in found:
        say_error(console, problem)

    # Not counted as problems: a run may be killed before its first checkpoint.
    for folder in folders:
        for remark in verify.remarks(folder):
            say(console, remark)

    # Not counted as problems: runs of train.py are in no experiment. For a run of a sweep, the
    # line shows that its manifest was deleted.
    in_none = verify.without_experiment(arguments.runs_dir, folders)
    by_search = search_command.runs_by_search(arguments.runs_dir) if in_none else {}
    for name, members in by_search.items():
        if trials := members.intersection(in_none):
            say(console, f"{counted(len(trials), 'run')} of the trials of search {name}")
    in_search: set[str] = set().union(*by_search.values())
    in_none = [run_id for run_id in in_none if run_id not in in_search]
    if in_none:
        where = "in no experiment"
        if damaged_manifests:
            # Their experiments may be those whose records could not be read.
            unread = counted(len(damaged_manifests), "record")
            where = f"in no experiment whose record could be read ({unread} could not, see above)"
        console.print(f"{where}: {', '.join(in_none)}", highlight=False)
    console.print(
        f"{counted(len(folders), 'run')}, {counted(len(found), 'problem')}", highlight=False
    )
    return EXIT_FAILED if found else EXIT_DONE


def complete(console: Console, arguments: argparse.Namespace) -> int:
    """Shell completion of overrides: source <(python -m sweeps completion)."""
    from sweeps.compose.completion import SCRIPT, candidates

    if arguments.word is None:
        sys.stdout.write(SCRIPT)
    else:
        for candidate in candidates(arguments.word):
            sys.stdout.write(f"{candidate}\n")
    return EXIT_DONE


def health(console: Console, arguments: argparse.Namespace) -> int:
    """Apply the rules of conf/health.yaml to live and finished runs."""
    if show_health(console, _chosen(arguments), arguments):
        return EXIT_DONE
    return EXIT_FAILED


def push(console: Console, arguments: argparse.Namespace) -> int:
    """Push what offline runs wrote for Weights & Biases."""
    if wandb_commands.sync(console, _chosen(arguments)):
        return EXIT_DONE
    return EXIT_FAILED


def _name_records(arguments: argparse.Namespace) -> None:
    """Name the records that a pattern includes if its experiment was called in several ways."""
    # On the error stream, because programs may read the output.
    console = Console(stderr=True)
    patterns = getattr(arguments, "patterns", ())
    aliases = other_names(arguments.runs_dir) if patterns else {}
    members = experiment_members(arguments.runs_dir)[0] if aliases else {}
    for pattern in patterns:
        names = sorted(name for name, other in aliases.items() if pattern in other)
        # A single record is that of the experiment's only call; it may have the name of its axes.
        if len(names) + (pattern in members) > 1:
            say(
                console,
                f"{pattern}: also the runs of calls with other overrides or rows, "
                f"{', '.join(names)}",
            )


def _name_missing_folder(arguments: argparse.Namespace) -> None:
    """Note that the default folder of runs is not there, for commands that take all runs."""
    taken = getattr(arguments, "patterns", ())
    # Where the checkout has runs, `_chosen` names its folder.
    if run_folders.list_runs(REPOSITORY / RUNS):
        return
    if taken == ["*"] and arguments.runs_dir == RUNS and not RUNS.exists():
        say(Console(stderr=True), f"there is no folder {RUNS}/ here ({Path.cwd()})")


def _chosen(arguments: argparse.Namespace) -> list[RunFolder]:
    # Before the first run the default folder does not exist; one given by --runs-dir must.
    if arguments.runs_dir != RUNS and not arguments.runs_dir.is_dir():
        raise ConfigError(
            f"--runs-dir {arguments.runs_dir}: there is no such folder; default: {RUNS}"
        )
    usual = REPOSITORY / RUNS
    if not arguments.runs_dir.exists() and run_folders.list_runs(usual):
        raise ConfigError(
            f"there is no {RUNS}/ here ({Path.cwd()}); those of the checkout: --runs-dir {usual}"
        )
    return select(arguments.runs_dir, arguments.patterns)


def _statuses(arguments: argparse.Namespace) -> list[RunStatus]:
    return statuses(_chosen(arguments), Observer(Slurm()))


def _parser() -> argparse.ArgumentParser:
    parser = SuggestingParser(
        prog="python -m sweeps",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, run, all_by_default in (
        ("status", status, True),
        ("top", top, True),
        ("logs", logs, False),
        ("cancel", cancel, False),
        ("retry", retry, False),
        ("rm", remove, False),
        ("clean", clean, True),
        ("export", export, False),
        ("verify", check, True),
        ("health", health, True),
        ("sync", push, True),
    ):
        command = commands.add_parser(name, help=run.__doc__)
        # Without a pattern, a command takes all runs or is refused.
        patterns = dict(nargs="*", default=["*"]) if all_by_default else dict(nargs="+")
        command.add_argument(
            "patterns", metavar="pattern", help="run ids or experiments, with * and ?", **patterns
        )
        command.add_argument("--runs-dir", "--runs", type=Path, default=RUNS)
        command.set_defaults(run=run)

    _add_options(commands.choices)
    search_command.add_arguments(
        commands.add_parser("search", help=search_command.summarise.__doc__)
    )
    examination.add_arguments(commands.add_parser("doctor", help=examination.doctor.__doc__))
    saved = str(wandb_commands.save_view.__doc__).partition("\n")[0]
    wandb_commands.add_view_arguments(commands.add_parser("view", help=saved))
    completion = commands.add_parser("completion", help=complete.__doc__)
    completion.add_argument(
        "--word", help="what was typed so far; without it, the script for the shell"
    )
    completion.set_defaults(run=complete)
    return parser


def _add_options(commands: Mapping[str, argparse.ArgumentParser]) -> None:
    """Add the options of the commands that take patterns."""
    commands["status"].add_argument("--json", action="store_true", help="for programs")
    commands["status"].add_argument(
        "--watch",
        type=float,
        nargs="?",
        const=5.0,
        metavar="S",
        help="look again every S seconds until all has ended",
    )
    commands["logs"].add_argument("-n", "--lines", type=int, default=40)
    commands["logs"].add_argument(
        "-f", "--follow", action="store_true", help="print new lines until the runs have ended"
    )
    commands["cancel"].add_argument("--reason", default="cancelled")
    commands["export"].add_argument(
        "-o", "--output", type=Path, help="file, ending in .yaml (default: print)"
    )
    add_health_arguments(commands["health"])
    housekeeping.add_arguments(commands["rm"])
    housekeeping.add_arguments(commands["clean"])


if __name__ == "__main__":
    sys.exit(main())
