"""What the archive writes into other documents, between markers: the README's headline, REPRODUCTION.md's claims."""

from collections.abc import Iterator

from scpo.records import State

from analysis.answers.questions import headline, headlined
from analysis.paper.claims import ELSEWHERE, NOT_RUN, Claim, conclusion
from analysis.paper.paper_claims import claims
from analysis.rendering.table import difference
from analysis.sources.collect import Collected
from analysis.stats.comparisons import named_comparisons

BEGIN, END = "<!-- claims: written by `python -m analysis study` -->", "<!-- end of claims -->"
HEADLINE = "<!-- headline: written by `python -m analysis study` -->", "<!-- end of headline -->"
HEAD = "| claim (paper) | place | printed | command | paper scale | study scale |\n|---|---|---|---|---|---|\n"


def with_headline(text: str, data: Collected) -> str:
    """A document with the study's first answer written anew, between its markers; as it was if it has none.

    ``data``: of the scale of the study.
    """
    return _between(text, *HEADLINE, " ".join(_headline(data)))


def with_claims(text: str, data: Collected) -> str:
    """A document with its table of claims written anew, between the two markers; as it was if it has none.

    ``data``: of every scale. What is run elsewhere stands in ``tab_claims`` of those runs.
    """
    return _between(text, BEGIN, END, HEAD + "\n".join(_line(claim, data) for claim in claims()))


def _between(text: str, begin: str, end: str, written: str) -> str:
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    return f"{before}{begin}\n{written}\n{end}{after}" if found and closed else text


def _headline(data: Collected) -> Iterator[str]:
    """Two sentences: the page's headline, and what it rests on."""
    comparisons = named_comparisons(data)
    yield f"**[The laptop study](docs/study.md): {headline(comparisons)}**"
    records = [record for record in data.experiments if record.scale in data.scales]
    planned = {run.id for record in records for row in record.rows for run in row.runs}
    done = sum(data.by_id[run].state == State.DONE for run in planned if run in data.by_id)
    left = f" of {len(planned)} planned" if done < len(planned) else ""
    pairs = ", ".join(dict.fromkeys(one.pairs.count for one in headlined(comparisons)))
    paired = f", {pairs} pairs of seeds" if pairs else ""
    yield (
        f"{done}{left} runs of a small policy that chooses among listed commands{paired}: it says "
        f"nothing about the "
        "size of effects in language models."
    )


def _line(claim: Claim, data: Collected) -> str:
    command = claim.command(claim.cheapest_scale)
    said = (_said(claim, data, name) for name in ("paper", "study"))
    return f"| {claim.text} | {claim.place} | {claim.printed} | `{command}` | {' | '.join(said)} |"


def _said(claim: Claim, data: Collected, scale: str) -> str:
    part = data.at_scale(scale)
    if not claim.tested_at(scale):
        return ELSEWHERE
    found = claim.summary(part)
    said = conclusion(claim, found, scale)
    if said == NOT_RUN:
        return said
    return f"{said}: {difference(found, claim.factor, claim.digits).text}, {found.n} seeds"
