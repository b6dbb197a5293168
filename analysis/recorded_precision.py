"""``python -m analysis precision``: from a file of recorded rollouts to the table of credit rules."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from scpo.records.files import write_bytes

from analysis.credit_rules import SCORERS, judge, rules
from analysis.tables.tab_precision import recorded_table

NAME = "tab_precision_recorded"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        help="recorded rollouts (tests/data/rollouts shows their form)",
    )
    parser.add_argument(
        "--games", help="folder of the official games that were played (default: generated ones)"
    )
    parser.add_argument(
        "--cache", default=".cache/scpo", help="translations of games (default: .cache/scpo)"
    )
    parser.add_argument(
        "--scorer",
        action="append",
        help=f"scorer of SCPO's rows, may be repeated (default: {', '.join(SCORERS)})",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("paper_figures"),
        help="output folder (default: paper_figures)",
    )


def run(options: argparse.Namespace, console: Console) -> int:
    """Judge the steps, try every rule, write the table and print it.

    Returns:
        The exit code 0.

    Raises:
        ScpoError: A file holds no rollouts, a game or a scorer is not there, or nothing can be
            judged.
    """
    chance, found = judge(
        options.files,
        list(rules(options.scorer or tuple(SCORERS))),
        games=options.games,
        cache_dir=options.cache,
        tell=lambda line: console.print(escape(line)),
    )
    table = recorded_table(chance, found)
    for ending, content in table.files().items():
        write_bytes(options.out / f"{NAME}.{ending}", content, readable=True)
    console.print(table.md(), markup=False)
    console.print(f"written: {options.out / NAME}.tex, .md, .csv", markup=False)
    return 0
