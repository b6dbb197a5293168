"""Options that every command of analysis has: where the runs come from and where the outputs go."""

import argparse
from pathlib import Path

from analysis.sources.collect import Collected, collect
from analysis.sources.wandb_project import Settings
from scpo.errors import RecordError

RUNS = Path("runs")
MEND = "make some, `make demo` or `python sweep.py +experiment=ablation`, or name others with --runs or --wandb"


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
        RecordError: A folder is not there, a W&B project cannot be read at all, or no run was found anywhere.
    """
    folders = options.runs or ([RUNS] if RUNS.is_dir() or not options.wandb else [])
    missing = [str(folder) for folder in folders if not folder.is_dir()]
    if missing:
        raise RecordError(f"no runs: there is no folder {', '.join(missing)}; {MEND}")
    data = collect(folders, options.wandb, Settings(cache=options.cache, refresh=options.refresh))
    if data.runs.empty:
        raise RecordError(f"no runs were found in {', '.join([*map(str, folders), *options.wandb])}; {MEND}")
    return data
