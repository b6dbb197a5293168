"""One call of sweep.py: observe the runs on disk, start the missing ones, report outcomes."""

import contextlib
import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console

from scpo.errors import ConfigError, RecordError, RecordWriteError
from scpo.progress import counted
from scpo.records import (
    RunFolder,
    State,
    code_record,
    manifest,
    provenance,
    record_checks,
    run_config,
    run_folders,
    verify,
)
from scpo.records.code_files import code_files
from scpo.records.manifest import Manifest
from scpo.records.run_folders import command_on
from scpo.records.status import Observed, state_of
from scpo.schema.experiment import Experiment
from scpo.schema.model import ChoiceModel, TinyModel
from scpo.schema.run import LauncherConfig, RunConfig
from sweeps import console as show
from sweeps.compose.configuration import compose_experiment
from sweeps.compose.matrix import Matrix, expand
from sweeps.compose.overrides import CONF, Request, options
from sweeps.doctor.services import has_any_wandb_key, missing_keys
from sweeps.launchers.base import Launcher, Runs, follow, open_launcher
from sweeps.launchers.run_process import Outcome
from sweeps.launchers.slurm.job_records import read_job
from sweeps.launchers.slurm.observer import Observer
from sweeps.launchers.slurm.scheduler import Slurm
from sweeps.notify import notify
from sweeps.records.cancellation import FINAL
from sweeps.records.process import EXIT_DONE, EXIT_ELSEWHERE, EXIT_FAILED, EXIT_INTERRUPTED
from sweeps.records.reconcile import Action, Decision, reconcile
from sweeps.resources import refused_runs
from sweeps.start_checks import obstacles, refuse_what_cannot_start
from sweeps.terminal import say

LISTED_RUNS = 12

OTHER_CODE = Decision(Action.LEAVE, "not started under other code, see the note")
LOST_REASON = "its process ended without recording why; the same command starts it again"


@dataclass
class Found:
    """Runs of a matrix as they are on disk, and the plan for each; all by run id.

    Attributes:
        folders: Folders of the runs whose records can be read.
        seen: Observed state of these, and of archived runs.
        damaged: Outcomes of the other runs.
        plan: What this call does with each run that is not damaged.
        refused: Messages of the runs that would refuse to go on under the present code.
    """

    folders: dict[str, RunFolder] = field(default_factory=dict)
    seen: dict[str, Observed] = field(default_factory=dict)
    damaged: dict[str, Outcome] = field(default_factory=dict)
    plan: dict[str, Decision] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def planned(self, action: Action) -> dict[str, RunFolder]:
        """Folders of the runs that the plan gives this action."""
        folders = {}
        for run_id, decision in self.plan.items():
            if decision.action is action:
                folders[run_id] = self.folders[run_id]
        return folders

    def at_end(self, ended: Mapping[str, Outcome], observer: Observer) -> dict[str, Outcome]:
        """Outcomes at the end of the call, without the runs that nobody has started.

        Other processes may have ended or continued runs of this matrix during the call.

        Args:
            ended: Outcomes of the runs that this call started.
            observer: A new one, which has not asked the scheduler yet.
        """
        outcomes = {**self.damaged, **ended}
        for run_id, decision in self.plan.items():
            # Final states do not change any more, so these runs are not observed again.
            if run_id in ended and ended[run_id].state in FINAL:
                continue
            before = self.seen[run_id].state
            if before in FINAL:
                outcomes[run_id] = Outcome(before)
                continue

            now = _observed_end(self.folders[run_id], observer)
            if run_id in ended:
                outcomes[run_id] = _latest(ended[run_id], now)
            elif decision.action is Action.START:
                # It waited for a slot here; another process may have started it meanwhile.
                if now.state in FINAL or now.state.live:
                    outcomes[run_id] = now
            elif now.state is not before:
                outcomes[run_id] = now
            # A refused run is counted among those that were not started.
            elif run_id not in self.refused:
                # The reason names what a person can do about it.
                outcomes[run_id] = Outcome(before, decision.reason(run_id))
        return outcomes


def experiments() -> list[Experiment]:
    """All shipped experiments."""
    return [compose_experiment(name)[0] for name in options("experiment")]


def preview(console: Console, request: Request, train_script: Path) -> int:
    """Show what a call would do, without writing anything."""
    matrix = expand(request.name, request.overrides)
    configs = list(matrix.runs.values())
    launcher = open_launcher(configs, train_script, console)
    # One observer, which asks the scheduler once for all runs.
    observer = Observer(Slurm())
    seen = {}
    for run_id in matrix.runs:
        seen[run_id] = _observed(RunFolder(runs_dir(matrix) / run_id), observer)
    archived = _archived(matrix)
    # Archived runs have no folder here, but count as finished.
    seen |= dict.fromkeys(archived, Observed(State.DONE))
    plan = reconcile(matrix.runs, seen, launcher_of(matrix).max_failures, runs_dir(matrix))
    plan |= archived
    refused = _refused(runs_dir(matrix), _starts(matrix, plan))
    plan |= dict.fromkeys(refused, OTHER_CODE)
    starts = _starts(matrix, plan)

    # Before anything is shown, because hours of jobs that Slurm refuses would mislead.
    if launcher.detached:
        launcher.check(configs)
    show.show_notes(console, _elsewhere(runs_dir(matrix)))
    show.show_notes(console, _of_other_code(matrix, seen.keys() - archived.keys()))
    slots = _slots(launcher, list(starts.values()))
    show.show_matrix(console, matrix, seen, plan, slots, refused=refused_runs(starts))
    show.show_notes(console, _refused_note(list(refused.values())))
    if starts:
        show.show_notes(console, _before_starting(request, matrix, list(starts.values())))
        show.show_notes(console, _without_wandb_key(starts.values()))
        # The nodes of a cluster may have what this machine lacks.
        if not launcher.detached:
            # A note above names missing keys.
            reasons = obstacles(starts.values(), keys=False)
            show.show_notes(console, [f"would not start here: {reason}" for reason in reasons])
        launcher.preview(console, starts)
    return EXIT_DONE


def _starts(matrix: Matrix, plan: Mapping[str, Decision]) -> dict[str, RunConfig]:
    """The runs that the plan starts."""
    starts = {}
    for run_id, config in matrix.runs.items():
        if run_id in plan and plan[run_id].action is Action.START:
            starts[run_id] = config
    return starts


def _refused(folder: Path, starts: Mapping[str, RunConfig]) -> dict[str, str]:
    """Runs that would refuse to go on from a checkpoint of other code, each with its message."""
    commit = provenance.git_commit()
    refused = {}
    for run_id, config in starts.items():
        run = RunFolder(folder / run_id)
        if not run.path.exists():
            continue
        try:
            if not run.complete_checkpoints():
                continue
            message = code_record.refused_resume(run, config, (run.read_status().commit, commit))
        except RecordError:
            # `show_matrix` lists it as DAMAGED.
            continue
        if message:
            refused[run_id] = message
    return refused


def _refused_note(messages: Sequence[str]) -> Iterator[str]:
    if messages:
        others = f" (and {counted(len(messages) - 1, 'other run')})" if len(messages) > 1 else ""
        yield f"not started{others}: {messages[0]}"


def _observed(folder: RunFolder, observer: Observer) -> Observed:
    """Observe a run for a dry run; one whose records cannot be read is DAMAGED or UNREADABLE."""
    try:
        if folder.path.exists():
            record_checks.check_name(folder)
        seen = observer.observe(folder)
        if seen.state is not State.NEW:
            verify.check_usable(folder, seen.state)
    except RecordError as error:
        return Observed(state_of(error))
    return seen


def _before_starting(
    request: Request, matrix: Matrix, starts: Sequence[RunConfig]
) -> Iterator[str]:
    """Name missing keys of API models, and the doctor where a run is expensive."""
    missing = missing_keys(starts)
    if missing:
        yield f"not set here: {', '.join(missing)}; export {missing[0]}=<your key>"
    if missing or matrix.scale == "paper":
        words = [f"+{request.group}={request.name}", *map(str, request.overrides)]
        yield (
            "to check packages, data, models and keys first: "
            f"python -m sweeps doctor {shlex.join(words)}"
        )


def _slots(launcher: Launcher, configs: list[RunConfig]) -> int | None:
    """Number of runs that would run at a time; None without runs or if one cannot be run."""
    try:
        return launcher.check(configs) if configs else None
    except ConfigError:
        # The launcher's preview shows the error.
        return None


def dispatch(console: Console, matrix: Matrix, train_script: Path) -> int:
    """Run or submit unfinished runs; returns the exit status of the command."""

    def launcher_for(configs: Sequence[RunConfig]) -> Launcher:
        return open_launcher(configs, train_script, console)

    return run(console, matrix, launcher_for, Observer(Slurm()))


def run(
    console: Console,
    matrix: Matrix,
    launcher_for: Callable[[Sequence[RunConfig]], Launcher],
    observer: Observer,
) -> int:
    """Run or submit unfinished runs, with a given launcher and a given observer of jobs."""
    show.show_notes(console, [*matrix.notes, *_elsewhere(runs_dir(matrix))])
    configs = list(matrix.runs.values())
    launcher = launcher_for(configs)
    archived = _archived(matrix)
    # Checked before any folder is made.
    if launcher.detached:
        # The nodes of a cluster may have what this machine lacks.
        launcher.check(configs)
    elif unfinished := _unfinished(matrix, archived):
        launcher.check(unfinished)
        refuse_what_cannot_start(unfinished)

    # Under a lock, so that the second of two simultaneous sweeps finds what the first has started.
    # It is held until the jobs of a detached launcher are recorded; runs on this machine lock their
    # own folders.
    with run_folders.driver_lock(runs_dir(matrix)):
        found = _open(console, matrix, observer, archived)
        # A recorded job without an id: the submitting process died before sbatch had answered.
        for folder in found.planned(Action.ADOPT).values():
            observer.adopt(folder)
        starts = {}
        for run_id, folder in found.planned(Action.START).items():
            starts[run_id] = (folder, matrix.runs[run_id])
        ids: list[str] = []
        if launcher.detached and starts:
            ids = launcher.start(starts, matrix.experiment.name)

    show.show_notes(console, _notes_on_start(matrix, found, launcher.detached))
    if launcher.detached:
        return _report_submitted(console, matrix, ids, found)

    # Outside the driver's lock: another sweep may start other runs meanwhile.
    ended, completed = _run_here(launcher_for, starts, matrix.experiment.name)
    outcomes = found.at_end(ended, Observer(observer.scheduler))
    # In the order of the matrix instead of the order in which the runs ended.
    in_order = {run_id: outcomes[run_id] for run_id in matrix.runs if run_id in outcomes}
    _show_ended(console, matrix, in_order)
    if starts:
        _notify_of_end(matrix, in_order.values(), completed)
    if not completed:
        console.print(_what_is_kept(matrix, in_order), soft_wrap=True)
        return EXIT_INTERRUPTED
    # A refused run has an outcome only if another process has continued it meanwhile.
    if found.refused.keys() - outcomes.keys():
        return EXIT_FAILED
    return exit_status(outcomes.values())


def _notes_on_start(matrix: Matrix, found: Found, detached: bool) -> Iterator[str]:
    """Name finished runs of other code, refused runs, runs of other processes and a missing key.

    ``detached``: the runs are jobs, for which this call does not wait.
    """
    starts = _starts(matrix, found.plan)
    yield from _of_other_code(matrix, found.folders)
    yield from _refused_note(list(found.refused.values()))
    # If there is nothing to wait for, `_show_ended` names these runs at once.
    if starts or detached:
        yield from _run_elsewhere(matrix)
    yield from _without_wandb_key(starts.values())


def _run_here(
    launcher_for: Callable[[Sequence[RunConfig]], Launcher], starts: Runs, title: str
) -> tuple[dict[str, Outcome], bool]:
    """Run on this machine until all have ended or a signal stops the sweep; see ``follow``."""
    if not starts:
        return {}, True
    # Opened again: slots, servers and the time left depend on the runs that are to start.
    launcher = launcher_for([config for _, config in starts.values()])
    return follow(launcher, starts, title)


def _show_ended(console: Console, matrix: Matrix, outcomes: Mapping[str, Outcome]) -> None:
    """Show the outcomes, what to do about damaged runs, and runs of other processes."""
    show.show_summary(console, outcomes, not_started=len(matrix.runs) - len(outcomes))
    show.show_notes(console, _of_damaged(matrix, outcomes))
    show.show_notes(console, _run_elsewhere(matrix))


def _report_submitted(
    console: Console, matrix: Matrix, job_ids: Sequence[str], found: Found
) -> int:
    """Show the submitted jobs and the damaged runs; returns the exit status of the command."""
    show.show_submitted(console, job_ids, matrix.experiment.name, runs_dir(matrix))
    if found.damaged:
        show.show_summary(console, found.damaged)
        show.show_notes(console, _of_damaged(matrix, found.damaged))
    return EXIT_FAILED if found.damaged or found.refused else EXIT_DONE


def _run_elsewhere(matrix: Matrix) -> Iterator[str]:
    """Name the processes that execute runs of this matrix now, and the commands that show them.

    Processes of Slurm jobs are not named, because `status` shows the jobs.
    """
    # Each process once, in order: it may execute several runs.
    processes: dict[str, None] = {}
    ids = []
    for run_id in matrix.runs:
        folder = RunFolder(runs_dir(matrix) / run_id)
        # Damaged records are reported elsewhere.
        with contextlib.suppress(RecordError):
            if read_job(folder) is None and run_folders.observe(folder).alive:
                ids.append(run_id)
                status = folder.read_status()
                if status.pid is not None:
                    processes[f"{status.pid} on {status.host}"] = None
    if not processes:
        return
    shown = ", ".join(list(processes)[:LISTED_RUNS])
    which = ids[0] if len(ids) == 1 else matrix.experiment.name
    yield (
        f"{counted(len(ids), 'run')} of other processes ({shown}); to look at them: "
        f"{command_on(runs_dir(matrix), 'sweeps status', which)}, or logs -f"
    )


def _what_is_kept(matrix: Matrix, outcomes: Mapping[str, Outcome]) -> str:
    """Describe which runs of a stopped sweep go on from a checkpoint, and which begin anew."""
    anew = []
    for run_id, outcome in outcomes.items():
        folder = RunFolder(runs_dir(matrix) / run_id)
        if _begins_anew(folder, outcome, launcher_of(matrix).max_failures):
            anew.append(matrix.runs[run_id])
    # A warm start has no checkpoints; it is kept only if it was finished.
    warm_starts = any(isinstance(config.model, TinyModel | ChoiceModel) for config in anew)
    warm = ", with the warm start if that was not finished" if warm_starts else ""
    if anew and len(anew) == len(outcomes):
        return f"Stopped before the first checkpoint: the same command begins anew{warm}."
    kept = "Stopped; what is done is kept. The same command goes on from the checkpoints"
    if not anew:
        return f"{kept}."
    return f"{kept}, and begins anew for {counted(len(anew), 'run')} without one{warm}."


def _begins_anew(folder: RunFolder, outcome: Outcome, max_failures: int) -> bool:
    """True if the same command starts this run again, and it has no checkpoint to go on from."""
    if not outcome.state.startable or folder.complete_checkpoints():
        return False
    if outcome.state is State.FAILED:
        # A status that cannot be read is reported with its run.
        with contextlib.suppress(RecordError):
            return folder.read_status().failures < max_failures
    return True


def _of_damaged(matrix: Matrix, outcomes: Mapping[str, Outcome]) -> list[str]:
    """What to do about damaged runs, if there are any."""
    ids = [run_id for run_id, outcome in outcomes.items() if outcome.state is State.DAMAGED]
    if not ids:
        return []
    shown = ids[:LISTED_RUNS]
    verify_them = command_on(runs_dir(matrix), "sweeps verify", *shown)
    return [
        f"{counted(len(ids), 'damaged run')}, in no table: {verify_them} names each damaged file "
        "and what to do. A run without a copy of it runs again by the same command once its folder "
        f"is moved out of {runs_dir(matrix)}"
    ]


def _notify_of_end(matrix: Matrix, outcomes: Iterable[Outcome], completed: bool) -> None:
    counts = Counter(outcome.state for outcome in outcomes)
    states = ", ".join(f"{count} {state}" for state, count in sorted(counts.items()))
    what = "ended" if completed else "was stopped"
    notify(f"scpo: {matrix.experiment.name} {what}: {states}")


def exit_status(outcomes: Iterable[Outcome]) -> int:
    """Exit status of a sweep.

    0: all done; 1: some failed, were lost or are damaged; 130: some were interrupted; 3: some are
    left to another process or were cancelled, and the others are done.
    """
    states = {outcome.state for outcome in outcomes}
    # The worst outcome decides; a shell sees one number only.
    for state, code in (
        (State.FAILED, EXIT_FAILED),
        (State.DAMAGED, EXIT_FAILED),
        (State.UNREADABLE, EXIT_FAILED),
        (State.LOST, EXIT_FAILED),
        (State.INTERRUPTED, EXIT_INTERRUPTED),
        (State.RUNNING, EXIT_ELSEWHERE),
        (State.QUEUED, EXIT_ELSEWHERE),
        (State.UNKNOWN, EXIT_ELSEWHERE),
        (State.PENDING, EXIT_ELSEWHERE),
        (State.NEW, EXIT_ELSEWHERE),
        (State.CANCELLED, EXIT_ELSEWHERE),
    ):
        if state in states:
            return code
    return EXIT_DONE


def observed_states(matrix: Matrix) -> dict[str, str]:
    """States of the runs as ``python -m sweeps status`` shows them."""
    observer = Observer(Slurm())
    folder = runs_dir(matrix)
    return {
        run_id: str(_observed(RunFolder(folder / run_id), observer).state) for run_id in matrix.runs
    }


def record_of_call(matrix: Matrix) -> Manifest:
    """Rows and runs of this call, with the runs of earlier calls that belong to its table."""
    # A damaged record of an earlier call is reported elsewhere; the table is made without it.
    with contextlib.suppress(RecordError):
        return manifest.with_earlier_runs(runs_dir(matrix), matrix.manifest, _archive_of(matrix))
    # Without records, nothing shows that the comparisons were named before the runs.
    return matrix.manifest.model_copy(update={"primary": None})


def of_earlier_calls(matrix: Matrix) -> Iterator[str]:
    """Name the seeds and rows of the table at the end where it has runs of earlier calls."""
    shown, named = record_of_call(matrix), matrix.manifest
    counts = [sum(len(row.runs) for row in record.rows) for record in (shown, named)]
    further = counts[0] - counts[1]
    if not further:
        return
    in_table, of_call = [], []
    for shown_values, named_values in zip(_axes_of(shown), _axes_of(named), strict=True):
        if shown_values != named_values:
            in_table.append(shown_values)
            of_call.append(named_values)
    values = f": {'; '.join(in_table)}" if in_table else ""
    own = f"; this call named {'; '.join(of_call)}" if of_call else ""
    yield (
        f"the table is of all runs of {matrix.experiment.name} in {runs_dir(matrix)} with these "
        f"overrides, {further} of them of earlier calls{values}{own}"
    )


def _axes_of(record: Manifest) -> list[str]:
    """Seeds, rows, environments and models of a manifest's runs, each as words."""
    runs = [run for row in record.rows for run in row.runs]
    rows = (row.name for row in record.rows if row.runs)
    axes: list[tuple[str, Iterable[str]]] = [
        ("seed", map(str, sorted({run.seed for run in runs}))),
        ("row", rows),
        ("env", sorted({run.env for run in runs})),
        ("model", sorted({run.model for run in runs})),
    ]
    words = []
    for axis, values in axes:
        listed = list(values)
        words.append(f"{axis}{'s' if len(listed) > 1 else ''} {', '.join(listed)}")
    return words


def _notes_on_comparisons(record: Manifest) -> Iterator[str]:
    """Name the file's comparisons that are not tested, and those tested but no longer in it."""
    if record.named_late:
        yield (
            f"{_shown_pairs(record.named_late)}: named by {record.experiment}, with this "
            "measure, after runs of both rows had finished or another measure of its had results, "
            "so not among those that were named before the runs and are tested. To test it, name "
            "it in an experiment with seeds of its own before these run"
        )
    if record.superseded:
        counts = Counter(" − ".join(former.rows) for former in record.superseded)
        pairs = (f"{pair} ({number})" if number > 1 else pair for pair, number in counts.items())
        yield (
            f"{', '.join(pairs)}: named before the runs, with results of settings that the rows "
            f"had before {record.experiment}, or a default, was edited; each counts as p = 1, "
            "because the correction of the others must not depend on results"
        )
    if not record.primary:
        return
    rows = {row.name for row in record.rows}
    tested = [pair for pair in record.withdrawn if rows.issuperset(pair)]
    without_row = [pair for pair in record.withdrawn if not rows.issuperset(pair)]
    named = f"named before the runs by {record.primary.measure}, and not in the file of"
    if tested:
        yield (
            f"{_shown_pairs(tested)}: {named} {record.experiment} any more; still tested, because "
            "the correction of the others must not depend on results"
        )
    if without_row:
        compared = {name for pair in without_row for name in pair}
        deleted = ", ".join(sorted(compared - rows))
        yield (
            f"{_shown_pairs(without_row)}: {named} {record.experiment} any more; without {deleted} "
            "among the rows of this call, each counts as p = 1, because the correction of the "
            "others must not depend on results"
        )


def _shown_pairs(pairs: Iterable[tuple[str, str]]) -> str:
    """Comparisons in a message: ``scpo − gigpo, scpo − grpo``."""
    return ", ".join(" − ".join(pair) for pair in pairs)


def of_replaced_record(matrix: Matrix) -> Iterator[str]:
    """Name the later call, if any, whose record has replaced that of this call."""
    later = None
    with contextlib.suppress(RecordError):
        later = manifest.replaced_by(runs_dir(matrix), matrix.manifest)
    if later is None:
        return
    kept = manifest.kept_as(runs_dir(matrix), matrix.manifest)
    where = f"; this call's is kept as {kept}" if kept else ""
    yield (
        f"the record {matrix.experiment.name} is now that of a later call, "
        f"python sweep.py {shlex.join(later.words)}{where}"
    )


def has_results(matrix: Matrix) -> bool:
    """True if any run of the matrix is done, so that there is a table to show."""
    for run_id in matrix.runs:
        # A missing or damaged run has no result.
        with contextlib.suppress(RecordError):
            if RunFolder(runs_dir(matrix) / run_id).read_status().state is State.DONE:
                return True
    return False


def launcher_of(matrix: Matrix) -> LauncherConfig:
    """Launcher settings of this matrix's runs."""
    return matrix.cells[0].config.launcher


def runs_dir(matrix: Matrix) -> Path:
    """Folder of this matrix's run folders."""
    return Path(matrix.cells[0].config.machine.runs_dir)


def _elsewhere(folder: Path) -> list[str]:
    """Note that runs exist in the checkout, but not in the folder that this call reads."""
    # From another folder than the checkout, sweep.py would start all runs again.
    usual = CONF.parent / folder
    if folder.is_absolute() or folder.exists() or not run_folders.list_runs(usual):
        return []
    return [
        f"there is no {folder}/ here ({Path.cwd()}), so every run is new; those of {usual} are "
        f"found from {CONF.parent}, or with machine.runs_dir={usual}"
    ]


def _without_wandb_key(configs: Iterable[RunConfig]) -> list[str]:
    """Note that W&B will show nothing of runs that are to be mirrored online."""
    if has_any_wandb_key() or all(config.wandb.mode != "online" for config in configs):
        return []
    return [
        "wandb.mode=online, but this machine has no key for W&B (WANDB_API_KEY, ~/.netrc): the "
        "runs train and are recorded, and W&B shows nothing of them. `wandb login`, or "
        "wandb.mode=offline (`wandb sync` later)"
    ]


def _of_other_code(matrix: Matrix, run_ids: Iterable[str]) -> Iterator[str]:
    """Name finished runs whose code has changed since: they are not run again by themselves."""
    # Read once: hashing the code for every run would take long.
    present = code_files()
    # Changed files -> the finished runs that use them.
    stale: dict[tuple[str, ...], list[str]] = {}
    for run_id in sorted(run_ids):
        folder = RunFolder(runs_dir(matrix) / run_id)
        # A missing folder has no code to compare, and a damaged one is reported elsewhere.
        with contextlib.suppress(RecordError):
            if folder.read_status().state is not State.DONE:
                continue
            changed = code_record.changed_files(folder, matrix.runs[run_id], present)
            if changed:
                stale.setdefault(tuple(changed), []).append(run_id)

    for files, runs in stale.items():
        first = command_on(runs_dir(matrix), "sweeps rm --finished", *runs[:LISTED_RUNS])
        others = f", and {len(runs) - LISTED_RUNS} more" if len(runs) > LISTED_RUNS else ""
        yield (
            f"{counted(len(runs), 'finished run')} of other code, changed since: "
            f"{code_record.shown_files(files)}. To run {'it' if len(runs) == 1 else 'them'} again, "
            f"first: {first}{others}"
        )


def _open(
    console: Console, matrix: Matrix, observer: Observer, archived: Mapping[str, Decision]
) -> Found:
    """Create missing folders, observe all runs and decide what to do with each.

    The caller must hold the driver lock.
    """
    found = Found(seen=dict.fromkeys(archived, Observed(State.DONE)))
    for run_id, config in matrix.runs.items():
        if run_id in archived:
            continue
        try:
            folder = run_config.ensure(config)
            seen = observer.observe(folder)
            # Tables leave out a finished run whose logs were changed, so it must not count as done.
            # A stopped run may have no complete checkpoint.
            verify.check_usable(folder, seen.state)
            found.seen[run_id] = seen
            found.folders[run_id] = folder
        except RecordError as error:
            # One damaged folder must not keep the other runs from starting.
            message = record_checks.explained(RunFolder(runs_dir(matrix) / run_id), error)
            found.damaged[run_id] = Outcome(state_of(error), message)
        except RecordWriteError as error:
            found.damaged[run_id] = Outcome(State.FAILED, str(error))

    # Before the first run starts, so that tables show what is planned.
    _record_call(console, matrix)
    max_failures = launcher_of(matrix).max_failures
    found.plan = reconcile(found.folders, found.seen, max_failures, runs_dir(matrix))
    # A job that waits for hours must not end by a refusal that is known now.
    found.refused = _refused(runs_dir(matrix), _starts(matrix, found.plan))
    found.plan |= dict.fromkeys(found.refused, OTHER_CODE)
    found.plan |= archived
    _announce(console, found)
    return found


def _record_call(console: Console, matrix: Matrix) -> None:
    """Write the record of this call; print what happens to earlier records and to comparisons."""
    # A damaged record must not keep the runs from starting.
    show.show_notes(console, manifest.set_aside_damaged(runs_dir(matrix), matrix.manifest))
    show.show_notes(console, _notes_on_comparisons(record_of_call(matrix)))
    renamed = manifest.update(runs_dir(matrix), matrix.manifest, _archive_of(matrix))
    if renamed:
        say(
            console,
            f"the record {matrix.experiment.name} is now of this call; that of an earlier one with "
            f"other settings or rows is kept as {renamed.experiment}",
        )


def _archive_of(matrix: Matrix) -> str | None:
    return matrix.cells[0].config.machine.archive


def _archived(matrix: Matrix) -> dict[str, Decision]:
    """Runs that the archive holds; they are not run again."""
    archive = _archive_of(matrix)
    skipped = Decision(Action.SKIP, f"finished, in {archive}")
    return dict.fromkeys(run_folders.finished_in(archive) & matrix.runs.keys(), skipped)


def _unfinished(matrix: Matrix, archived: Collection[str]) -> list[RunConfig]:
    """The runs that are neither archived nor DONE in their folder."""
    unfinished = []
    for run_id, config in matrix.runs.items():
        done = False
        # A damaged folder is reported when it is opened.
        with contextlib.suppress(RecordError):
            done = RunFolder(runs_dir(matrix) / run_id).read_status().state is State.DONE
        if not done and run_id not in archived:
            unfinished.append(config)
    return unfinished


def _observed_end(folder: RunFolder, observer: Observer) -> Outcome:
    """State and reason of a run now; DAMAGED or UNREADABLE if its records cannot be read."""
    try:
        seen = observer.observe(folder)
        if seen.state is State.NEW:
            return Outcome(State.NEW, "its folder was deleted")
        verify.check_usable(folder, seen.state)
        status = folder.read_status()
    except RecordError as error:
        return Outcome(state_of(error), record_checks.explained(folder, error))
    log = folder.attempt_log(status.attempt)
    # A process that has just begun records its state only after its imports.
    if seen.alive and not seen.state.settled:
        return Outcome(State.RUNNING, "another process runs it", log)
    return Outcome(seen.state, LOST_REASON if seen.state is State.LOST else status.reason, log)


def _latest(ended: Outcome, now: Outcome) -> Outcome:
    """Outcome of a run: what its launcher saw, or what was observed later.

    Args:
        ended: The launcher's outcome, which is not final.
        now: The present state.
    """
    # RUNNING: another process had it. A final or live state is also that of another process, which
    # has continued the run since.
    if ended.state is State.RUNNING or now.state in FINAL or now.state.live:
        return now
    # A launcher also knows why a run could not be started, or why its end was not recorded.
    return ended


def _announce(console: Console, found: Found) -> None:
    """Print the number of runs to start and the reasons why others are not started."""
    starts = 0
    rest: Counter[str] = Counter()
    for decision in found.plan.values():
        if decision.action is Action.START:
            starts += 1
        else:
            rest[decision.why] += 1

    parts = [f"{starts} to run"] if starts else []
    parts += [f"{count} {why}" for why, count in rest.items()]
    states = Counter(outcome.state for outcome in found.damaged.values())
    parts += [f"{count} {state}" for state, count in states.items()]
    say(console, ", ".join(parts))
