"""What every command of analysis has: options for where runs come from and outputs go, and what it tells of both."""

import argparse
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from analysis.build import Failure, Output
from analysis.sources.collect import Collected, collect
from analysis.sources.wandb_project import Settings
from scpo.errors import RecordError
from scpo.progress import counted

RUNS = Path("runs")
FIX = "make some, `make demo` or `python sweep.py +experiment=ablation`, or name others with --runs-dir or --wandb"


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``collected`` reads, and ``--out``."""
    parser.add_argument(
        "--runs-dir", type=Path, action="append", help="folder of run folders or W&B offline folders (default: runs)"
    )
    parser.add_argument(
        "--wandb", metavar="ENTITY/PROJECT", action="append", default=[], help="W&B project; both may be repeated"
    )
    parser.add_argument("--refresh", action="store_true", help="ask W&B again instead of reading the local copy")
    parser.add_argument("--cache", type=Path, default=Settings.cache, help=f"local copies (default: {Settings.cache})")
    parser.add_argument(
        "--out", type=Path, default=Path("paper_figures"), help="output folder (default: paper_figures)"
    )


def collected(options: argparse.Namespace, console: Console) -> Collected:
    """Read every run of the sources that were asked for, and say how many those are.

    Raises:
        RecordError: A folder is not there, a W&B project cannot be read at all, or no run was found anywhere.
    """
    folders = options.runs_dir or ([] if options.wandb else [RUNS])
    if options.wandb and not options.runs_dir and RUNS.is_dir():
        console.print(f"only W&B is read; {RUNS}/ is here too: --runs-dir {RUNS} adds it")
    missing = [str(folder) for folder in folders if not folder.is_dir()]
    if missing:
        raise RecordError(f"no runs: there is no folder {', '.join(missing)}; {FIX}")
    data = collect(folders, options.wandb, Settings(cache=options.cache, refresh=options.refresh))
    if data.runs.empty:
        places = ", ".join([*map(str, folders), *options.wandb])
        if not data.problems:
            raise RecordError(f"no runs were found in {places}; {FIX}")
        first = data.problems[0]
        found = f"{counted(len(data.problems), 'problem')}, the first: {first.reason}"
        raise RecordError(f"no run in {places} can be used: {found}")
    console.print(f"{counted(len(data.runs), 'run')} read; tables and figures, each in seconds:")
    return data


def tell_result(console: Console, result: Output | Failure) -> None:
    """What has become of a table or figure; of one that could not be built, what to do about it."""
    if isinstance(result, Failure):
        console.print(f"[yellow]missing[/]  {result.name}: {escape(result.reason)}")
        console.print(*(f"           {line}" for line in result.remedy.splitlines()), sep="\n", markup=False)
        return
    files = ", ".join(str(path) for path in result.files)
    verb = "[green]built[/]    " if result.made is not None else "[green]as it was[/]"
    console.print(f"{verb} {result.name} from {counted(len(result.runs), 'run')}: {escape(files)}")
