"""Preview of job submissions for a dry run."""

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from scpo.progress import counted
from sweeps.launchers.slurm.submission import Submission, sbatch_text
from sweeps.terminal import say, wide


def show_submissions(console: Console, submissions: Sequence[Submission]) -> None:
    """Show one job array per request, and the sbatch script of the first."""
    if not submissions:
        return
    columns = ("jobs", "nodes", "GPUs", "CPUs", "memory", "limit", "partition", "runs")
    table = Table(
        *columns, title="arrays of jobs, each of which asks for", title_justify="left", box=None
    )
    for submission in submissions:
        table.add_row(*_row(submission))
    console.print()
    wide(console).print(table)
    others = "; the other arrays differ in what the table shows" if len(submissions) > 1 else ""
    first = submissions[0]
    limit = first.request.limit_min / 60
    say(
        console,
        f"\n{counted(len(first.runs), 'job')} of at most {limit:g} h; sbatch would read{others}:",
    )
    say(console, sbatch_text(first))


def _row(one: Submission) -> list[str]:
    needed = one.request.resources
    request = one.request
    first = one.runs[0].run_id
    others = len(one.runs) - 1
    asked = (
        len(one.runs),
        needed.nodes,
        needed.gpus,
        needed.cpus,
        _memory(one),
        f"{request.limit_min / 60:g} h",
    )
    return [
        *map(str, asked),
        request.partition or "(default)",
        first + (f" and {others} more" if others else ""),
    ]


def _memory(one: Submission) -> str:
    flag = one.site.memory_flag(one.request.resources.memory_gb)
    if flag is None:
        return "(default)"
    if flag == "0":
        return "whole node"
    return f"{int(flag[:-1]) / 1024:g} GB"
