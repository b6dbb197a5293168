"""The paper's numbered claims with the verdict of one scale's runs on each."""

from dataclasses import replace

from analysis.names import benchmark, panel_label, with_note
from analysis.paper.claims import ELSEWHERE, FEWEST_VALIDATIONS, NOT_RUN, TOO_FEW, Claim, conclusion
from analysis.paper.paper_claims import claims
from analysis.rendering.table import NONE, Block, Cells, Table, difference
from analysis.sources.collected import Collected, missing_runs
from scpo.benchmarks import BENCHMARKS

WIDTHS = (0.35, 0.16, 0.14, 0.05, 0.11)
CAPTION = (
    "The paper's numbered claims. “Measured”: mean over the seeds of the claim's own experiment, "
    "differences paired by seed, with the 95 % Student interval, after the last training step "
    "unless the claim names another one; success is that on {panels}, the panel that decides at "
    "this scale. There is no interval if all seeds are equal, as a few seeds with coarse rates may "
    "be; the claim is then undecided. {reading}"
)
NOT_SELECTED = "not selected"
SELECTED = " Not selected: its rows have runs, which the choice of rows or experiments leaves out."
FEW_VALIDATIONS = (
    f" Too few validations: a plateau is read off a curve of at least {FEWEST_VALIDATIONS}, and "
    "those of its runs have fewer."
)
AT_PAPER_SCALE = (
    "Agrees: the interval includes the printed number and not the null (no difference), or lies on "
    "the claimed side of both; disagrees: it includes the null and not the number, or lies on the "
    "other side; undecided: it includes both. The printed numbers' own spread over three seeds is "
    "not counted."
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
    lines = tuple(_line(data, claim, scale) for claim in claims())
    reading = AT_PAPER_SCALE if scale == "paper" else AT_OTHER_SCALES
    if any(NOT_SELECTED in line for line in lines):
        reading += SELECTED
    if any(TOO_FEW in line for line in lines):
        reading += FEW_VALIDATIONS
    return Table(
        words=("Claim", "Place", "Printed", "Seeds", "Conclusion"),
        numbers=("Measured",),
        blocks=(Block(f"{scale} scale", lines),),
        caption=with_note(CAPTION.format(panels=_panels(data, scale), reading=reading), scale),
        label=f"tab:claims-{scale}",
        widths=WIDTHS,
    )


def _panels(data: Collected, scale: str) -> str:
    """Panels by which success is judged, with their benchmarks."""
    texts = []
    for env in dict.fromkeys(part.env for part in data.sections):
        texts.append(f"{benchmark(env)}’s {panel_label(BENCHMARKS[env].judged[scale])}")
    return " and ".join(texts)


def _line(data: Collected, claim: Claim, scale: str) -> Cells:
    words = (claim.text, claim.place, claim.printed)
    if not claim.tested_at(scale):
        return (*words, "", ELSEWHERE, NONE)
    measured = claim.summary(data)
    seeds = str(measured.n) if measured.n else ""
    verdict = conclusion(claim, measured, scale)
    if verdict == NOT_RUN:
        if claim.summary(_unselected(data, scale)).n:
            verdict = NOT_SELECTED
        elif claim.lacks_validations(data):
            verdict = TOO_FEW
        return (*words, seeds, verdict, NONE)
    number = difference(measured, claim.factor, claim.digits)
    if measured.std == 0:
        number = replace(number, interval=None)
    return (*words, seeds, verdict, number)


def _unselected(data: Collected, scale: str) -> Collected:
    """All rows of the scale, whichever the user chose; what is read of them is ``seen`` only."""
    parts = tuple(part for part in data.unselected if part.scale == scale)
    return replace(data.to_choose_from(), sections=parts)
