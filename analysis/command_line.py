"""Options that every command of analysis has: where the runs come from and where the outputs go."""

import argparse
from pathlib import Path

from analysis.collect import Collected, collect
from analysis.project import Settings


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``collected`` reads, and ``--out``."""
    parser.add_argument(
        "--runs", type=Path, action="append", help="folder of run folders or W&B offline folders (default: runs)"
    )
    parser.add_argument(
        "--wandb", metavar="ENTITY/PROJECT", action="append", default=[], help="W&B project; both may be repeated"
    )
    parser.add_argument("--refresh", action="store_true", help="ask W&B again instead of reading the local copy")
    parser.add_argument("--cache", type=Path, default=Settings.cache, help=f"local copies (default: {Settings.cache})")
    parser.add_argument(
        "--out", type=Path, default=Path("paper_figures"), help="output folder (default: paper_figures)"
    )


def collected(options: argparse.Namespace) -> Collected:
    """Read every run of the sources that were asked for.

    Raises:
        RecordError: A W&B project cannot be read at all.
    """
    settings = Settings(cache=options.cache, refresh=options.refresh)
    return collect(options.runs or [Path("runs")], options.wandb, settings)
