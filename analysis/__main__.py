"""``python -m analysis figures [--runs runs] [--out paper_figures]``: every table and figure from run folders."""

import argparse
import logging
import sys
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from analysis.build import Report, build_all
from scpo.errors import ScpoError


def main(arguments: list[str] | None = None) -> int:
    """Entry point; 0 when at least one output was built."""
    options = _parser().parse_args(arguments)
    console = Console(soft_wrap=True, highlight=False)
    logging.getLogger("fontTools").setLevel(logging.WARNING)
    try:
        report = build_all(options.runs, options.out)
    except ScpoError as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}")
        return 1
    _tell(console, report)
    return 0 if report.outputs else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m analysis", description="From run records to tables and figures.")
    commands = parser.add_subparsers(dest="command", required=True)
    figures = commands.add_parser("figures", help="rebuild every table and figure")
    figures.add_argument("--runs", type=Path, default=Path("runs"), help="folder of run folders (default: runs)")
    figures.add_argument(
        "--out", type=Path, default=Path("paper_figures"), help="output folder (default: paper_figures)"
    )
    return parser


def _tell(console: Console, report: Report) -> None:
    for output in report.outputs:
        files = ", ".join(str(path) for path in output.files)
        console.print(f"[green]built[/]    {output.name} from {len(output.runs)} runs: {escape(files)}")
    for failure in report.failures:
        console.print(f"[yellow]missing[/]  {failure.name}: {escape(failure.reason)}")
        console.print(*(f"           {line}" for line in failure.remedy.splitlines()), sep="\n", markup=False)
    for problem in report.problems:
        console.print(f"[yellow]left out[/] {escape(problem.path)}: {escape(problem.reason)}")
    if report.unfinished:
        console.print("Not finished, so not in any mean:")
        console.print(*(f"  {line}" for line in report.unfinished), sep="\n", markup=False)
        console.print("Finish them with:", *(f"  {command}" for command in report.commands), sep="\n", markup=False)


if __name__ == "__main__":
    sys.exit(main())
