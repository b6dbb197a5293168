"""Precision of credit in training: how often a credited step shortens the shortest plan to win."""

from analysis import names
from analysis.rendering.table import Block, Number, Table, percent
from analysis.sources.collected import Collected, missing_runs
from analysis.sources.rows import Row, Section
from scpo.intervals import summarise

CREDITED, CHANCE, SHARE = "credit/precision", "credit/precision_random", "credit/share"
CAPTION = (
    "How often credit falls on a step that helps, one after which a shortest plan to win is "
    "shorter: precision, the share of credited failed steps that help; chance, that of all failed "
    "steps; recall, the share of helping steps that is credited; in percent, on samples of steps "
    "over the whole training, mean ± standard deviation over the finished seeds. Credited by SCPO: "
    "what the shaper credits; by other methods: steps with a positive step term of the advantage."
)


def build(data: Collected) -> Table:
    """The table of one scale; MissingRunsError if no run has measured where its credit falls."""
    blocks = []
    for part in data.sections:
        block = _block(data, part)
        if block.rows:
            blocks.append(block)

    if not blocks:
        needed = "finished run that measured where its credit falls"
        raise missing_runs(needed, data.sections)

    scale = data.sections[0].scale
    return Table(
        words=("Row", "Seeds"),
        numbers=("Precision", "Chance", "Over chance", "Recall", "Share credited"),
        blocks=tuple(blocks),
        caption=names.with_note(CAPTION, scale),
        label=f"tab:precision-{scale}",
    )


def _block(data: Collected, part: Section) -> Block:
    rows = []
    for row in part.rows:
        if any(data.series(run, CREDITED).values for run in row.finished):
            rows.append(_line(data, row))
    return Block(f"Measured, {part.scale} scale, {names.setting(part)}", tuple(rows))


def _line(data: Collected, row: Row) -> tuple[str | Number, ...]:
    precisions, chances, gains, recalls, shares = [], [], [], [], []
    for run in row.finished:
        precision = data.series(run, CREDITED).mean
        chance = data.series(run, CHANCE).mean
        share = data.series(run, SHARE).mean
        if precision is None or not chance:
            continue
        precisions.append(precision)
        chances.append(chance)
        gains.append(precision - chance)
        shares.append(share)
        if share is not None:
            # Of all failed steps, precision · share are credited and help, and chance help.
            recalls.append(precision * share / chance)

    return (
        row.label,
        row.count,
        percent(summarise(precisions)),
        percent(summarise(chances)),
        percent(summarise(gains), sign=True),
        percent(summarise(recalls)),
        percent(summarise(shares)),
    )
