"""``python -m analysis report``: tables, figures, and one page that shows all that was recorded."""

import argparse
import webbrowser
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from scpo.records.files import write_bytes

from analysis.build import build_from
from analysis.command_line import add_places, collected, tell_result
from analysis.report.contents import MEGABYTE, contents
from analysis.report.page import page

NAME = "report.html"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    add_places(parser)
    parser.add_argument(
        "--megabytes",
        type=float,
        default=6.0,
        help="room for sampled groups in the page, in MB (default: 6)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def run(options: argparse.Namespace, console: Console) -> int:
    """Write the page; 0 when it is there."""
    data = collected(options, console)
    built = build_from(data, options.out, lambda result: tell_result(console, result))
    shown = contents(data, built, group_bytes=int(options.megabytes * MEGABYTE))
    path = options.out / NAME
    write_bytes(path, page(shown).encode(), readable=True)
    _tell(console, path, shown["groups"])
    if options.open and not webbrowser.open(path.resolve().as_uri()):
        console.print("no browser was found here: open the file yourself")
    return 0


def _tell(console: Console, path: Path, groups: dict[str, object]) -> None:
    console.print(f"[green]wrote[/] {escape(str(path))}, {path.stat().st_size / MEGABYTE:.1f} MB")
    if groups["shown"] != groups["recorded"]:
        console.print(
            f"{groups['shown']} of {groups['recorded']} sampled training steps fit into the page; "
            "--megabytes makes more room"
        )
