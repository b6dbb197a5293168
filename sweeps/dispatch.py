"""One call of sweep.py: look at what is on disk, start what is missing, say how it went."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from scpo.errors import ConfigError, RecordError, RecordWriteError
from scpo.schema import Experiment, RunConfig
from scpo.tracking import RunFolder, State
from sweeps import console as show
from sweeps import manifest, store
from sweeps.compose import compose_experiment, options, parse
from sweeps.entry import EXIT_DONE, EXIT_FAILED, EXIT_INTERRUPTED
from sweeps.local import Outcome, Pool, slots_for
from sweeps.matrix import Matrix, expand
from sweeps.reconcile import Action, Observed, reconcile

EXIT_ELSEWHERE = 3  # nothing failed, but another process still runs some of the runs


@dataclass(frozen=True)
class Request:
    """What the words of the command line ask for."""

    experiment: str
    overrides: tuple[str, ...]
    dry_run: bool


@dataclass
class Found:
    """The runs of a matrix on disk: those in order with their states, and those whose records are damaged."""

    folders: dict[str, RunFolder] = field(default_factory=dict)
    seen: dict[str, Observed] = field(default_factory=dict)
    damaged: dict[str, Outcome] = field(default_factory=dict)


def read_words(words: Sequence[str]) -> Request:
    """Find the experiment and ``dry_run`` among the words; ConfigError with a hint for what Hydra would want."""
    flags = [word for word in words if word.startswith("-")]
    if flags:
        raise ConfigError(f"{flags[0]}: not needed, an experiment's axes are the sweep; `python sweep.py --help`")
    by_key = {str(parse(word).key_or_group): word for word in words}
    chosen = by_key.pop("experiment", None)
    if chosen is None:
        raise ConfigError(
            "which experiment? `python sweep.py` lists them; one run alone: `python train.py key=value ...`"
        )
    if not chosen.startswith("+"):
        raise ConfigError(f"{chosen}: an experiment is added to the configuration: write +{chosen}")
    dry_run = _truth(by_key.pop("dry_run", "dry_run=false"))
    rest = tuple(word for word in words if word in by_key.values())
    return Request(str(parse(chosen).value()), rest, dry_run)


def experiments() -> list[Experiment]:
    """All shipped experiments."""
    return [compose_experiment(name)[0] for name in options("experiment")]


def preview(console: Console, request: Request) -> int:
    """Show what a call would do. Writes nothing."""
    matrix = expand(request.experiment, request.overrides)
    seen = {run_id: _observe(RunFolder(runs_dir(matrix) / run_id)) for run_id in matrix.runs}
    show.show_matrix(console, matrix, seen, reconcile(matrix.runs, seen))
    return EXIT_DONE


def dispatch(console: Console, matrix: Matrix, train_script: Path) -> int:
    """Run what is not finished, in the local pool; returns the exit status of the command."""
    show.show_notes(console, matrix.notes)
    found = _open(matrix.runs)
    manifest.update(runs_dir(matrix), matrix)
    plan = reconcile(found.folders, found.seen)
    starts = [run_id for run_id in plan if plan[run_id].action is Action.START]
    _announce(console, {run_id: plan[run_id].action for run_id in plan})
    outcomes, completed = dict(found.damaged), True
    outcomes |= {run_id: _standing(one.action) for run_id, one in plan.items() if one.action is not Action.START}
    if starts:
        with show.ProgressBoard(console) as board:
            pool = Pool(train_script, slots_for([matrix.runs[run_id] for run_id in starts]), board)
            completed = pool.run({run_id: (found.folders[run_id], matrix.runs[run_id]) for run_id in starts})
        outcomes |= pool.outcomes
    show.show_summary(console, {run_id: outcomes[run_id] for run_id in matrix.runs if run_id in outcomes})
    if not completed:
        console.print("Stopped; what is done is kept. The same command goes on from the checkpoints.")
        return EXIT_INTERRUPTED
    return exit_status(outcomes.values())


def exit_status(outcomes: Iterable[Outcome]) -> int:
    """0: all done. 1: some failed. 130: some were interrupted. 3: the rest is run by another process."""
    states = {one.state for one in outcomes}
    for state, code in (
        (State.FAILED, EXIT_FAILED),
        (State.INTERRUPTED, EXIT_INTERRUPTED),
        (State.RUNNING, EXIT_ELSEWHERE),
    ):
        if state in states:
            return code
    return EXIT_DONE


def runs_dir(matrix: Matrix) -> Path:
    """Where this matrix's run folders lie."""
    return Path(matrix.cells[0].config.machine.runs_dir)


def _open(runs: Mapping[str, RunConfig]) -> Found:
    found = Found()
    for run_id, config in runs.items():
        try:
            folder = store.ensure(config)
            found.seen[run_id] = _observe(folder)
            found.folders[run_id] = folder
        except (RecordError, RecordWriteError) as error:
            found.damaged[run_id] = Outcome(State.FAILED, str(error))
    return found


def _observe(folder: RunFolder) -> Observed:
    if not folder.path.exists():
        return Observed(None)
    status = folder.read_status()
    return Observed(status.state, status.state is not State.DONE and store.is_alive(folder, status))


def _standing(action: Action) -> Outcome:
    return Outcome(State.DONE) if action is Action.SKIP else Outcome(State.RUNNING, "another process runs it")


def _announce(console: Console, actions: Mapping[str, Action]) -> None:
    counts = {action: sum(one is action for one in actions.values()) for action in Action}
    words = {Action.START: "to run", Action.SKIP: "finished before", Action.LEAVE: "run by another process"}
    console.print(
        ", ".join(f"{counts[action]} {words[action]}" for action in Action if counts[action]), highlight=False
    )


def _truth(word: str) -> bool:
    value = parse(word).value()
    if not isinstance(value, bool):
        raise ConfigError(f"{word}: dry_run is true or false")
    return value
