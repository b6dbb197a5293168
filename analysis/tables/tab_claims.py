"""The paper's numbered claims with the verdict of one scale's runs on each."""

from collections.abc import Sequence
from dataclasses import replace

from analysis.names import benchmark, panel_label, with_note
from analysis.paper.claims import (
    FEWEST,
    FEWEST_VALIDATIONS,
    NOT_ARCHIVED,
    NOT_RECORDED,
    NOT_RUN,
    NOT_SELECTED,
    TOO_FEW,
    Claim,
)
from analysis.paper.findings import Finding, finding
from analysis.paper.paper_claims import claims
from analysis.rendering.table import NONE, Block, Cells, Table, difference
from analysis.sources.collected import Collected, missing_runs
from analysis.sources.rows import seed_list
from scpo.benchmarks import BENCHMARKS

WIDTHS = (0.28, 0.13, 0.1, 0.05, 0.11, 0.14)
CAPTION = (
    "The paper's numbered claims. “Measured”: mean over the seeds of “Runs”, differences paired by "
    "seed, with the 95 % Student interval, after the last training step unless the claim names "
    "another span; success is that on {panels}, the panel that decides at this scale. “Runs”: the "
    "claim's own experiment, or one that has all of its rows at the same settings (ablation, "
    "paper_runs), and the seeds that have the number; if several have run, the one with most seeds."
    "{others} Fewer than {fewest} seeds decide nothing. There is no interval if all seeds are "
    "equal, as a few seeds with coarse rates may be; the claim is then undecided. {reading}"
)
OTHER = " * Another experiment with its rows: none of the claim's own has a run here."

# Sentences on the reasons that a table has.
REASONS = {
    NOT_RUN: " Not run: no seed is finished in all rows that the claim is about, at one setting.",
    NOT_SELECTED: (
        " Not selected: the choice of experiments, benchmarks, rows or seeds leaves out the runs "
        "that decide on it, and runs of other experiments do not replace these."
    ),
    TOO_FEW: (
        f" Too few validations: a plateau is read off a curve of at least {FEWEST_VALIDATIONS}, "
        "and those of its runs have fewer."
    ),
    NOT_ARCHIVED: (
        " Not in the archive: its rows have run, and the test needs their step texts or probes, "
        "which are in run folders only."
    ),
    NOT_RECORDED: " Not recorded: its rows have run, and did not log what the test needs.",
}
AT_PAPER_SCALE = (
    "Agrees: the interval includes the printed number and not the null (no difference), or lies on "
    "the claimed side of both; disagrees: it includes the null and not the number, or lies on the "
    "other side; undecided: it includes both. A claim without a printed number is held against the "
    "null only, a level of success against the number only. The printed numbers' own spread over "
    "three seeds is not counted."
)
AT_OTHER_SCALES = (
    "At this scale the model is another one, so only the sign can be held against the paper: "
    "agrees or disagrees where the interval excludes the null, undecided where it includes it; – "
    "where a claim can be tested only with the paper's own model or machine."
)


def build(data: Collected) -> Table:
    """All claims at one scale; MissingRunsError if no run has finished."""
    if not any(row.finished for part in data.sections for row in part.rows):
        raise missing_runs("finished runs", data.sections, "main_table", "ablation")
    scale = data.scales[0]
    found = [(claim, finding(claim, data, scale)) for claim in claims()]
    lines = tuple(_line(claim, own) for claim, own in found)
    caption = _caption(data, scale, [own for _, own in found])
    return Table(
        words=("Claim", "Place", "Printed", "Seeds", "Conclusion", "Runs"),
        numbers=("Measured",),
        blocks=(Block(f"{scale} scale", lines),),
        caption=with_note(caption, scale),
        label=f"tab:claims-{scale}",
        widths=WIDTHS,
    )


def _caption(data: Collected, scale: str, found: Sequence[Finding]) -> str:
    """The caption, with a sentence on each reason for which a line has no number."""
    reading = AT_PAPER_SCALE if scale == "paper" else AT_OTHER_SCALES
    verdicts = {own.verdict for own in found}
    reading += "".join(text for reason, text in REASONS.items() if reason in verdicts)
    others = "" if all(own.is_own for own in found) else OTHER
    panels = _panels(data, scale)
    return CAPTION.format(panels=panels, others=others, fewest=FEWEST, reading=reading)


def _panels(data: Collected, scale: str) -> str:
    """Panels by which success is judged, with their benchmarks."""
    texts = []
    for env in dict.fromkeys(part.env for part in data.sections):
        texts.append(f"{benchmark(env)}’s {panel_label(BENCHMARKS[env].judged[scale])}")
    return " and ".join(texts)


def _line(claim: Claim, found: Finding) -> Cells:
    words = (claim.text, claim.place, claim.printed)
    if not found.summary.n:
        return (*words, "", found.verdict, "", NONE)
    runs = f"{found.experiment}{'' if found.is_own else '*'}, {seed_list(found.seeds)}"
    if found.setting:
        runs += f", {found.setting}"
    number = difference(found.summary, claim.factor, claim.digits)
    if found.summary.std == 0:
        number = replace(number, interval=None)
    return (*words, str(found.summary.n), found.verdict, runs, number)
