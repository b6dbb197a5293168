"""``python -m analysis meaning``: write the results of docs/meaning.md from their archive.

The study of reworded observations has an archive of its own, and its named comparisons are
corrected separately. The text around its results is written by hand.
"""

import argparse
import contextlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from analysis.figures import fig_meaning
from analysis.sources.collect import collect
from analysis.sources.collected import Collected, MissingRunsError
from analysis.stats.comparisons import CORRECTED_APART, Comparison, named_comparisons
from analysis.study.additions import (
    SCALE,
    add_archive_options,
    add_runs,
    check_options,
    refuse_damaged,
    refuse_other_study,
)
from analysis.study.agreement import TABLES, agreement_text
from analysis.study.page import between, draw, run_lines
from analysis.study.place import Place
from analysis.study.questions import effect_text, p_text, sentence
from scpo.progress import counted
from scpo.records.files import write_bytes

ARCHIVE = Path("docs/meaning")
PAGE = Path("docs/meaning.md")
TRACKED = Place("meaning", ARCHIVE, PAGE, ARCHIVE, PAGE)
FIGURE = "fig_meaning"
MARKERS = (
    "<!-- results: written by `python -m analysis meaning` -->",
    "<!-- end of results -->",
)
READING = (
    "*Area under validation*: mean held-out success over training, in points, the measure that was "
    "named before the runs. *Faster*: training steps to 50 % held-out success. *Better*: held-out "
    "success after the last step. Differences are paired by seed, with 95 % Student intervals; p "
    "is of the paired t-test after Holm's correction over the {tests} below. {families}"
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    add_archive_options(parser, ARCHIVE, PAGE)


def run(options: argparse.Namespace, console: Console) -> int:
    """Add the runs that ``--add`` names, then draw and write the results.

    Returns:
        The exit code 0.

    Raises:
        ConfigError: Options contradict each other, or a pattern matches no run.
        RecordError: No archive, damaged runs in it, or a source that cannot be read.
    """
    check_options(options, ARCHIVE, PAGE)
    if not add_runs(options, console, meaning=True):
        return 0
    refuse_damaged(options.archive)
    data = collect(options.archive).at_scale(SCALE)
    refuse_other_study(data, options.archive, meaning=True)
    figures = draw(data, [FIGURE], options.archive)
    target = options.page or PAGE
    # A page that does not exist yet gets the markers, and so has only the results.
    written = target.read_text() if target.exists() else "\n".join((*MARKERS, ""))
    place = Place("meaning", options.archive, target, ARCHIVE, PAGE)
    text = with_results(written, data, figures, place)
    write_bytes(target, text.encode(), readable=True)
    runs = counted(len(data.by_id), "run")
    console.print(f"{runs} in {escape(str(options.archive))}; page: {escape(str(target))}")
    for comparison in named_comparisons(data, meaning=True):
        if comparison.finished:
            experiment = comparison.experiments[0]
            effect = effect_text(comparison.effect)
            console.print(f"{experiment}: {comparison.name} {effect}", markup=False)
    return 0


def with_results(text: str, data: Collected, figures: Iterable[str], place: Place = TRACKED) -> str:
    """Rewrite the results and the tables of agreement in a document, each between its markers.

    Args:
        text: The document; without markers it is returned as it is.
        data: Data of the study's scale.
        figures: Names of the pictures in the archive's folder.
        place: Where the document and the archive are.
    """
    for table in TABLES:
        # The blank lines end the comment, after which Markdown would read no table.
        text = between(text, table.markers, f"\n{agreement_text(data, table)}\n")
    return between(text, MARKERS, "\n\n".join(_results(data, set(figures), place)))


def _results(data: Collected, figures: set[str], place: Place) -> Iterator[str]:
    comparisons = named_comparisons(data, meaning=True)
    finished = [comparison for comparison in comparisons if comparison.finished]
    if FIGURE in figures:
        link = place.link(place.archive / f"{FIGURE}.png")
        yield f"![Area under validation over the share of reworded observations]({link})"
    if finished:
        yield READING.format(
            tests=counted(finished[0].effect.tests, "comparison"), families=CORRECTED_APART
        )
        # Grouped by experiment, because several compare the same methods on other rewordings.
        titles = {record.experiment: record.title for record in data.experiments}
        for experiment in dict.fromkeys(comparison.experiments[0] for comparison in finished):
            yield f"**{titles[experiment]}** (`{experiment}`)"
            yield "\n".join(
                f"- {sentence(comparison)}"
                for comparison in finished
                if comparison.experiments[0] == experiment
            )
        resolved = [comparison for comparison in finished if comparison.effect.resolved]
        yield _count(finished, resolved)
    missing = len(comparisons) - len(finished)
    if missing:
        yield f"{counted(missing, 'named comparison')} not run yet."
    try:
        yield fig_meaning.numbers(data).md().strip()
    except MissingRunsError as error:
        yield f"Not run yet: `{error.command}`."
    # No table before the experiment on fresh seeds has a run.
    with contextlib.suppress(MissingRunsError):
        yield fig_meaning.numbers(data, fresh=True).md().strip()
    yield "\n".join(run_lines(data, meaning=True, tracked=place.tracked))


def _count(finished: list[Comparison], resolved: list[Comparison]) -> str:
    if not resolved:
        return f"None of the {len(finished)} is resolved in area."
    shown = []
    for comparison in resolved:
        effect = comparison.effect
        place = comparison.experiments[0]
        shown.append(f"{comparison.name} (`{place}`) {effect_text(effect)} ({p_text(effect)})")
    return f"Resolved in area, {len(resolved)} of {len(finished)}: {'; '.join(shown)}."
