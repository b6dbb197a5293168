"""Precision of credit in training: the share of credited steps that help.

A step helps if a shortest plan to win is shorter after it than before.
"""

from collections.abc import Iterable

from analysis import names
from analysis.rendering.table import Block, Number, Table, percent
from analysis.sources.collected import Collected, missing_runs
from analysis.sources.credit_settings import credit_of_rows
from analysis.sources.rows import Row, Section
from analysis.stats.measures import logged_steps
from analysis.stats.seed_statistics import fewer_seeds
from scpo.intervals import summarise

# Metrics of a training step, over its failed steps (the steps of failed trajectories): precision of
# the credited ones, precision of all, and the share that is credited.
CREDITED, CHANCE, SHARE = "credit/precision", "credit/precision_random", "credit/share"
NUMBERS = ("Precision", "Chance", "Over chance", "Share credited")
CAPTION = (
    "How often credit falls on a step that helps, one after which a shortest plan to win is "
    "shorter: precision, the share of credited failed steps that help; chance, that of all failed "
    "steps; over chance, their difference; in percent, measured at {steps} on samples of steps "
    "(share credited: on all). A seed's precision is its mean over those of these training steps "
    "that have credited steps, chance and share credited over those with failed steps. Mean ± "
    "standard deviation over the finished seeds; a mark at a row names the numbers that not all "
    "of them have (no credited step has no precision). Credited by SCPO: what the shaper "
    "credits{settings}; by other methods: steps with a positive step term of the advantage."
)


def build(data: Collected) -> Table:
    """The table of one scale; MissingRunsError if no run has measured where its credit falls."""
    notes = names.Footnotes()
    blocks = []
    for part in data.sections:
        block = _block(data, part, notes)
        if block.rows:
            blocks.append(block)

    if not blocks:
        needed = "finished run that measured where its credit falls"
        raise missing_runs(needed, data.sections)

    rows_of = [(part, _measured(data, part)) for part in data.sections]
    shown = [row for _, rows in rows_of for row in rows]
    remarks = names.more_seeds_of(rows_of) + _not_shown(data, shown)
    settings = credit_of_rows(shown, data.by_id)
    steps = logged_steps(data, shown, (CREDITED, CHANCE, SHARE))
    caption = CAPTION.format(steps=steps, settings=f" ({settings})" if settings else "")
    scale = data.sections[0].scale
    return Table(
        words=("Row", "Seeds"),
        numbers=NUMBERS,
        blocks=tuple(blocks),
        caption=names.with_note(f"{caption}{notes.text}{remarks}", scale),
        label=f"tab:precision-{scale}",
        footnotes=notes.texts,
    )


def _not_shown(data: Collected, shown: Iterable[Row]) -> str:
    """Sentence on rows of ``--rows`` that are not shown, because they have no such measurement."""
    note = data.not_shown(run for row in shown for run in row.finished)
    return f" Note: {note}." if note else ""


def _block(data: Collected, part: Section, notes: names.Footnotes) -> Block:
    rows = [_line(data, row, part.aside(row), notes) for row in _measured(data, part)]
    return Block(f"Measured, {part.scale} scale, {names.setting(part)}", tuple(rows))


def _measured(data: Collected, part: Section) -> list[Row]:
    """Rows of a section with at least one finished run that measured where its credit falls."""
    rows = []
    for row in part.rows:
        # A method that credits no failed step has measured it, too, and has no precision.
        measured = (data.series(run, name) for run in row.finished for name in (CREDITED, SHARE))
        if any(series.values for series in measured):
            rows.append(row)
    return rows


def _line(
    data: Collected, row: Row, other_seeds: str, notes: names.Footnotes
) -> tuple[str | Number, ...]:
    """The row's label with its marks, its seeds, and its ``NUMBERS``."""
    by_run = [_of_run(data, run) for run in row.finished]
    summaries = {}
    for index, name in enumerate(NUMBERS):
        summaries[name] = summarise(numbers[index] for numbers in by_run)
    cells = []
    for name, summary in summaries.items():
        cells.append(percent(summary, sign=name == "Over chance"))
    remarks = (row.differs, other_seeds, fewer_seeds(summaries, len(row.finished)))
    marks = "".join(map(notes.mark, remarks))
    return (f"{row.label}{marks}", row.count, *cells)


def _of_run(data: Collected, run: str) -> tuple[float | None, ...]:
    """The numbers of one run in the order of ``NUMBERS``; None for those that it does not have."""
    precision = data.series(run, CREDITED).mean
    chance = data.series(run, CHANCE).mean
    share = data.series(run, SHARE).mean
    gain = None
    if precision is not None and chance is not None:
        gain = precision - chance
    return (precision, chance, gain, share)
