"""One call of sweep.py: look at what is on disk, start what is missing, say how it went."""

import contextlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from scpo.errors import RecordError, RecordWriteError
from scpo.records import RunFolder, State, manifest, run_folders
from scpo.records.status import Observed
from scpo.schema import Experiment, LauncherConfig, SlurmLauncher
from sweeps import console as show
from sweeps.compose.configuration import compose_experiment
from sweeps.compose.matrix import Matrix, expand
from sweeps.compose.overrides import CONF, Request, options
from sweeps.launchers.forked import forked_runs
from sweeps.launchers.local import Pool, refused_here, slots_for
from sweeps.launchers.progress_board import ProgressBoard
from sweeps.launchers.run_process import Outcome
from sweeps.launchers.slurm.cluster_settings import read_site
from sweeps.launchers.slurm.launcher import Cluster
from sweeps.launchers.slurm.observer import Observer
from sweeps.launchers.slurm.preview import show_submissions
from sweeps.launchers.slurm.scheduler import Slurm
from sweeps.launchers.slurm.submission import Sbatch, by_request, call_sbatch
from sweeps.records.attempt import EXIT_DONE, EXIT_ELSEWHERE, EXIT_FAILED, EXIT_INTERRUPTED
from sweeps.records.reconcile import Action, Decision, reconcile


@dataclass
class Found:
    """The runs of a matrix on disk: those in order with their states, and those whose records are damaged."""

    folders: dict[str, RunFolder] = field(default_factory=dict)
    seen: dict[str, Observed] = field(default_factory=dict)
    damaged: dict[str, Outcome] = field(default_factory=dict)
    plan: dict[str, Decision] = field(default_factory=dict)

    def planned(self, action: Action) -> dict[str, RunFolder]:
        """The runs that this is to be done to."""
        return {run_id: self.folders[run_id] for run_id, one in self.plan.items() if one.action is action}

    def outcomes(self) -> dict[str, Outcome]:
        """How the runs stand that this call does not start."""
        left = {run_id: one for run_id, one in self.plan.items() if one.action is not Action.START}
        return {**self.damaged, **{run_id: _without_start(one, self.seen[run_id]) for run_id, one in left.items()}}


def experiments() -> list[Experiment]:
    """All shipped experiments."""
    return [compose_experiment(name)[0] for name in options("experiment")]


def preview(console: Console, request: Request) -> int:
    """Show what a call would do. Writes nothing."""
    matrix = expand(request.name, request.overrides)
    observer, launcher = Observer(Slurm()), launcher_of(matrix)
    seen = {run_id: observer.observe(RunFolder(runs_dir(matrix) / run_id)) for run_id in matrix.runs}
    archived = _archived(matrix)
    seen |= dict.fromkeys(archived, Observed(State.DONE))
    plan = reconcile(matrix.runs, seen, launcher.max_failures) | archived
    show.show_notes(console, _elsewhere(runs_dir(matrix)))
    show.show_matrix(console, matrix, seen, plan)
    starts = {run_id: config for run_id, config in matrix.runs.items() if plan[run_id].action is Action.START}
    if isinstance(launcher, SlurmLauncher) and starts:
        cluster = Cluster(launcher, runs_dir(matrix), observer.scheduler, call_sbatch)
        show_submissions(console, list(cluster.planned(starts)))
    elif starts and (reason := refused_here(list(starts.values()))):
        show.show_notes(console, [f"would be refused on this machine: {reason}"])
    return EXIT_DONE


def dispatch(console: Console, matrix: Matrix, train_script: Path) -> int:
    """Run what is not finished, in the local pool, or submit it to Slurm; returns the exit status of the command."""
    show.show_notes(console, [*matrix.notes, *_elsewhere(runs_dir(matrix))])
    if isinstance(launcher_of(matrix), SlurmLauncher):
        return submit(console, matrix, Slurm(), call_sbatch)
    slots_for(list(matrix.runs.values()))  # refuses what this machine cannot run, before a folder is made
    archived = _archived(matrix)
    with run_folders.driver_lock(runs_dir(matrix)):
        found = _open(console, matrix, Observer(Slurm()), archived)
    starts = found.planned(Action.START)
    outcomes, completed = found.outcomes(), True
    if starts:
        configs = [matrix.runs[run_id] for run_id in starts]
        with ProgressBoard(console, configs) as board, forked_runs(configs, board.note) as begin:
            pool = Pool(train_script, slots_for(configs), board, begin)
            completed = pool.run({run_id: (folder, matrix.runs[run_id]) for run_id, folder in starts.items()})
        outcomes |= pool.outcomes
    show.show_summary(console, {run_id: outcomes[run_id] for run_id in matrix.runs if run_id in outcomes})
    if not completed:
        console.print("Stopped; what is done is kept. The same command goes on from the checkpoints.")
        return EXIT_INTERRUPTED
    return exit_status(outcomes.values())


def submit(console: Console, matrix: Matrix, scheduler: Slurm, sbatch: Sbatch) -> int:
    """Submit what is not finished, and leave.

    The lock is held until the jobs are recorded: of two sweeps at once, the second one finds what the first submitted.
    """
    launcher = launcher_of(matrix)
    assert isinstance(launcher, SlurmLauncher)  # noqa: S101 (for mypy; `dispatch` chose by it)
    by_request(matrix.runs, launcher, read_site(launcher.site))  # refuses what fits no job, before a folder is made
    observer, archived = Observer(scheduler), _archived(matrix)
    with run_folders.driver_lock(runs_dir(matrix)):
        found = _open(console, matrix, observer, archived)
        for folder in found.planned(Action.ADOPT).values():
            observer.adopt(folder)
        runs = {run_id: (folder, matrix.runs[run_id]) for run_id, folder in found.planned(Action.START).items()}
        cluster = Cluster(launcher, runs_dir(matrix), scheduler, sbatch)
        ids = cluster.submit_all(runs, matrix.experiment.name) if runs else []
    show.show_submitted(console, ids, matrix.experiment.name)
    if found.damaged:
        show.show_summary(console, found.damaged)
    return EXIT_FAILED if found.damaged else EXIT_DONE


def exit_status(outcomes: Iterable[Outcome]) -> int:
    """0: all done. 1: some failed. 130: some were interrupted. 3: the rest is run elsewhere or was cancelled."""
    states = {one.state for one in outcomes}
    for state, code in (
        (State.FAILED, EXIT_FAILED),
        (State.INTERRUPTED, EXIT_INTERRUPTED),
        (State.RUNNING, EXIT_ELSEWHERE),
        (State.CANCELLED, EXIT_ELSEWHERE),
    ):
        if state in states:
            return code
    return EXIT_DONE


def has_results(matrix: Matrix) -> bool:
    """Whether any run of the matrix is done, so that there is a table to show."""
    for run_id in matrix.runs:
        with contextlib.suppress(RecordError):  # not there, or damaged: no result either way
            if RunFolder(runs_dir(matrix) / run_id).read_status().state is State.DONE:
                return True
    return False


def launcher_of(matrix: Matrix) -> LauncherConfig:
    """How this matrix's runs are to be started."""
    return matrix.cells[0].config.launcher


def runs_dir(matrix: Matrix) -> Path:
    """Where this matrix's run folders lie."""
    return Path(matrix.cells[0].config.machine.runs_dir)


def _elsewhere(folder: Path) -> list[str]:
    """A remark where this call looks for runs in another folder than the checkout's, which has some."""
    usual = CONF.parent / folder
    if folder.is_absolute() or folder.exists() or not run_folders.list_runs(usual):
        return []
    return [
        f"there is no {folder}/ here ({Path.cwd()}), so every run is new; those of {usual} are found from "
        f"{CONF.parent}, or with machine.runs_dir={usual}"
    ]


def _open(console: Console, matrix: Matrix, observer: Observer, archived: Mapping[str, Decision]) -> Found:
    """Make the folders that are missing, observe all, decide and say so. Only to be called under the driver's lock."""
    found = Found(seen=dict.fromkeys(archived, Observed(State.DONE)))
    for run_id, config in matrix.runs.items():
        if run_id in archived:
            continue
        try:
            folder = run_folders.ensure(config)
            found.seen[run_id] = observer.observe(folder)
            found.folders[run_id] = folder
        except (RecordError, RecordWriteError) as error:
            found.damaged[run_id] = Outcome(State.FAILED, str(error))
    manifest.update(runs_dir(matrix), matrix.manifest)
    found.plan = reconcile(found.folders, found.seen, launcher_of(matrix).max_failures) | dict(archived)
    _announce(console, found.plan)
    return found


def _archived(matrix: Matrix) -> dict[str, Decision]:
    """The runs that are finished elsewhere, whatever lies here."""
    archive = matrix.cells[0].config.machine.archive
    skipped = Decision(Action.SKIP, f"finished, in {archive}")
    return dict.fromkeys(run_folders.finished_in(archive) & matrix.runs.keys(), skipped)


def _without_start(decision: Decision, seen: Observed) -> Outcome:
    """The outcome of a run that this call does not start."""
    if seen.state.settled or seen.state is State.FAILED:
        return Outcome(seen.state, None if decision.action is Action.SKIP else decision.why)
    return Outcome(State.RUNNING, decision.why)


def _announce(console: Console, plan: Mapping[str, Decision]) -> None:
    """Say what this call does and, of what it leaves alone, why."""
    starts = sum(one.action is Action.START for one in plan.values())
    rest = Counter(one.why for one in plan.values() if one.action is not Action.START)
    parts = [f"{starts} to run"] if starts else []
    console.print(", ".join(parts + [f"{count} {why}" for why, count in rest.items()]), highlight=False)
