"""``python -m analysis figures|report|study``: tables, figures, the report page, the study's, from records of runs.

``python -m analysis precision FILE...``: where the credit of each rule falls on recorded rollouts,
without training. ``python -m analysis animate``: the README's animation of the demo, from the
demo's records.
"""

import argparse
import logging
import sys
from io import TextIOWrapper

from rich.console import Console
from rich.markup import escape
from scpo.errors import ConfigError, ScpoError

from analysis import animation
from analysis import recorded_precision as precision
from analysis.answers import study_command as study
from analysis.build import Report, build_from, builders
from analysis.command_line import (
    add_look,
    add_places,
    add_selection,
    collected,
    look,
    selection,
    tell_result,
)
from analysis.report import command as report


def main(arguments: list[str] | None = None) -> int:
    """Entry point; 0 when at least one output was built."""
    options = _parser().parse_args(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(
            stream, TextIOWrapper
        ):  # where it knows ASCII only, a letter becomes a question mark
            stream.reconfigure(errors="replace")
    console = Console(soft_wrap=True, highlight=False)
    logging.basicConfig(format="%(message)s")
    logging.getLogger("analysis").setLevel(logging.INFO)  # where a W&B project was read from
    logging.getLogger("fontTools").setLevel(logging.WARNING)
    try:
        built: int = options.run(options, console)
    except ScpoError as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}")
        return 1
    return built


def figures(options: argparse.Namespace, console: Console) -> int:
    """Build the outputs that were named, or all."""
    known = builders()
    if unknown := [name for name in options.names if name not in known]:
        raise ConfigError(
            f"there is no table or figure {', '.join(unknown)}; there are {', '.join(known)}"
        )
    appearance = look(options)
    data = selection(options).of(collected(options, console))
    built = build_from(
        data,
        options.out,
        lambda result: tell_result(console, result),
        only=options.names,
        look=appearance,
        debug=options.debug,
    )
    _tell(console, built)
    return 0 if built.outputs else 1


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="e.g. fig_learning tab_main; without one: all"
    )
    parser.add_argument(
        "--debug", action="store_true", help="end with the traceback of a builder that fails"
    )
    add_places(parser)
    add_selection(parser)
    add_look(parser)


COMMANDS = {
    "figures": (_add_names, figures, "build every table and figure, or those that are named"),
    "report": (
        report.add_options,
        report.run,
        "one self-contained page with everything that was recorded",
    ),
    "study": (
        study.add_options,
        study.run,
        "write docs/study.md from its archive; --add adds runs to it",
    ),
    "precision": (
        precision.add_options,
        precision.run,
        "where the credit of each rule falls on recorded rollouts",
    ),
    "animate": (
        animation.add_options,
        animation.run,
        "a finished experiment as its terminal showed it: an animated SVG",
    ),
}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m analysis", description="From run records to tables and figures."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (add_options, run, said) in COMMANDS.items():
        command = commands.add_parser(name, help=said)
        add_options(command)
        command.set_defaults(run=run)
    return parser


def _tell(console: Console, report: Report) -> None:
    for problem in report.problems:
        console.print(f"[yellow]left out[/] {escape(problem.path)}: {escape(problem.reason)}")
    if report.unfinished:
        console.print("Not finished, so not in any mean:")
        console.print(*(f"  {line}" for line in report.unfinished), sep="\n", markup=False)
        console.print(
            "Finish them with:",
            *(f"  {command}" for command in report.commands),
            sep="\n",
            markup=False,
        )


if __name__ == "__main__":
    sys.exit(main())
