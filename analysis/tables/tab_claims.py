"""The paper's numbered claims with what runs of one scale say of each: agrees, disagrees, undecided, not run."""

from scpo.intervals import Summary

from analysis.naming.names import with_note
from analysis.paper.claims import ELSEWHERE, NOT_RUN, Claim, conclusion
from analysis.paper.paper_claims import claims
from analysis.rendering.table import NONE, Block, Number, Table, difference
from analysis.sources.collect import Collected
from analysis.sources.rows import missing_runs

CAPTION = (
    "The paper's numbered claims. “Measured”: mean over seeds, differences paired by seed, with "
    "the 95 % Student interval{units}. {reading}"
)
WIDTHS = (0.35, 0.16, 0.14, 0.05, 0.11)
UNITS = ", after the last training step where nothing else is said"
READING = {
    True: "Agrees: the interval includes the printed number and not the null (no difference), or lies on the claimed "
    "side of both; disagrees: it includes the null and not the number, or lies on the other side; "
    "undecided: it includes both. The printed numbers' own spread over three seeds is not counted.",
    False: "At this scale the model is another one, so only the sign can be held against the paper: agrees or "
    "disagrees where the interval excludes the null, undecided where it includes it; – where only "
    "the paper's own model or machine can tell.",
}


def build(data: Collected) -> Table:
    """All claims at one scale; MissingRunsError if no run has finished."""
    if not any(row.finished for part in data.sections for row in part.rows):
        raise missing_runs("finished runs", data.sections, "main_table", "ablation")
    scale = data.scales[0]
    lines = [
        _line(claim, claim.summary(data) if claim.tested_at(scale) else None, scale)
        for claim in claims()
    ]
    return Table(
        words=("Claim", "Place", "Printed", "Seeds", "Conclusion"),
        numbers=("Measured",),
        blocks=(Block(f"{scale} scale", tuple(lines)),),
        caption=with_note(CAPTION.format(units=UNITS, reading=READING[scale == "paper"]), scale),
        label=f"tab:claims-{scale}",
        widths=WIDTHS,
    )


def _line(claim: Claim, found: Summary | None, scale: str) -> tuple[str | Number, ...]:
    if found is None:
        return (claim.text, claim.place, claim.printed, "", ELSEWHERE, NONE)
    seeds = str(found.n) if found.n else ""
    said = conclusion(claim, found, scale)
    shown = NONE if said == NOT_RUN else difference(found, claim.factor, claim.digits)
    return (claim.text, claim.place, claim.printed, seeds, said, shown)
