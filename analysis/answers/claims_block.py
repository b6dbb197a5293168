"""The table of the paper's claims in REPRODUCTION.md: each with its command, and what the archive's runs say of it."""

from analysis.claims import ELSEWHERE, NOT_RUN, Claim, verdict
from analysis.paper_claims import claims
from analysis.sources.collect import Collected
from analysis.table import difference

BEGIN, END = "<!-- claims: written by `python -m analysis study` -->", "<!-- end of claims -->"
HEAD = "| claim (paper) | place | printed | command | paper scale | study scale |\n|---|---|---|---|---|---|\n"


def with_claims(text: str, data: Collected) -> str:
    """A document with its table of claims written anew, between the two markers; as it was if it has none.

    ``data``: of every scale. What is run elsewhere stands in ``tab_claims`` of those runs.
    """
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        return text
    lines = "\n".join(_line(claim, data) for claim in claims())
    return f"{before}{BEGIN}\n{HEAD}{lines}\n{END}{after}"


def _line(claim: Claim, data: Collected) -> str:
    scale = "study" if claim.tested_at("study") and claim.env == "alfworld" else "paper"
    said = (_said(claim, data, name) for name in ("paper", "study"))
    return f"| {claim.text} | {claim.place} | {claim.printed} | `{claim.command(scale)}` | {' | '.join(said)} |"


def _said(claim: Claim, data: Collected, scale: str) -> str:
    part = data.at_scale(scale)
    if not claim.tested_at(scale):
        return ELSEWHERE
    found = claim.summary(part)
    said = verdict(claim, found, scale)
    if said == NOT_RUN:
        return said
    return f"{said}: {difference(found, claim.factor, claim.digits).text}, {found.n} seeds"
