"""Commands of a search: ``sweep.py +search=<name>`` runs it, ``sweeps search`` summarises it."""

import argparse
import contextlib
import fnmatch
import importlib.util
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from scpo.errors import ConfigError, RecordError, RecordWriteError, ScpoError
from scpo.installed import install_command
from scpo.progress import about, counted
from scpo.records import RunFolder, State
from scpo.records.identity import run_id
from scpo.records.run_folders import command_on
from scpo.schema.run import RunConfig
from sweeps.compose.overrides import Request
from sweeps.estimates import PastTimes, cost_lines
from sweeps.launchers.base import open_launcher
from sweeps.notify import notify
from sweeps.records.process import EXIT_DONE, EXIT_ELSEWHERE, EXIT_FAILED, EXIT_INTERRUPTED
from sweeps.search import search_folder
from sweeps.search.driver import Driver
from sweeps.search.failed_runs import DEAD
from sweeps.search.plan import Plan, first, given_up, make_plan, propose, tries_by_settings
from sweeps.search.space import describe, shown
from sweeps.search.storage import MAKE_ROOM, refuse_unusable_sqlite
from sweeps.search.study import PRUNING, Study, counts, read_trials
from sweeps.search.trial_code import change_notes, runs_of, version_notes
from sweeps.search.trial_runs import value_notes
from sweeps.terminal import say, wide

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

    # Ids of the runs of some settings, and the trials with these settings.
    Tries = tuple[frozenset[str], list[FrozenTrial]]

# Number of trials that a dry run shows.
PREVIEWED = 3
NEEDED = ("optuna", "matplotlib", "sklearn", "scipy")


def command(console: Console, request: Request, train_script: Path) -> int:
    """Run or resume the search of a command line; returns the exit status."""
    _load_optuna()
    plan = make_plan(request.name, request.overrides)
    if request.dry_run:
        _preview(console, plan, train_script)
        return EXIT_DONE

    search_folder.write_plan(plan)
    study = Study(plan)
    try:
        before = study.trials()
        _opening(console, plan, before)
        completed = _drive(console, plan, study, train_script)
        elsewhere = study.under_way() if completed else []
    finally:
        study.close()

    trials = study.trials()
    _ending(console, plan, trials, search_folder.write_results(plan, trials))
    without_value = [tries for tries in tries_by_settings(trials) if given_up(plan, tries)]
    if completed and without_value:
        _show_without_value(console, plan, without_value)
    # A search that was over before needs no message.
    if trials != before or not completed:
        what = "ended" if completed else "was stopped"
        notify(f"scpo: search {plan.study_id} {what}: {counts(trials)}")
    if not completed:
        console.print("Stopped; the same command goes on, runs from their checkpoints.")
        return EXIT_INTERRUPTED
    if elsewhere:
        verb = "is" if len(elsewhere) == 1 else "are"
        console.print(f"{counted(len(elsewhere), 'trial')} {verb} another driver's.")
        return EXIT_ELSEWHERE
    complete = any(trial.state.name == "COMPLETE" for trial in trials)
    return EXIT_DONE if complete and not without_value else EXIT_FAILED


def _show_without_value(
    console: Console, plan: Plan, groups: "Sequence[Sequence[FrozenTrial]]"
) -> None:
    """Name the settings that were given up after failures, and how they are tried again."""
    ids = [run_id for tries in groups for run_id in tries[-1].user_attrs.get(DEAD, {})]
    numbers = ", ".join(str(tries[-1].number) for tries in groups)
    verb, were, them = ("has", "was", "it") if len(groups) == 1 else ("have", "were", "them")
    again = f"with search.retries={plan.search.retries + 1}"
    if ids:
        retry = command_on(Path(plan.base.machine.runs_dir), "sweeps retry", *ids)
        again = f"after `{retry}`, or {again}"
    trials = "trial" if len(groups) == 1 else "trials"
    say(
        console,
        f"{len(groups)} of the {counted(plan.settings, 'setting')} {verb} no value: {trials} "
        f"{numbers} failed and {were} given up, for the reasons in the summary. The same command "
        f"tries {them} again {again}",
    )


def _drive(console: Console, plan: Plan, study: Study, train_script: Path) -> bool:
    """Run the driver until no trial is left; False if a signal stopped it."""
    # The launcher is made from at least one configuration.
    to_come = max(1, _runs_to_come(plan, study.trials()))
    launcher = open_launcher([plan.base] * to_come, train_script, console)
    try:
        return Driver(plan, study, launcher, lambda line: say(console, line)).run()
    except ScpoError:
        # Our own errors name the path, Optuna's do not.
        raise
    except OSError as error:
        text = (
            f"cannot write the search's records in {plan.folder}: {error.strerror}. {MAKE_ROOM}, "
            "then go on"
        )
        raise RecordWriteError(error.errno or 0, text) from error
    except Exception as error:
        refuse_unusable_sqlite(plan.folder, error)
        raise


def _runs_to_come(plan: Plan, trials: "Sequence[FrozenTrial]") -> int:
    """Number of runs still to come: those of the budget without those that are over.

    All runs of a trial are over once it is complete or pruned, or has failed without a retry left.
    """
    over = 0
    # The budget counts settings, so a retry of a failed trial adds no runs.
    for tries in tries_by_settings(trials):
        states = {trial.state.name for trial in tries}
        if states & {"COMPLETE", "PRUNED"} or given_up(plan, tries):
            over += len(plan.seeds)
        elif "RUNNING" in states:
            runs = plan.runs(tries[0].params).values()
            over += [_recorded(config) for config in runs].count(State.DONE)
    return max(0, plan.settings * len(plan.seeds) - over)


def _recorded(config: RunConfig) -> State:
    """The recorded state of a run; DAMAGED if it cannot be read."""
    folder = RunFolder(Path(config.machine.runs_dir) / run_id(config))
    try:
        return folder.read_status().state if folder.path.exists() else State.NEW
    except RecordError:
        # The driver reads the run next and fails its trial with the reason.
        return State.DAMAGED


def _preview(console: Console, plan: Plan, train_script: Path) -> None:
    """Show what the search would do; nothing is written."""
    trials = read_trials(plan)
    _opening(console, plan, trials)
    if why := _nothing_left(plan, trials):
        say(console, f"nothing is left to run: {why}")
    _show_notes(console, _to_go_on(plan, trials))
    settings = []
    if not trials:
        settings = first(plan, PREVIEWED)
        planned = {number: plan.runs(params) for number, params in enumerate(settings)}
        _show_notes(console, change_notes(plan, planned))
    default = plan.default() or {}
    table = Table("parameter", "key", "values", "without a search", box=None)
    for name, dimension in plan.search.space.items():
        table.add_row(name, dimension.key, describe(dimension), str(default.get(name, "outside")))
    wide(console).print(table)
    for number, params in enumerate(settings):
        say(console, f"trial {number}: {shown(params)}")
    say(console, f"folder: {plan.folder}" + (" (there already)" if plan.folder.exists() else ""))
    # One run is enough: runs are started one by one, all with the same request.
    launcher = open_launcher([plan.base], train_script, console)
    launcher.preview(console, {run_id(plan.base): plan.base})


def _nothing_left(plan: Plan, trials: "Sequence[FrozenTrial]") -> str | None:
    """Why a search would start no run, also if its budget was made smaller; None if it would."""
    if not trials or any(trial.state.name == "RUNNING" for trial in trials):
        return None
    if propose(plan, trials) is not None:
        return None
    tried = len(tries_by_settings(trials))
    have = "has" if tried == 1 else "have"
    why = f"{counted(tried, 'setting')} {have} been tried"
    if tried < plan.trials:
        return f"{why}, which are all of the space"
    return f"{why}, and search.trials is {plan.trials}; a larger one goes on"


def _to_go_on(plan: Plan, trials: "Sequence[FrozenTrial]") -> Iterator[str]:
    """Note the runs of present and next trials that were pruned, but not with these trials."""
    if not trials:
        settings = first(plan, PREVIEWED)
    else:
        settings = []
        for trial in trials:
            if trial.state.name == "RUNNING" and PRUNING not in trial.user_attrs:
                settings.append(trial.params)
        if (proposal := propose(plan, trials)) is not None:
            settings.append(proposal.params)
    pruned = []
    for params in settings:
        for name, config in plan.runs(params).items():
            if _recorded(config) is State.PRUNED:
                pruned.append(name)
    if pruned:
        yield (
            f"another search or a deleted one had pruned {', '.join(pruned)}; this search lets "
            f"{'them' if len(pruned) > 1 else 'it'} go on"
        )


def _opening(console: Console, plan: Plan, trials: "Sequence[FrozenTrial]") -> None:
    """Show the objective, the budget and the progress so far."""
    seeds = ", ".join(map(str, plan.seeds))
    settings = f"{plan.settings} settings"
    if plan.settings < plan.trials:
        settings += f" (all of the space; search.trials={plan.trials})"
    say(console, f"{plan.search.title}, scale={plan.scale}: {settings} x seeds {seeds}")
    tuning = plan.tuning
    where = (
        "of the games that trials train on"
        if tuning.trained_on
        else "of the training split, held out of training"
    )
    say(
        console,
        f"maximised: mean of {plan.metric} at the last step; sampler: {plan.search.sampler.name}",
    )
    say(console, f"judged on {tuning.tasks} tasks {where}; no reported panel is tuned on")
    runs = [plan.base] * plan.settings * len(plan.seeds)
    for line in cost_lines(runs, runs[: _runs_to_come(plan, trials)]):
        say(console, line)
    if plan.scale != "paper":
        seconds = PastTimes(Path(plan.base.machine.runs_dir)).seconds(plan.base)
        if seconds:
            time = (
                f"{about(seconds * len(runs))} of one slot, as runs of their kind took on this "
                "machine"
            )
        else:
            time = "unknown, none of their kind was finished here yet"
        say(console, f"time of all {len(runs)} runs: {time}")
    _show_notes(console, plan.remarks())
    if trials:
        say(console, f"so far: {counts(trials)}")
        _show_notes(console, change_notes(plan, runs_of(plan, trials)))
        _show_notes(console, value_notes(plan, trials))


def _show_notes(console: Console, notes: Iterable[str]) -> None:
    for note in notes:
        say(console, f"note: {note}")


def _ending(
    console: Console, plan: Plan, trials: "Sequence[FrozenTrial]", files: Sequence[Path]
) -> None:
    """Show the trials by state and the files of the results."""
    say(console, f"{plan.study_id}: {counts(trials)}")
    _show_notes(console, version_notes(plan, runs_of(plan, trials)))
    for path in files:
        say(console, f"    {path}")


def summarise(console: Console, arguments: argparse.Namespace) -> int:
    """Write the results of each search that the pattern matches, finished or not."""
    _load_optuna()
    known = search_folder.search_folders(arguments.runs_dir)
    chosen = [folder for folder in known if fnmatch.fnmatch(folder.name, arguments.pattern)]
    if not chosen:
        names = ", ".join(folder.name for folder in known) or "none"
        raise ConfigError(
            f"no search in {arguments.runs_dir} matches {arguments.pattern!r}; there are: {names}"
        )
    for folder in chosen:
        plan = search_folder.read_plan(folder)
        trials = read_trials(plan)
        _show_notes(console, value_notes(plan, trials))
        _ending(console, plan, trials, search_folder.write_results(plan, trials))
    return EXIT_DONE


def runs_by_search(runs_dir: Path, state: str | None = None) -> dict[str, set[str]]:
    """Ids of the trials' runs, by search; searches that cannot be read here are left out.

    ``state``: only trials in this state of Optuna's, such as ``PRUNED``.
    """
    members = {}
    for folder, plan, trials in _readable_searches(runs_dir):
        chosen = [trial for trial in trials if state in (None, trial.state.name)]
        # The present configuration files may be unable to compose a trial's runs.
        with contextlib.suppress(ScpoError):
            members[folder.name] = {run for trial in chosen for run in plan.runs(trial.params)}
    return members


def trials_by_search(runs_dir: Path) -> "list[tuple[Plan, list[Tries]]]":
    """Each search with its trials by settings; searches that cannot be read here are left out."""
    searches = []
    for _, plan, trials in _readable_searches(runs_dir):
        groups = tries_by_settings(trials)
        # As in `runs_by_search`.
        with contextlib.suppress(ScpoError):
            ids = [frozenset(plan.runs(tries[0].params)) for tries in groups]
            searches.append((plan, list(zip(ids, groups, strict=True))))
    return searches


def _readable_searches(runs_dir: Path) -> "Iterator[tuple[Path, Plan, list[FrozenTrial]]]":
    """Yield folder, plan and trials of each search that can be read; none without Optuna."""
    if importlib.util.find_spec("optuna") is None:
        return
    for folder in search_folder.search_folders(runs_dir):
        try:
            plan = search_folder.read_plan(folder)
            trials = read_trials(plan)
        except ScpoError:
            continue
        yield folder, plan, trials


def next_call(searches: "Iterable[tuple[Plan, list[Tries]]]", run_id: str) -> str | None:
    """The search that goes on with a run which ``retry`` has cleared; None if none waits for it."""
    for plan, groups in searches:
        for ids, tries in groups:
            states = {trial.state.name for trial in tries}
            if run_id not in ids or not states <= {"FAIL", "RUNNING"}:
                continue
            if given_up(plan, tries):
                again = f"search.retries={plan.search.retries + 1} tries its settings again"
                if others := sorted(tries[-1].user_attrs.get(DEAD, {}).keys() - {run_id}):
                    again = f"retry {', '.join(others)}, too, or {again}"
                return f"its trial in search {plan.study_id} stays given up: {again}"
            return (
                f"goes on at the next call of sweep.py for its search {plan.study_id} with the "
                f"same overrides: python sweep.py +search={plan.search.name} ..."
            )
    return None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``python -m sweeps search``."""
    parser.add_argument(
        "pattern", nargs="?", default="*", help="names of searches' folders, with * and ?"
    )
    parser.add_argument("--runs-dir", type=Path, default=Path("runs"))
    parser.set_defaults(run=summarise)


def _load_optuna() -> None:
    """Check the packages of the search and of its summary, and silence Optuna.

    At the start, because a package that only the summary needs would be missed after hours of
    training.
    """
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError(f"a search needs {', '.join(missing)}; {install_command('search')}")
    import optuna

    # Optuna's lines about each trial would repeat the driver's.
    optuna.logging.set_verbosity(optuna.logging.WARNING)
