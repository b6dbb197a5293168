"""``python -m analysis figures``: every table and figure from run folders, W&B's offline folders and W&B projects."""

import argparse
import logging
import sys

from rich.console import Console
from rich.markup import escape

from analysis.build import Report, build_from
from analysis.command_line import add_places, collected, tell_result
from scpo.errors import ScpoError


def main(arguments: list[str] | None = None) -> int:
    """Entry point; 0 when at least one output was built."""
    options = _parser().parse_args(arguments)
    console = Console(soft_wrap=True, highlight=False)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("analysis").setLevel(logging.INFO)  # where a W&B project was read from
    try:
        report = build_from(collected(options, console), options.out, lambda result: tell_result(console, result))
    except ScpoError as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}")
        return 1
    _tell(console, report)
    return 0 if report.outputs else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m analysis", description="From run records to tables and figures.")
    commands = parser.add_subparsers(dest="command", required=True)
    figures = commands.add_parser("figures", help="rebuild every table and figure")
    add_places(figures)
    return parser


def _tell(console: Console, report: Report) -> None:
    for problem in report.problems:
        console.print(f"[yellow]left out[/] {escape(problem.path)}: {escape(problem.reason)}")
    if report.unfinished:
        console.print("Not finished, so not in any mean:")
        console.print(*(f"  {line}" for line in report.unfinished), sep="\n", markup=False)
        console.print("Finish them with:", *(f"  {command}" for command in report.commands), sep="\n", markup=False)


if __name__ == "__main__":
    sys.exit(main())
