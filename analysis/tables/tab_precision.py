"""How often credit falls on a step that helps: of finished runs, and of each credit rule on recorded rollouts."""

import math
from collections.abc import Sequence
from itertools import groupby

from scpo.diagnostics.step_credit import Rate, StepCredit
from scpo.intervals import Summary, summarise

from analysis.credit_rules import Rule
from analysis.naming import names
from analysis.rendering.table import Block, Number, Table, percent
from analysis.sources.collect import Collected
from analysis.sources.rows import Row, Section, missing_runs

CREDITED, CHANCE, SHARE = "credit/precision", "credit/precision_random", "credit/share"
CAPTION = (
    "How often credit falls on a step that helps, one after which a shortest plan to win is "
    "shorter: precision, the share of credited failed steps that help; chance, that of all failed "
    "steps; recall, the share of helping steps that is credited; in percent, on samples of steps "
    "over the whole training, mean ± standard deviation over the finished seeds. Credited by "
    "SCPO: what the shaper credits; by other methods: steps with a positive step term of the "
    "advantage."
)
RECORDED = (
    "How often credit falls on a step that helps, one after which a shortest plan to win is "
    "shorter, on the same recorded rollouts for every rule: the {steps} failed steps of the "
    "{clusters} groups with a success and a failure. Precision: of credited steps, the share that "
    "helps; over chance: less the share of all steps that help, {chance}; recall: of steps that "
    "help, the share credited. Percent, with 95 % intervals of a bootstrap that draws whole "
    "groups (2,000 times, the same draws for every rule), for the steps of a group share a game "
    "and a reference. Step term: what of the advantage tells the steps of a trajectory apart, "
    "where it is positive. Raised: steps whose advantage on GiGPO is higher with the credit than "
    "without."
)


def build(data: Collected) -> Table:
    """The table of one scale; MissingRunsError if no run has measured where its credit falls."""
    blocks = [block for part in data.sections if (block := _block(data, part)).rows]
    if not blocks:
        raise missing_runs("finished run that measured where its credit falls", data.sections)
    scale = data.sections[0].scale
    return Table(
        words=("Row", "Seeds"),
        numbers=("Precision", "Chance", "Over chance", "Recall", "Share credited"),
        blocks=tuple(blocks),
        caption=names.with_note(CAPTION, scale),
        label=f"tab:precision-{scale}",
    )


def _block(data: Collected, part: Section) -> Block:
    rows = tuple(
        _row(data, row)
        for row in part.rows
        if any(data.series(run, CREDITED).values for run in row.finished)
    )
    return Block(f"Measured, {part.scale} scale, {names.setting(part)}", rows)


def _row(data: Collected, row: Row) -> tuple[str | Number, ...]:
    runs = [
        tuple(data.series(run, name).mean for name in (CREDITED, CHANCE, SHARE))
        for run in row.finished
    ]
    known = [(hit, chance, share) for hit, chance, share in runs if hit is not None and chance]
    precision, chance = (
        summarise(hit for hit, _, _ in known),
        summarise(chance for _, chance, _ in known),
    )
    gain = summarise(hit - chance for hit, chance, _ in known)
    recall = summarise(hit * share / chance for hit, chance, share in known if share is not None)
    share = summarise(share for _, _, share in known)
    cells: list[tuple[Summary, bool]] = [
        (precision, False),
        (chance, False),
        (gain, True),
        (recall, False),
        (share, False),
    ]
    return (row.label, row.count, *(percent(cell, sign=sign) for cell, sign in cells))


def recorded_table(chance: StepCredit, found: Sequence[tuple[Rule, StepCredit]]) -> Table:
    """The table of credit rules on recorded rollouts; ``chance``: of a rule that credits every step."""
    blocks = [
        Block(title, tuple(_rule_row(rule.label, fell) for rule, fell in rules))
        for title, rules in groupby(found, key=lambda one: one[0].block)
    ]
    said = RECORDED.format(
        steps=f"{chance.steps:,}",
        clusters=chance.clusters,
        chance=_interval(chance.precision).replace(" ", " % ", 1),
    )
    return Table(
        words=("Credit rule", "Credited", "Share credited", "Precision", "Over chance", "Recall"),
        numbers=(),
        blocks=tuple(blocks),
        caption=said,
        label="tab:precision-recorded",
    )


def _rule_row(label: str, found: StepCredit) -> tuple[str, ...]:
    share, precision, recall = map(_interval, (found.share, found.precision, found.recall))
    return (
        label,
        f"{found.credited:,}",
        share,
        precision,
        _interval(found.gain, sign=True),
        recall,
    )


def _interval(rate: Rate, *, sign: bool = False) -> str:
    if math.isnan(rate.value):
        return "–"
    plus = "+" if sign else ""
    low, high = (f"{100 * end:{plus}.1f}" for end in (rate.low, rate.high))
    return f"{100 * rate.value:{plus}.1f} [{low}, {high}]".replace("-", "−")
