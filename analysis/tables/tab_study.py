"""The study's rows by every measure: areas, success at fixed steps, steps to 50 and 80 %."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from analysis.names import Footnotes, place, with_note
from analysis.rendering.table import NONE, Block, Number, Table, difference, number
from analysis.sources.collected import Collected, missing_runs
from analysis.sources.run_records import ExperimentRecord, is_implied
from analysis.stats.comparisons import REFERENCES, compare
from analysis.stats.measures import (
    AREA,
    BETTER,
    LEVELS,
    MEASURES,
    Measure,
    by_seed,
    held_out,
    how_many_reach,
    reaches,
    steps_to,
    success_at,
)
from analysis.stats.seed_statistics import fewer_seeds
from analysis.stats.study_rows import (
    MAIN,
    StudyRow,
    by_benchmark,
    common_settings,
    comparable,
    find,
    not_shown,
    on_common_seeds,
    rate_text,
    reported,
    shown_rows,
    study_rows,
    titles_apart,
)
from scpo.intervals import summarise

SCALE = "study"

# Largest number of columns of success at a step before the last.
MOST_STEPS = 3
CAPTION = (
    "Success (%) on held-out games (those of all validation panels together): area under "
    "validation, which is the area under its curve over training, a mean success rate; success "
    "after fixed training steps and at the last one; training steps until it first reaches 50 and "
    "80 %, on the straight lines between validations. Area under training: the same of the "
    "success of the training rollouts, which play the games that are trained on. A seed that "
    "never reaches a level counts with its last step (restricted mean); “reach” counts the seeds "
    "that do, and where none does there is no number. Mean ± standard deviation over the finished "
    "seeds (seeds: finished/planned). The learning rate is each row's own (a dash: nothing is "
    "trained); rows of one name list the settings in which they differ, or their heading does. "
    "“Minus GiGPO” and “minus SCPO”: difference of the areas under validation in points, paired "
    "by seed, with the 95 % Student interval, each by itself and not corrected; the comparisons "
    "that were named before the runs, with their corrected tests, are in tab_study_effects."
)


def build(data: Collected) -> Table:
    """One block for each experiment and benchmark.

    Raises:
        MissingRunsError: No run that was validated while it trained has finished.
    """
    rows = study_rows(data)
    blocks, without_common_seed = _titled_rows(data)
    if not blocks:
        raise missing_runs("finished runs of the study", data.sections, MAIN)
    shown: list[StudyRow] = []
    for block in blocks:
        shown += block.rows
    measures = _measures(data, shown)
    headings = []
    commons = []
    for block in blocks:
        common = common_settings([find(rows, row) for row in block.rows])
        commons.append(common)
        headings.append(", ".join((block.title, *common.values())))
    headings = titles_apart(
        headings, [block.rows for block in blocks], [block.record for block in blocks]
    )
    table_blocks = []
    notes = Footnotes()
    for heading, common, block in zip(headings, commons, blocks, strict=True):
        lines = []
        for row in block.rows:
            lines.append(_line(data, row, block.rows, rows, common, measures=measures, notes=notes))
        table_blocks.append(Block(heading, tuple(lines)))
    left_out = ""
    if without_common_seed:
        titles = "; ".join(without_common_seed)
        left_out = f" Left out, because no seed is finished in all rows: {titles}."
    caption = f"{CAPTION}{notes.text}{left_out}{not_shown(data, shown)}"
    return Table(
        words=("Row", "Seeds", "Reach 50 %", "Reach 80 %"),
        numbers=(
            "learning rate",
            *(f"minus {label}" for label in REFERENCES.values()),
            *(measure.label for measure in measures),
        ),
        blocks=tuple(table_blocks),
        caption=with_note(caption, SCALE),
        label=f"tab:study-{SCALE}",
        single=("learning rate",),
        footnotes=notes.texts,
    )


class _Rows(NamedTuple):
    """Rows of an experiment on one benchmark."""

    record: ExperimentRecord
    title: str
    rows: list[StudyRow]


def _titled_rows(data: Collected) -> tuple[list[_Rows], list[str]]:
    """The rows of each block, and the titles of the blocks that are left out.

    If the user chose common seeds, blocks without such a seed are left out.
    """
    blocks: list[_Rows] = []
    without_common_seed: list[str] = []
    for record in reported(data):
        own = [row for row in shown_rows(data, record) if _has_curve(data, row)]
        for benchmark, rows in by_benchmark(own).items():
            title = f"{record.title}: {place(record.scale, *benchmark)}"
            here = on_common_seeds(data, rows) if data.common_seeds else rows
            if not here:
                without_common_seed.append(title)
            elif not (data.chosen and _is_repeated(here, blocks)):
                blocks.append(_Rows(record, title, here))
    return blocks, without_common_seed


def _is_repeated(rows: Sequence[StudyRow], blocks: Iterable[_Rows]) -> bool:
    """True if an earlier block has all these rows on the same seeds.

    If the user chose few rows, such as the default only, many experiments have just these.
    """
    own = {row.row.runs for row in rows}
    return any(own <= {row.row.runs for row in known.rows} for known in blocks)


def _has_curve(data: Collected, row: StudyRow) -> bool:
    """True if the row's first finished run was validated at several steps."""
    finished = row.row.finished
    return bool(finished) and len(held_out(data, finished[0]).steps) > 1


def _measures(data: Collected, rows: Sequence[StudyRow]) -> list[Measure]:
    """The columns: areas under validation and training, success at steps, steps to the levels."""
    validated = [held_out(data, row.row.finished[0]).steps for row in rows]
    # Without the first step, before training, and the last, which has a column of its own.
    inner = [list(steps[1:-1]) for steps in validated]
    # Benchmarks may be validated at different steps. Columns have steps that all rows share, or if
    # there are none, the steps of the row with most validations.
    shared = set(inner[0]).intersection(*inner[1:])
    steps = sorted(shared) or max(inner, key=len)
    every = max(1, math.ceil(len(steps) / MOST_STEPS))
    # Counted from the end, so that the latest of these steps is among them.
    chosen = sorted(steps[::-1][::every])
    areas = (AREA, MEASURES["training_area"])
    return [*areas, *map(success_at, chosen), BETTER, *map(steps_to, LEVELS)]


def _line(
    data: Collected,
    row: StudyRow,
    same_experiment: Sequence[StudyRow],
    rows: Sequence[StudyRow],
    common: Mapping[str, str],
    *,
    measures: Sequence[Measure],
    notes: Footnotes,
) -> tuple[str | Number, ...]:
    """Cells of a row in the order of the table's columns.

    Args:
        data: The collected runs.
        row: The row, on the seeds of its block.
        same_experiment: All rows of its block.
        rows: The rows of ``study_rows``.
        common: Settings that the heading of the block names.
        measures: The columns of measures.
        notes: Footnotes, to which those of the row are added.
    """
    reach = (how_many_reach(data, row.row, level) for level in LEVELS)
    references = _references(data, row, [*same_experiment, *rows])
    pairs = {}
    for name, reference in references.items():
        _, effect = compare(data, row, reference, AREA)
        pairs[f"minus {REFERENCES[name]}"] = effect.difference
    differences = []
    for label in REFERENCES.values():
        summary = pairs.get(f"minus {label}")
        differences.append(difference(summary) if summary else NONE)
    # A reference without a common seed has no number that a footnote could be about.
    shown = {}
    for name, reference in references.items():
        if pairs[f"minus {REFERENCES[name]}"].n:
            shown[name] = reference
    remarks = (
        fewer_seeds(pairs, len(row.row.finished)),
        _unusual_references(shown, same_experiment, rows, common),
    )
    marks = "".join(map(notes.mark, remarks))
    title = f"{find(rows, row).title_without(common)}{marks}"
    cells = (_cell(data, row, measure) for measure in measures)
    return (title, row.row.count, *reach, _rate(row), *differences, *cells)


def _unusual_references(
    references: Mapping[str, StudyRow],
    same_experiment: Sequence[StudyRow],
    rows: Sequence[StudyRow],
    common: Mapping[str, str],
) -> str:
    """Titles of the references that the names of the columns do not describe; empty without any."""
    texts = []
    for name, reference in references.items():
        found = find(rows, reference)
        # The heading names the common settings only for the rows below it.
        is_below = any(find(rows, other) == found for other in same_experiment)
        title = found.title_without(common) if is_below else found.title
        if title != REFERENCES[name]:
            texts.append(f"minus {REFERENCES[name]}: of “{title}”")
    return "; ".join(texts)


def _references(data: Collected, row: StudyRow, known: Iterable[StudyRow]) -> dict[str, StudyRow]:
    """The first comparable row of each reference among the known rows, unless it is ``row`` itself.

    Rows of an experiment are not compared with runs of train.py, which were not planned for it: a
    run of GiGPO may have any learning rate.
    """
    own = {experiment for experiment, _ in row.names}
    candidates = []
    for other in known:
        experiments = {experiment for experiment, _ in other.names}
        if experiments & own or not all(map(is_implied, experiments)):
            candidates.append(other)
    references = {}
    for name in REFERENCES:
        called = [other for other in candidates if other.called(name)]
        reference = next((other for other in called if comparable(data, row, other)), None)
        if reference is not None and reference.configuration != row.configuration:
            references[name] = reference
    return references


def _cell(data: Collected, row: StudyRow, measure: Measure) -> Number:
    """Mean of a measure over the row's seeds; empty if a seed lacks it.

    Steps to a level are empty, too, if no seed reaches it: each would count with its last step.
    """
    for level in LEVELS:
        if measure.label == steps_to(level).label and not _any_reaches(data, row, level):
            return NONE
    values = list(by_seed(data, row.row, measure).values())
    # A mean over a part of the seeds would look like a mean over all.
    if None in values:
        return NONE
    return number(summarise(values), measure.factor, measure.digits)


def _any_reaches(data: Collected, row: StudyRow, level: float) -> bool:
    return any(reaches(data, run, level) for run in row.row.finished)


def _rate(row: StudyRow) -> Number:
    return NONE if row.learning_rate is None else Number(rate_text(row.learning_rate))
