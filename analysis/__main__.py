"""Build tables, figures and pages from records of runs: ``python -m analysis COMMAND``.

- ``figures``: tables and figures.
- ``report``: one page with everything that was recorded.
- ``study``: the study's page, from its archive.
- ``meaning``: the results of the study of reworded observations.
- ``precision``: the table of credit rules on recorded rollouts.
- ``animate``: the animation of a finished experiment.
"""

import argparse
import logging
import shlex
import sys
import webbrowser
from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from analysis import animation, precision
from analysis.build import Failure, Output, Report, build_from, builders, nothing_built
from analysis.rendering.style import FORMATS, Look, read_size, read_style
from analysis.report.page import MEGABYTE, contents, page
from analysis.selection import Selection
from analysis.sources.collect import collect
from analysis.sources.collected import Collected
from analysis.sources.near_misses import folder_meant
from analysis.sources.run_records import SINGLE, is_implied
from analysis.sources.wandb_project import Settings, project_name
from analysis.study import command as study
from analysis.study import meaning
from scpo.errors import ConfigError, RecordError, ScpoError
from scpo.installed import REPOSITORY
from scpo.progress import counted
from scpo.records.archive_index import is_archive
from scpo.records.files import write_bytes
from scpo.records.run_folders import list_runs
from scpo.suggestions import SuggestingParser, did_you_mean

RUNS = Path("runs")
OUT = Path("paper_figures")
REPORT = "report.html"
FIX = (
    "make some with `make demo` or `python sweep.py +experiment=ablation`, "
    "or name other runs with --runs-dir (docs/study has the study's) or --wandb"
)
LISTED = 3  # largest number of unfinished runs that are printed
FONT_SIZES = (3.0, 40.0)  # points; another size is a typing error, such as a missing decimal point


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit code, 1 after an error."""
    words = sys.argv[1:] if arguments is None else arguments
    parser = _parser()
    if words and words[0].startswith(("fig_", "tab_")):
        parser.error(f"{words[0]} is no command; did you mean figures {words[0]}?")
    options = parser.parse_args(words)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            # Print ? for characters that the terminal cannot encode, instead of failing.
            stream.reconfigure(errors="replace")

    console = Console(soft_wrap=True, highlight=False)
    logging.basicConfig(format="%(message)s")

    # At INFO, the package logs that a W&B project was read from its local copy.
    logging.getLogger("analysis").setLevel(logging.INFO)
    # fontTools, which embeds the fonts of a PDF, logs every table of a font at INFO.
    logging.getLogger("fontTools").setLevel(logging.WARNING)
    try:
        code: int = options.run(options, console)
    except ScpoError as error:
        console.print(f"[bold red]error:[/] {escape(str(error))}")
        return 1
    return code


# Commands


def add_figures_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``figures``."""
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="e.g. fig_learning tab_main; without one: all",
    )
    parser.add_argument(
        "--debug",
        action="store_true",
        help="end with the traceback of a builder that fails",
    )
    add_places(parser)
    add_selection(parser)
    add_look(parser)


def figures(options: argparse.Namespace, console: Console) -> int:
    """Build the named outputs, or all; the exit code is 0 when at least one was built."""
    # Reading runs takes most of the time, so names are checked first.
    known = builders()
    unknown = [name for name in options.names if name not in known]
    if unknown:
        raise ConfigError(
            f"there is no table or figure {', '.join(unknown)}{did_you_mean(unknown[0], known)}\n"
            f"there are {', '.join(known)}"
        )

    appearance = look(options)
    data = collected(options, console)
    if not data.runs["finished"].any():
        runs = counted(len(data.runs), "run")
        places = ", ".join(map(str, [*(options.runs_dir or [RUNS]), *options.wandb]))
        console.print(
            f"[bold red]error:[/] no finished run in {escape(places)} ({runs} read): "
            "tables and figures are made of finished runs only"
        )
        _print_left_out(console, nothing_built(data), _runs_dir_override(options))
        return 1

    data = selection(options).of(data)
    console.print(f"{counted(len(data.runs), 'run')} read; tables and figures, each in seconds:")
    # Each result is printed as soon as it is built, since all together take minutes.
    report = build_from(
        data,
        options.out,
        lambda result: print_result(console, result),
        only=options.names,
        look=appearance,
        debug=options.debug,
    )
    _print_left_out(console, report, _runs_dir_override(options))
    return 0 if report.outputs else 1


def add_report_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``report``."""
    add_places(parser)
    parser.add_argument(
        "--megabytes",
        type=float,
        default=6.0,
        help="room for sampled groups in the page, in MB (default: 6)",
    )
    parser.add_argument("--open", action="store_true", help="open the page in a browser")


def write_report(options: argparse.Namespace, console: Console) -> int:
    """Build all outputs and write the page that shows them; the exit code is 0."""
    data = collected(options, console)
    console.print(f"{counted(len(data.runs), 'run')} read; tables and figures, each in seconds:")
    built = build_from(data, options.out, lambda result: print_result(console, result))
    shown = contents(data, built, group_bytes=int(options.megabytes * MEGABYTE))
    _print_left_out(console, built, _runs_dir_override(options))
    path = options.out / REPORT
    # Readable by others: a page on a shared disk is opened by people who did not write it.
    write_bytes(path, page(shown).encode(), readable=True)
    size = path.stat().st_size / MEGABYTE
    console.print(f"[green]wrote[/] {escape(str(path))}, {size:.1f} MB")
    groups = shown["groups"]
    if groups["shown"] != groups["recorded"]:
        console.print(
            f"{groups['shown']} of {groups['recorded']} sampled training steps fit into the page; "
            "--megabytes makes more room"
        )
    if options.open and not webbrowser.open(path.resolve().as_uri()):
        console.print("no browser was found here: open the file yourself")
    return 0


COMMANDS = {
    "figures": (
        add_figures_options,
        figures,
        "build every table and figure, or those that are named",
    ),
    "report": (
        add_report_options,
        write_report,
        "one self-contained page with everything that was recorded",
    ),
    "study": (
        study.add_options,
        study.run,
        "write docs/study.md from its archive; --add adds runs to it",
    ),
    "meaning": (
        meaning.add_options,
        meaning.run,
        "write the results of docs/meaning.md from their archive; --add adds runs to it",
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
    parser = SuggestingParser(
        prog="python -m analysis",
        description="From run records to tables and figures.",
    )
    # Suggested for the likely slip `tables`: tables have no command of their own.
    parser.meant = {"tables": "figures"}
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (add_options, run, description) in COMMANDS.items():
        command = commands.add_parser(name, help=description)
        add_options(command)
        command.set_defaults(run=run)
    return parser


# Options that commands share


def add_places(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``collected`` reads, and ``--out``."""
    parser.add_argument(
        "--runs-dir",
        type=Path,
        action="append",
        help="folder of run folders, or an archive (default: runs)",
    )
    parser.add_argument(
        "--wandb",
        type=project_name,
        metavar="ENTITY/PROJECT",
        action="append",
        default=[],
        help="W&B project, or its address; may be repeated, as --runs-dir may",
    )
    parser.add_argument(
        "--refresh",
        action="store_true",
        help="ask W&B again instead of reading the local copy",
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
        default=OUT,
        help=f"output folder (default: {OUT})",
    )


def add_selection(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``selection`` reads."""
    group = parser.add_argument_group(
        "which rows", "names are separated by commas, and an option may be repeated"
    )
    group.add_argument(
        "--rows",
        action="append",
        default=[],
        metavar="NAME,...",
        help="rows, in this order",
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
        help="common: only the seeds that all rows of a block have finished "
        "(default: all seeds of each row)",
    )
    group.add_argument(
        "--env",
        action="append",
        default=[],
        metavar="NAME,...",
        help="environments, e.g. alfworld",
    )


def add_look(parser: argparse.ArgumentParser) -> None:
    """Add the options that ``look`` reads."""
    group = parser.add_argument_group("what figures look like")
    group.add_argument(
        "--size",
        metavar="column|page|WxH",
        help="width of one column (3.25 inches) or of the page (6.75), or width and height in "
        "inches (default: what each figure is made for)",
    )
    group.add_argument(
        "--font-size",
        type=float,
        metavar="POINTS",
        help="size of titles and labels; ticks, keys and remarks are smaller in proportion "
        "(default: 8)",
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
    """The rows, experiments, seeds and environments that the user chose."""
    return Selection(
        rows=_names(options.rows),
        experiments=_names(options.experiment),
        envs=_names(options.env),
        common_seeds=options.seeds == "common",
    )


def look(options: argparse.Namespace) -> Look:
    """The appearance of figures that the user chose.

    Raises:
        ConfigError: A size, format or style file is invalid.
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
        # Only the width of a style file is used: heights depend on the number of rows.
        width = dict(style).get("figure.figsize", (None,))[0]
    return Look(width, height, options.font_size, formats, style)


def _names(values: Sequence[str]) -> tuple[str, ...]:
    """Split options at commas; each name once, in order of appearance."""
    names = [name.strip() for value in values for name in value.split(",")]
    return tuple(dict.fromkeys(name for name in names if name))


def collected(options: argparse.Namespace, console: Console) -> Collected:
    """Read every run of the folders and W&B projects that the user named.

    Raises:
        ConfigError: ``--out`` is a file.
        RecordError: A folder does not exist, a W&B project cannot be read at all, or none of the
            sources has a run.
    """
    # Checked first, because writing would fail only after all figures were built.
    if options.out.is_file():
        raise ConfigError(f"--out {options.out} is a file; name a folder")
    # A W&B project replaces the default folder, but is added to folders that were named.
    folders = options.runs_dir or ([] if options.wandb else [RUNS])
    if options.wandb and not options.runs_dir and RUNS.is_dir():
        console.print(f"only W&B is read; {RUNS}/ is here too: --runs-dir {RUNS} adds it")
    _check_folders(folders)
    settings = Settings(cache=options.cache, refresh=options.refresh)
    data = collect(folders, options.wandb, settings)
    if data.runs.empty:
        raise _no_runs(data, folders, options)
    return data


def _check_folders(folders: Sequence[Path]) -> None:
    """Raise RecordError if one of the folders does not exist or is a file."""
    missing = [folder for folder in folders if not folder.is_dir()]
    if not missing:
        return
    files = [path for path in missing if path.exists()]
    if files:
        wrong = f"{files[0]} is a file"
    else:
        wrong = f"there is no folder {', '.join(map(str, missing))}"
    hint = folder_meant(missing) or f"; {_of_checkout(missing)}{FIX}"
    raise RecordError(f"no runs: {wrong}{hint}")


def _of_checkout(missing: Sequence[Path]) -> str:
    """Name the checkout's folder of runs, if it has runs and the default folder is missing."""
    usual = REPOSITORY / RUNS
    if RUNS in missing and list_runs(usual):
        return f"those of the checkout: --runs-dir {shlex.quote(str(usual))}; "
    return ""


def _no_runs(data: Collected, folders: Sequence[Path], options: argparse.Namespace) -> RecordError:
    """The error of sources without a run that can be used."""
    places = ", ".join([*map(str, folders), *options.wandb])
    hint = folder_meant(folders)
    if commands := _commands_again(data, folders, _runs_dir_override(options)):
        return RecordError(
            f"no runs are left in {places}, only the records of experiments; make them again "
            f"with {commands}"
        )
    if not data.problems:
        return RecordError(f"no runs were found in {places}{hint or f'; {FIX}'}")
    problems = counted(len(data.problems), "problem")
    first = data.problems[0].reason
    return RecordError(f"no run in {places} can be used: {problems}, the first: {first}{hint}")


def _commands_again(data: Collected, folders: Sequence[Path], override: str) -> str:
    """Commands of the recorded experiments; empty if a folder has runs or is an archive.

    ``override``: end of each command, from ``_runs_dir_override``.
    """
    if any(is_archive(folder) or list_runs(folder) for folder in folders):
        return ""
    named = [record for record in data.experiments if not is_implied(record.experiment)]
    commands = [f"`python sweep.py {shlex.join(record.words)}{override}`" for record in named]
    return ", ".join(dict.fromkeys(commands))


def print_result(console: Console, result: Output | Failure) -> None:
    """Print one result; for a table or figure that was not built, also the remedy."""
    if isinstance(result, Failure):
        console.print(f"[yellow]missing[/]  {result.name}: {escape(result.reason)}")
        remedy = [f"           {line}" for line in result.remedy.splitlines()]
        console.print(*remedy, sep="\n", markup=False)
        return
    files = ", ".join(str(path) for path in result.files)
    verb = "[green]built[/]    " if result.made is not None else "[green]as it was[/]"
    # The output itself has the number of runs that each row shows.
    read = f"{counted(len(result.runs), 'run')} read"
    console.print(f"{verb} {result.name} ({read}): {escape(files)}")
    if result.older:
        # LaTeX takes the first format that it finds, so a paper may include the older picture.
        older = ", ".join(str(path) for path in result.older)
        console.print(
            f"           of an earlier build, perhaps with other rows: {escape(older)}; build it "
            "again with its --format, or delete it"
        )


def _runs_dir_override(options: argparse.Namespace) -> str:
    """End of a command that finishes runs: the override with their folder.

    Empty for the default folder, for several folders, and with a W&B project.
    """
    folders = [path for path in options.runs_dir or [RUNS] if not is_archive(path)]
    if len(folders) != 1 or folders[0] == RUNS or options.wandb:
        return ""
    return " " + shlex.quote(f"machine.runs_dir={folders[0]}")


def _print_left_out(console: Console, report: Report, override: str) -> None:
    """Print damaged records, notes, unfinished runs, and the commands that finish them.

    Args:
        console: Prints them.
        report: What was built and what was left out.
        override: End of each command, from ``_runs_dir_override``.
    """
    for problem in report.problems:
        # Single runs are not left out: they get rows of their own.
        kind = "note" if problem.path == SINGLE or problem.harmless else "left out"
        console.print(f"[yellow]{kind}[/] {escape(problem.path)}: {escape(problem.reason)}")
    for note in report.notes:
        console.print(f"[yellow]note[/] {escape(note)}")
    # A sweep has hundreds of runs, and results should stay visible above this list.
    if len(report.unfinished) > LISTED:
        first = "; ".join(report.unfinished[:LISTED])
        more = len(report.unfinished) - LISTED
        line = f"Not finished, so not in any mean: {first}; and {more} more, all on the report page"
        console.print(line, markup=False)
    elif report.unfinished:
        console.print("Not finished, so not in any mean:")
        unfinished = [f"  {line}" for line in report.unfinished]
        console.print(*unfinished, sep="\n", markup=False)
    if report.damaged:
        console.print(
            "No sweep makes runs again whose records cannot be read: the lines on them above "
            "name the remedy."
        )
    if len(report.unfinished) > report.damaged and not report.commands:
        # Single runs are in no experiment that a command of ours could run.
        console.print("Finish them with the commands of train.py that started them.")
    elif report.commands:
        commands = [f"  {command}{override}" for command in report.commands]
        # Other experiments may plan seeds of these rows that are not shown.
        of_shown = len(report.unfinished) > report.damaged
        these = "Finish them with:" if of_shown else "Finish runs of seeds that are not shown with:"
        console.print(these, *commands, sep="\n", markup=False)
    if report.refused:
        others = len(report.refused) - 1
        which = f" (and {counted(others, 'other run')})" if others else ""
        console.print(f"[yellow]note[/] would not go on{which}: {escape(report.refused[0])}")


if __name__ == "__main__":
    sys.exit(main())
