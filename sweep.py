"""Run an experiment: every row of a table or figure, on every seed, skipping what is finished.

    python sweep.py                                         list the experiments
    python sweep.py +experiment=<name> dry_run=true         show the runs and planned actions
    python sweep.py +experiment=<name>                      run what is not finished
    python sweep.py +experiment=<name> 'seeds=[0]' model=tiny scale=mini machine.runs_dir=elsewhere
    python sweep.py +experiment=<name> launcher=slurm_a800x4    submit to Slurm (docs/cluster.md)

    python sweep.py +search=<name>                          tune with Optuna (docs/search.md)

env, model and seeds replace an axis of the experiment; any other key=value applies to every row,
and key=a,b adds an axis: python sweep.py +experiment=one method.shaper.theta=0.4,0.6

The table at the end also has the seeds and rows of earlier calls with the same overrides in the
same folder; a note under it names them.

A dry run writes nothing. Ctrl-C stops the runs and keeps their state. Exit status: 0 all done (or,
on Slurm, submitted), 1 some failed or were lost, 2 wrong command, 3 the rest is run by another
process or was cancelled, 130 interrupted. Runs of another process are not waited for; they count as
they are at the end. Later, from any shell: python -m sweeps status
"""

import shlex
import sys
from pathlib import Path

from scpo.installed import install_command
from scpo.start import explain_wrong_start

if wrong := explain_wrong_start():
    sys.exit(f"error: {wrong}")

from rich.console import Console

from scpo.errors import ScpoError
from sweeps import console as show
from sweeps import dispatch
from sweeps.compose.matrix import Matrix, expand
from sweeps.compose.overrides import Request, options, read_request
from sweeps.records.process import EXIT_BAD_CONFIG, EXIT_DONE, EXIT_INTERRUPTED
from sweeps.terminal import complaint, replace_what_cannot_be_printed, say, say_error

TRAIN_SCRIPT = Path(__file__).resolve().with_name("train.py")


def main(arguments: list[str]) -> int:
    """Answer one command line; returns the exit status."""
    replace_what_cannot_be_printed()
    console = Console()
    if {"-h", "--help"} & set(arguments):
        say(console, str(__doc__))
        return EXIT_DONE
    try:
        if not arguments:
            show.show_experiments(console, dispatch.experiments())
            show.show_searches(console, options("search"))
            return EXIT_DONE
        request = read_request(arguments)
        show.show_notes(console, request.remarks)
        if request.group == "search":
            from sweeps.search.search_command import command  # Optuna is an extra

            return command(console, request, TRAIN_SCRIPT)
        return (
            dispatch.preview(console, request, TRAIN_SCRIPT)
            if request.dry_run
            else sweep(console, request)
        )
    except (ScpoError, OSError) as error:
        say_error(Console(stderr=True), complaint(error))
        return EXIT_BAD_CONFIG
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def sweep(console: Console, request: Request) -> int:
    """Run the experiment and show its table."""
    matrix = expand(request.name, request.overrides)
    status = dispatch.dispatch(console, matrix, TRAIN_SCRIPT)
    show.show_notes(console, dispatch.of_replaced_record(matrix))
    if archive := matrix.cells[0].config.machine.archive:
        runs_dir = matrix.cells[0].config.machine.runs_dir
        say(
            console,
            f"Tables of what ran here and of {archive}: "
            f"python -m analysis figures --runs-dir {shlex.quote(str(runs_dir))} "
            f"--runs-dir {shlex.quote(str(archive))}",
        )
    elif dispatch.has_results(matrix):
        show_table(console, matrix)
    return status


def show_table(console: Console, matrix: Matrix) -> None:
    """The table of this call's rows and runs, if the analysis extra is there."""
    runs_dir = dispatch.runs_dir(matrix)
    states = dispatch.observed_states(matrix)
    try:
        from analysis.show import experiment_table

        # Not by name: a later call with other overrides or rows may have taken it meanwhile.
        table = experiment_table(runs_dir, dispatch.record_of_call(matrix), states=states)
    except ImportError as error:
        say(console, f"No table: {error}. To get it: {install_command('analysis')}")
    else:
        if table:
            say(console, table)
            show.show_notes(console, dispatch.of_earlier_calls(matrix))
    show.show_files(console, runs_dir)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
