"""``python -m analysis study``: write the study's page and pictures from the archive of its runs.

Tracked files are written only from the archive, so they do not depend on the present content of a
folder of runs. Runs of a folder enter the archive only if ``--add`` names them.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from analysis.paper.claims import Claim
from analysis.paper.findings import finding
from analysis.paper.paper_claims import claims
from analysis.rendering.table import difference
from analysis.sources.collect import collect
from analysis.sources.collected import Collected
from analysis.stats.comparisons import named_comparisons
from analysis.study.additions import (
    SCALE,
    add_archive_options,
    add_runs,
    check_options,
    refuse_damaged,
    refuse_other_study,
)
from analysis.study.page import (
    ARCHIVE,
    FIGURES,
    PAGE,
    between,
    compares_equal_texts,
    draw,
    page,
    summary,
)
from analysis.study.place import Place
from analysis.study.questions import headline, headlined
from scpo.progress import counted
from scpo.records.files import write_bytes
from scpo.records.status import State

CLAIMS = Path("REPRODUCTION.md")
README = Path("README.md")

# Markers in other documents, between which the command writes.
CLAIMS_MARKERS = (
    "<!-- claims: written by `python -m analysis study` -->",
    "<!-- end of claims -->",
)
HEADLINE_MARKERS = (
    "<!-- headline: written by `python -m analysis study` -->",
    "<!-- end of headline -->",
)
CLAIMS_HEAD = (
    "| claim (paper) | place | printed | command | paper scale | study scale |\n"
    "|---|---|---|---|---|---|\n"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument(
        "--readme",
        type=Path,
        help=f"document with the headline (with {PAGE}: {README})",
    )
    parser.add_argument(
        "--claims",
        type=Path,
        help=f"document with the table of claims (with {PAGE}: {CLAIMS})",
    )
    add_archive_options(parser, ARCHIVE, PAGE)


def run(options: argparse.Namespace, console: Console) -> int:
    """Add the runs that ``--add`` names, then draw and write the page.

    Returns:
        The exit code 0.

    Raises:
        ConfigError: Options contradict each other, or a pattern matches no run.
        RecordError: No archive, damaged runs in it, or a source that cannot be read.
    """
    check_options(options, ARCHIVE, PAGE)
    if not add_runs(options, console):
        return 0
    refuse_damaged(options.archive)
    everything = collect(options.archive)
    data = everything.at_scale(SCALE)
    refuse_other_study(data, options.archive, meaning=False)
    figures = draw(data, FIGURES, options.archive)
    target = options.page or PAGE
    place = Place("study", options.archive, target, ARCHIVE, PAGE)
    write_bytes(target, page(data, figures, place).encode(), readable=True)

    # Without these options, tracked documents are rewritten only with the tracked page.
    if document := options.claims or (CLAIMS if target == PAGE else None):
        text = with_claims(document.read_text(), everything)
        write_bytes(document, text.encode(), readable=True)
    if document := options.readme or (README if target == PAGE else None):
        text = with_headline(document.read_text(), data)
        write_bytes(document, text.encode(), readable=True)
    runs = counted(len(data.by_id), "run")
    console.print(f"{runs} in {escape(str(options.archive))}; page: {escape(str(target))}")
    console.print(summary(data), markup=False)
    return 0


# Blocks of other documents


def with_headline(text: str, data: Collected) -> str:
    """Rewrite the study's first answer in a document, between its markers.

    Args:
        text: The document; without markers it is returned as it is.
        data: Data of the study's scale.
    """
    return between(text, HEADLINE_MARKERS, " ".join(_headline(data)))


def with_claims(text: str, data: Collected) -> str:
    """Rewrite the table of claims in a document, between its markers.

    Args:
        text: The document; without markers it is returned as it is.
        data: Data of every scale.
    """
    lines = "\n".join(_claim_line(claim, data) for claim in claims())
    return between(text, CLAIMS_MARKERS, CLAIMS_HEAD + lines)


def _headline(data: Collected) -> Iterator[str]:
    """Yield sentences: the page's headline, its number of runs and pairs, SCPO's scorer."""
    comparisons = named_comparisons(data)
    yield f"**[The laptop study](docs/study.md): {headline(comparisons)}**"
    planned: set[str] = set()
    for record in data.experiments:
        if record.scale in data.scales:
            planned |= record.run_ids
    known = [data.by_id[run_id] for run_id in planned if run_id in data.by_id]
    done = sum(run.state == State.DONE for run in known)
    runs = str(done)
    if done < len(planned):
        runs += f" of {len(planned)} planned"
    counts = dict.fromkeys(comparison.pairs.count for comparison in headlined(comparisons))
    pairs = f", {', '.join(counts)} pairs of seeds" if counts else ""
    yield (
        f"{runs} runs of a small policy that chooses among listed commands{pairs}: it says nothing "
        "about the size of effects in language models."
    )
    if compares_equal_texts(data):
        yield "SCPO's scorer is equality of texts here (`scorer=exact`)."


def _claim_line(claim: Claim, data: Collected) -> str:
    cells = (
        claim.text,
        claim.place,
        claim.printed,
        f"`{claim.command(claim.cheapest_scale)}`",
        _conclusion(claim, data, "paper"),
        _conclusion(claim, data, "study"),
    )
    return f"| {' | '.join(cells)} |"


def _conclusion(claim: Claim, data: Collected, scale: str) -> str:
    """Verdict at a scale, with its number and seeds."""
    found = finding(claim, data.at_scale(scale), scale)
    if not found.summary.n:
        return found.verdict
    shown = difference(found.summary, claim.factor, claim.digits).text
    other = "" if found.is_own else f" of {found.experiment}"
    return f"{found.verdict}: {shown}, {found.summary.n} seeds{other}"
