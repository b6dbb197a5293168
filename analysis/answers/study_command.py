"""``python -m analysis study``: merge runs into the archive, rebuild the page and its pictures from it."""

import argparse
from pathlib import Path

import matplotlib as mpl
from rich.console import Console
from rich.markup import escape

from analysis.answers.document import FIGURES, page, summary
from analysis.answers.written_blocks import with_claims, with_headline
from analysis.build import builders
from analysis.sources.archive import is_archive, write_archive
from analysis.sources.collect import Collected, collect
from analysis.sources.rows import MissingRunsError
from analysis.sources.run_records import ExperimentRecord
from scpo.errors import RecordError
from scpo.records.files import write_bytes

SCALE = "study"
RUNS, ARCHIVE, PAGE, CLAIMS = Path("runs"), Path("docs/study"), Path("docs/study.md"), Path("REPRODUCTION.md")
README = Path("README.md")
NOT_OF_THE_STUDY = ("demo",)  # its panels and steps are smaller


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what the command takes."""
    parser.add_argument(
        "--runs", type=Path, action="append", help="folder of run folders, or another archive; may be repeated (runs)"
    )
    parser.add_argument("--archive", type=Path, default=ARCHIVE, help=f"its files and pictures (default: {ARCHIVE})")
    parser.add_argument("--page", type=Path, default=PAGE, help=f"the page (default: {PAGE})")
    parser.add_argument("--readme", type=Path, help=f"document with the headline (with {PAGE}: {README})")
    parser.add_argument("--claims", type=Path, help=f"document with the table of claims (with {PAGE}: {CLAIMS})")


def run(options: argparse.Namespace, console: Console) -> int:
    """Merge, archive, draw, write; 0 when there is a page.

    Raises:
        RecordError: There is no run of the study anywhere, or a source cannot be read.
    """
    folders = [*(options.runs or [folder for folder in (RUNS,) if folder.is_dir()])]
    if missing := [str(folder) for folder in folders if not folder.is_dir()]:
        raise RecordError(f"no runs: there is no folder {', '.join(missing)}; make some with `make study-quick`")
    merge([*folders, *([options.archive] if is_archive(options.archive) else [])], options.archive)
    whole = collect(options.archive)
    data = whole.at_scale(SCALE)
    figures = _draw(data, options.archive)
    write_bytes(options.page, page(data, figures).encode(), readable=True)
    ours = options.page == PAGE
    if document := options.claims or (CLAIMS if ours else None):
        write_bytes(document, with_claims(document.read_text(), whole).encode(), readable=True)
    if document := options.readme or (README if ours else None):
        write_bytes(document, with_headline(document.read_text(), data).encode(), readable=True)
    console.print(f"{len(data.by_id)} runs in {escape(str(options.archive))}; the page is {escape(str(options.page))}")
    console.print(summary(data), markup=False)
    return 0


def merge(folders: list[Path], archive: Path) -> None:
    """Put the study's finished runs of all folders into the archive."""
    found = collect(folders)
    records = [record for record in found.experiments if _of_the_study(record)]
    planned = {run.id for record in records for row in record.rows for run in row.runs}
    runs = [run for run in found.by_id.values() if run.id in planned and run.head.scale == SCALE]
    if not any(run.state == "DONE" for run in runs):
        raise RecordError(
            "no finished run of an experiment at scale=study was found; make some with `make study-quick`"
        )
    write_archive(runs, found.metrics, records, archive)


def _of_the_study(record: ExperimentRecord) -> bool:
    """An experiment of this scale as its file says it, without other overrides."""
    plain = set(record.overrides) <= {f"scale={SCALE}"}
    return record.scale == SCALE and plain and record.experiment not in NOT_OF_THE_STUDY


def _draw(data: Collected, folder: Path) -> list[str]:
    """The page's pictures; those that the runs do not allow are left out."""
    mpl.use("agg")
    known, drawn = builders(), []
    for name in FIGURES:
        path = folder / f"{name}.png"
        try:
            picture = known[name](data).files()["png"]
        except MissingRunsError:
            path.unlink(missing_ok=True)
            continue
        write_bytes(path, picture, readable=True)
        drawn.append(name)
    return drawn
