"""Output of sweep.py: tables on a terminal, plain lines elsewhere."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from scpo.progress import about, counted
from scpo.records import State
from scpo.records.run_folders import RUNS_DIR, command_on
from scpo.records.status import Observed
from scpo.schema.experiment import Experiment
from scpo.schema.run import RunConfig
from sweeps.compose.matrix import Matrix
from sweeps.estimates import PastTimes, api_lines, cost_lines, duration
from sweeps.launchers.run_process import Outcome, tail
from sweeps.records.process import NOT_RESUMED
from sweeps.records.reconcile import Action, Decision
from sweeps.resources import all_disk_gib, resources
from sweeps.terminal import coloured, say, say_markup, wide


def show_experiments(console: Console, experiments: Iterable[Experiment]) -> None:
    """List the experiments and show how to run one."""
    table = Table("experiment", "rows", "title", box=None)
    for experiment in experiments:
        table.add_row(experiment.name, str(len(experiment.rows)), escape(experiment.title))
    console.print(table)
    say(console, "\nrun one:           python sweep.py +experiment=<name>")
    say(console, "look at it first:  python sweep.py +experiment=<name> dry_run=true")


def show_searches(console: Console, names: Sequence[str]) -> None:
    """Show the names of the hyper-parameter searches."""
    say(console, f"\ntune:              python sweep.py +search=<{' | '.join(names)}>")


def show_matrix(
    console: Console,
    matrix: Matrix,
    seen: Mapping[str, Observed],
    decisions: Mapping[str, Decision],
    slots: int | None,
    *,
    refused: Collection[str] = (),
) -> None:
    """Show what a dry run would start: the table of all runs, their cost, disk space and time.

    Args:
        console: Where to print.
        matrix: The runs of the experiment.
        seen: The observed state of each run, by id.
        decisions: What the same call without ``dry_run`` would do with each run, by id.
        slots: Number of the runs to start that can run at a time; None if there are none to start
            or one of them cannot run.
        refused: Ids of runs to start that this machine would refuse. They count in the cost, which
            is the same on a machine that does not.
    """
    # All runs of a matrix share the machine's settings.
    any_config = next(iter(matrix.runs.values()))
    past = PastTimes(Path(any_config.machine.runs_dir))
    wide(console).print(_matrix_table(matrix, seen, decisions, refused, past))

    todo = []
    for run_id, config in matrix.runs.items():
        if decisions[run_id].action is Action.START:
            todo.append(config)
    costs = cost_lines(list(matrix.runs.values()), todo)
    for line in (*costs, *api_lines(todo), *_disk_lines(todo)):
        say(console, line)
    # At paper scale ``cost_lines`` has the GPU-hours instead.
    if matrix.scale != "paper" and slots:
        say(console, _total_time_line(todo, past, slots))
    show_notes(console, matrix.notes)


def _matrix_table(
    matrix: Matrix,
    seen: Mapping[str, Observed],
    decisions: Mapping[str, Decision],
    refused: Collection[str],
    past: PastTimes,
) -> Table:
    """One line per run: row, axes, id, state, GPUs, duration, and what a real call would do."""
    title = f"{matrix.experiment.title}, scale={matrix.scale}: {counted(len(matrix.runs), 'run')}"
    # Runs at paper scale take hours, all others minutes.
    time_unit = "hours" if matrix.scale == "paper" else "min"
    columns = ("row", "env", "model", "seed", "run", "state", "GPUs", time_unit, "would")
    table = Table(*columns, title=escape(title), title_justify="left", box=None)
    for cell in matrix.cells:
        config = cell.config
        decision = decisions[cell.run_id]
        would = f"{decision.action} ({decision.reason(cell.run_id)})"
        if cell.run_id in refused:
            would = "be refused here (see the note)"
        table.add_row(
            escape(cell.row.label),
            config.env.benchmark,
            config.model.name,
            str(config.seed),
            cell.run_id,
            coloured(seen[cell.run_id].state),
            str(resources(config).all_gpus),
            _duration_text(config, past),
            would,
        )
    return table


# Less disk space than this is not shown; a run of a small policy writes about 0.05 GiB.
SHOWN_DISK_GIB = 100


def _disk_lines(todo: Sequence[RunConfig]) -> list[str]:
    """One line with the disk space of the runs to start; none below ``SHOWN_DISK_GIB``."""
    needed, unknown = all_disk_gib(todo)
    if needed < SHOWN_DISK_GIB:
        return []
    without = f"; {counted(unknown, 'run')} of unknown size" if unknown else ""
    return [
        f"disk: up to {math.ceil(needed):,} GiB in machine.runs_dir, most of it checkpoints "
        f"(trainer.keep_checkpoints){without}"
    ]


def _duration_text(config: RunConfig, past: PastTimes) -> str:
    """Duration of a run for the table; empty if unknown.

    At paper scale: hours, from the paper or estimated. Otherwise: minutes, from past runs on this
    machine.
    """
    if config.scale == "paper":
        return str(duration(config) or "")
    seconds = past.seconds(config)
    return "" if seconds is None else f"{seconds / 60:.1f}"


def _total_time_line(todo: Sequence[RunConfig], past: PastTimes, slots: int) -> str:
    """One line: how long the runs to start take in ``slots`` slots, from past runs."""
    seconds, unknown = past.total(todo, slots)
    count = f"{counted(len(todo), 'run')} to start"
    if unknown == len(todo):
        return (
            f"{count}; duration unknown: no run of this kind and size has finished on this "
            "machine yet"
        )
    rest = f"; {unknown} of them of unknown duration, not included" if unknown else ""
    slots = min(slots, len(todo))
    return (
        f"{count}: {about(seconds)} in {counted(slots, 'slot')}, as runs of their kind took on "
        f"this machine{rest}"
    )


def show_submitted(console: Console, ids: Sequence[str], experiment: str, runs_dir: Path) -> None:
    """List the submitted jobs and the command to follow them."""
    if ids:
        # "123_4" is job 4 of array 123.
        arrays = Counter(job_id.partition("_")[0] for job_id in ids)
        named = ", ".join(f"{array} ({counted(count, 'run')})" for array, count in arrays.items())
        console.print(f"submitted {counted(len(ids), 'run')} as jobs {named}", highlight=False)
    command = command_on(runs_dir, "sweeps status", experiment, "--watch")
    say(console, f"follow them, from any shell:  {command}")


def show_notes(console: Console, notes: Iterable[str]) -> None:
    """Show remarks about the matrix."""
    for note in notes:
        say(console, f"note: {note}")


# States of runs whose reason and log a summary shows.
WITH_DETAILS = (State.FAILED, State.LOST, State.DAMAGED, State.UNREADABLE)


def show_summary(console: Console, outcomes: Mapping[str, Outcome], not_started: int = 0) -> None:
    """Print the number of runs by state, then details of runs in a state of ``WITH_DETAILS``.

    The details are the reason, the end of the log and the path of the log.

    Args:
        console: Where to print.
        outcomes: The outcome of each run that was started or found, by id.
        not_started: Number of further runs that a stopped sweep did not start.
    """
    counts = Counter(outcome.state for outcome in outcomes.values())
    parts = [f"{counts[state]} {coloured(state)}" for state in State if counts[state]]
    if not_started:
        parts.append(f"{not_started} not started")
    total = counted(len(outcomes) + not_started, "run")
    console.print(f"{total}: {', '.join(parts)}", highlight=False)
    for run_id, outcome in outcomes.items():
        if outcome.state not in WITH_DETAILS:
            continue
        say_markup(console, f"\n{coloured(outcome.state)} {run_id}: {escape(outcome.reason or '')}")
        if outcome.log is not None:
            # The end of the log usually has the traceback.
            for line in tail(outcome.log):
                if not _repeats(line, outcome.reason or ""):
                    say(console, f"    {line}")
            say(console, f"    log: {outcome.log}")


def _repeats(line: str, reason: str) -> bool:
    """True if a line of the log repeats the reason of the run's end, which is shown already."""
    # The reason is "<error class>: <message>", of a refused resume after other words; the log may
    # have the message without the class.
    last = reason.rpartition(NOT_RESUMED)[2]
    message = last.partition(": ")[2] or last
    return bool(message) and "sweeps.records.attempt" in line and message in line


def show_files(console: Console, runs_dir: Path) -> None:
    """Show where the results are and how to make figures from them."""
    command = "make figures" if runs_dir == RUNS_DIR else command_on(runs_dir, "analysis figures")
    say(console, f"runs: {runs_dir}    figures and tables: {command}, into paper_figures/")
