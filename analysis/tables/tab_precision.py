"""Precision of credit in training: how often a credited step shortens the shortest plan to win."""

from collections.abc import Iterable

from analysis import names
from analysis.rendering.table import Block, Number, Table, percent
from analysis.sources.collected import Collected, missing_runs
from analysis.sources.credit_settings import credit_of_rows
from analysis.sources.rows import Row, Section
from analysis.stats.seed_statistics import fewer_seeds
from scpo.intervals import summarise

CREDITED, CHANCE, SHARE = "credit/precision", "credit/precision_random", "credit/share"
NUMBERS = ("Precision", "Chance", "Over chance", "Share credited")
CAPTION = (
    "How often credit falls on a step that helps, one after which a shortest plan to win is "
    "shorter: precision, the share of credited failed steps that help; chance, that of all failed "
    "steps; over chance, their difference; in percent, on samples of steps. A seed's precision is "
    "its mean over the training steps with credited steps, chance and share credited over those "
    "with failed steps. Mean ± standard deviation over the finished seeds; a mark at a row names "
    "the numbers that not all of them have (no credited step has no precision). Credited by SCPO: "
    "what the shaper credits{settings}; by other methods: steps with a positive step term of the "
    "advantage."
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

    shown = [row for part in data.sections for row in _measured(data, part)]
    settings = credit_of_rows(shown, data.by_id)
    caption = CAPTION.format(settings=f" ({settings})" if settings else "")
    scale = data.sections[0].scale
    return Table(
        words=("Row", "Seeds"),
        numbers=NUMBERS,
        blocks=tuple(blocks),
        caption=names.with_note(f"{caption}{notes.text}{_not_shown(data, shown)}", scale),
        label=f"tab:precision-{scale}",
        footnotes=notes.texts,
    )


def _not_shown(data: Collected, shown: Iterable[Row]) -> str:
    """Sentence on chosen rows without such a measurement; their runs were read to find none."""
    note = data.not_shown(run for row in shown for run in row.finished)
    return f" Note: {note}." if note else ""


def _block(data: Collected, part: Section, notes: names.Footnotes) -> Block:
    rows = [_line(data, row, part.aside(row), notes) for row in _measured(data, part)]
    return Block(f"Measured, {part.scale} scale, {names.setting(part)}", tuple(rows))


def _measured(data: Collected, part: Section) -> list[Row]:
    """Rows of a section of which a run has measured where its credit falls."""
    rows = []
    for row in part.rows:
        if any(data.series(run, CREDITED).values for run in row.finished):
            rows.append(row)
    return rows


def _line(
    data: Collected, row: Row, other_seeds: str, notes: names.Footnotes
) -> tuple[str | Number, ...]:
    seeds = [_of_seed(data, run) for run in row.finished]
    summaries = dict(zip(NUMBERS, map(summarise, zip(*seeds, strict=True)), strict=True))
    marks = (row.differs, other_seeds, fewer_seeds(summaries, len(row.finished)))
    cells = []
    for name, summary in summaries.items():
        cells.append(percent(summary, sign=name == "Over chance"))
    return (f"{row.label}{''.join(map(notes.mark, marks))}", row.count, *cells)


def _of_seed(data: Collected, run: str) -> tuple[float | None, ...]:
    """The numbers of one run in the order of ``NUMBERS``; None for those that it does not have."""
    precision = data.series(run, CREDITED).mean
    chance = data.series(run, CHANCE).mean
    share = data.series(run, SHARE).mean
    gain = None
    if precision is not None and chance is not None:
        gain = precision - chance
    return (precision, chance, gain, share)
