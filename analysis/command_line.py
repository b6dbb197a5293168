"""Options that the commands of analysis share: where runs come from, which are drawn, and what figures look like."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from scpo.errors import ConfigError, RecordError
from scpo.progress import counted

from analysis.build import Failure, Output
from analysis.rendering.style import FORMATS, Look, read_size, read_style
from analysis.selection import Selection
from analysis.sources.collect import Collected, collect
from analysis.sources.wandb_project import Settings

RUNS = Path("runs")
FIX = "make some, `make demo` or `python sweep.py +experiment=ablation`, or name others with --runs-dir or --wandb"
FONT_SIZES = (3.0, 40.0)  # points


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``collected`` reads, and ``--out``."""
    parser.add_argument(
        "--runs-dir",
        type=Path,
        action="append",
        help="folder of run folders or W&B offline folders, or an archive (default: runs)",
    )
    parser.add_argument(
        "--wandb",
        metavar="ENTITY/PROJECT",
        action="append",
        default=[],
        help="W&B project; both may be repeated",
    )
    parser.add_argument(
        "--refresh", action="store_true", help="ask W&B again instead of reading the local copy"
    )
    parser.add_argument(
        "--cache",
        type=Path,
        default=Settings.cache,
        help=f"local copies (default: {Settings.cache})",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("paper_figures"),
        help="output folder (default: paper_figures)",
    )


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``selection`` reads."""
    group = parser.add_argument_group(
        "which rows", "names are separated by commas, and an option may be repeated"
    )
    group.add_argument(
        "--rows", action="append", default=[], metavar="NAME,...", help="rows, in this order"
    )
    group.add_argument(
        "--experiment",
        action="append",
        default=[],
        metavar="NAME,...",
        help="the rows and seeds of these experiments",
    )
    group.add_argument(
        "--seeds",
        choices=("all", "common"),
        default="all",
        help="common: the seeds that all rows under each other have finished (default: all that a row has)",
    )
    group.add_argument(
        "--env", action="append", default=[], metavar="NAME,...", help="environments, e.g. alfworld"
    )


def add_look(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``look`` reads."""
    group = parser.add_argument_group("what figures look like")
    group.add_argument(
        "--size",
        metavar="column|page|WxH",
        help="width of one column (3.25 inches) or of the page (6.75), or width and height in inches "
        "(default: what each figure is made for)",
    )
    group.add_argument(
        "--font-size", type=float, metavar="POINTS", help="size of all text (default: 8)"
    )
    group.add_argument(
        "--format",
        default="pdf,png",
        metavar="NAME,...",
        help=f"of {', '.join(FORMATS)} (default: pdf,png)",
    )
    group.add_argument(
        "--style",
        metavar="FILE",
        help="a .mplstyle file, or a style of matplotlib; its prop_cycle colours the rows",
    )


def selection(options: argparse.Namespace) -> Selection:
    """The rows, experiments and environments that were asked for."""
    common = options.seeds == "common"
    return Selection(_names(options.rows), _names(options.experiment), _names(options.env), common)


def look(options: argparse.Namespace) -> Look:
    """The appearance that was asked for.

    Raises:
        ConfigError: A size, format or style file that is none.
    """
    width, height = read_size(options.size) if options.size else (None, None)
    formats = _names([options.format])
    if not formats or not set(formats) <= set(FORMATS):
        raise ConfigError(
            f"--format {options.format}: allowed are {', '.join(FORMATS)}, separated by commas"
        )
    low, high = FONT_SIZES
    if options.font_size is not None and not low <= options.font_size <= high:
        raise ConfigError(
            f"--font-size {options.font_size:g} is not between {low:g} and {high:g} points"
        )
    style = read_style(options.style) if options.style else ()
    if width is None and options.style:
        width = dict(style).get("figure.figsize", (None,))[
            0
        ]  # heights depend on the number of rows
    return Look(width, height, options.font_size, formats, style)


def _names(values: Sequence[str]) -> tuple[str, ...]:
    names = [name.strip() for value in values for name in value.split(",")]
    return tuple(dict.fromkeys(name for name in names if name))


def collected(options: argparse.Namespace, console: Console) -> Collected:
    """Read every run of the sources that were asked for, and print how many those are.

    Raises:
        RecordError: A folder does not exist, a W&B project cannot be read at all, or no run was
            found anywhere.
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
        problems = f"{counted(len(data.problems), 'problem')}, the first: {first.reason}"
        raise RecordError(f"no run in {places} can be used: {problems}")
    console.print(f"{counted(len(data.runs), 'run')} read; tables and figures, each in seconds:")
    return data


def tell_result(console: Console, result: Output | Failure) -> None:
    """Print the result for a table or figure; for one that could not be built, what to do about it."""
    if isinstance(result, Failure):
        console.print(f"[yellow]missing[/]  {result.name}: {escape(result.reason)}")
        console.print(
            *(f"           {line}" for line in result.remedy.splitlines()), sep="\n", markup=False
        )
        return
    files = ", ".join(str(path) for path in result.files)
    verb = "[green]built[/]    " if result.made is not None else "[green]as it was[/]"
    console.print(f"{verb} {result.name} from {counted(len(result.runs), 'run')}: {escape(files)}")
