"""``python sweep.py +search=<name>``: run a search or show what it would do; ``python -m sweeps search``: sum it up."""

import argparse
import fnmatch
import importlib.util
from pathlib import Path

from rich.console import Console

from scpo.errors import ConfigError, RecordWriteError, ScpoError
from scpo.schema import SlurmLauncher
from sweeps.compose.overrides import Request
from sweeps.local.forked_runs import forked_runs
from sweeps.local.progress_board import ProgressBoard
from sweeps.local.slot_pool import Pool, slots_for
from sweeps.records.attempt import EXIT_DONE, EXIT_ELSEWHERE, EXIT_FAILED, EXIT_INTERRUPTED
from sweeps.records.run_process import Begin
from sweeps.search import search_folder, search_messages
from sweeps.search.driver import Driver
from sweeps.search.plan import Plan, make_plan
from sweeps.search.study import Study, read_trials
from sweeps.slurm.launcher import Cluster
from sweeps.slurm.scheduler import Slurm
from sweeps.slurm.submission import call_sbatch
from sweeps.terminal import say

NEEDED = ("optuna", "matplotlib", "sklearn", "scipy")


def command(console: Console, request: Request, train_script: Path) -> int:
    """Answer the command line; returns the exit status. Goes on where an earlier call was stopped or killed."""
    _load_optuna()
    plan = make_plan(request.name, request.overrides)
    if request.dry_run:
        search_messages.preview(console, plan)
        return EXIT_DONE
    search_folder.write_plan(plan)
    study = Study(plan)
    try:
        search_messages.opening(console, plan, study.trials())
        completed = _drive(console, plan, study, train_script)
        elsewhere = study.under_way() if completed else []
    finally:
        study.close()
    search_messages.ending(console, plan, study.trials(), search_folder.write_results(plan, study.trials()))
    if not completed:
        console.print("Stopped; the same command goes on, runs from their checkpoints.")
        return EXIT_INTERRUPTED
    if elsewhere:
        console.print(f"{len(elsewhere)} trials are another driver's.")
        return EXIT_ELSEWHERE
    return EXIT_DONE if any(trial.state.name == "COMPLETE" for trial in study.trials()) else EXIT_FAILED


def _drive(console: Console, plan: Plan, study: Study, train_script: Path) -> bool:
    runs = [plan.base] * plan.trials * len(plan.seeds)
    with ProgressBoard(console) as board, forked_runs(runs, board.note) as begin:
        launcher = _launcher(plan, train_script, board, begin)
        try:
            return Driver(plan, study, launcher, lambda line: say(console, line)).run()
        except OSError as error:  # Optuna's: ours name themselves
            if isinstance(error, ScpoError):
                raise
            text = f"cannot write the search's records in {plan.folder}: {error.strerror}. Make room, then go on"
            raise RecordWriteError(error.errno or 0, text) from error


def _launcher(plan: Plan, train_script: Path, board: ProgressBoard, begin: Begin) -> Pool | Cluster:
    first = plan.base
    if isinstance(first.launcher, SlurmLauncher):
        return Cluster(first.launcher, Path(first.machine.runs_dir), Slurm(), call_sbatch)
    return Pool(train_script, slots_for([first] * plan.trials * len(plan.seeds)), board, begin)


def summarise(console: Console, arguments: argparse.Namespace) -> int:
    """Write the summary of a search that has ended, or as far as it has come."""
    _load_optuna()
    known = search_folder.search_folders(arguments.runs_dir)
    chosen = [folder for folder in known if fnmatch.fnmatch(folder.name, arguments.pattern)]
    if not chosen:
        names = ", ".join(folder.name for folder in known) or "none"
        raise ConfigError(f"no search in {arguments.runs_dir} matches {arguments.pattern!r}; there are: {names}")
    for folder in chosen:
        plan = search_folder.read_plan(folder)
        trials = read_trials(plan)
        search_messages.ending(console, plan, trials, search_folder.write_results(plan, trials))
    return EXIT_DONE


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``python -m sweeps search``."""
    parser.add_argument("pattern", nargs="?", default="*", help="names of searches' folders, with * and ?")
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.set_defaults(run=summarise)


def _load_optuna() -> None:
    """Now, and with it whatever the summary will need: not after hours of training."""
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"a search needs {', '.join(missing)}; pip install 'scpo[search]'")
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)  # what it logs of every trial, the driver says
