"""What runs say of the paper's claims: the verdict, the experiment that was measured, its seeds.

A claim is judged by the runs of its own experiment. Another experiment with the same rows has
other seeds or settings, so it counts only where none of the claim's own has run, and is named.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from analysis.paper.claims import (
    ELSEWHERE,
    NOT_ARCHIVED,
    NOT_RECORDED,
    NOT_RUN,
    NOT_SELECTED,
    TOO_FEW,
    Claim,
    OfRows,
    conclusion,
)
from analysis.sources.collected import Collected
from analysis.stats.seed_statistics import Values
from scpo.intervals import Summary, summarise


@dataclass(frozen=True)
class Finding:
    """What the runs of one scale say of a claim.

    Attributes:
        verdict: AGREES, DISAGREES or UNDECIDED, or why there is none.
        summary: Summary over the seeds.
        experiment: Experiment whose runs were measured; empty without any.
        seeds: Seeds with a number, ascending.
        is_own: False if the claim's own experiments have no runs, so that another one was measured.
        setting: What sets the runs of another experiment apart from the usual setting; empty if
            nothing does.
    """

    verdict: str
    summary: Summary
    experiment: str = ""
    seeds: tuple[int, ...] = ()
    is_own: bool = True
    setting: str = ""


def finding(claim: Claim, data: Collected, scale: str) -> Finding:
    """What the chosen runs of one scale say of a claim.

    Runs that the user did not choose decide nothing, but the reason why there is no verdict
    depends on them.

    Args:
        claim: The claim.
        data: Data of the scale.
        scale: The scale.
    """
    if not claim.tested_at(scale):
        return Finding(ELSEWHERE, summarise(()))
    every = _unselected(data, scale)
    chosen = measured(claim, data.to_choose_from())
    whole = measured(claim, every)
    # Runs of another experiment do not replace those of its own, which were not chosen.
    if chosen.summary.n and (chosen.is_own or not whole.is_own):
        # Measured again, so that only these runs are noted as the sources.
        found = measured(claim, data)
        return replace(found, verdict=conclusion(claim, found.summary, scale))
    if whole.summary.n:
        reason = NOT_SELECTED
    elif claim.lacks_validations(every):
        reason = TOO_FEW
    else:
        reason = _without_number(claim, every)
        # The rows have run, and none of these runs was chosen.
        if reason != NOT_RUN and _without_number(claim, data.to_choose_from()) == NOT_RUN:
            reason = NOT_SELECTED
    return Finding(reason, summarise(()))


def measured(claim: Claim, data: Collected) -> Finding:
    """The claim's numbers in its own experiment, without a verdict.

    Of its own experiments and their sections, the one with the most seeds is measured. Only if none
    of them has a number, another experiment is.
    """
    scale = data.scales[0] if data.scales else ""
    own = claim.own_experiments(scale)
    others: dict[str, None] = {}
    for part in data.sections:
        for family in part.families:
            if family.experiment not in own:
                others[family.experiment] = None
    for names, is_own in ((own, True), (tuple(others), False)):
        best = _with_most_seeds(claim, data, names)
        if best is not None:
            experiment, number = best
            restricted = _of_experiment(data, experiment)
            # Once more, so that only the runs of this section are noted as sources.
            values = _known(claim.values(restricted, restricted.sections[number]))
            summary = summarise(values.values())
            setting = "" if is_own else restricted.sections[number].differs_alone
            return Finding("", summary, experiment, tuple(sorted(values)), is_own, setting)
    return Finding(NOT_RUN, summarise(()))


def _with_most_seeds(
    claim: Claim, data: Collected, experiments: Iterable[str]
) -> tuple[str, int] | None:
    """The first experiment, and place among its sections, with the most seeds; None without any."""
    best: tuple[str, int] | None = None
    most = 0
    for experiment in experiments:
        candidates = _of_experiment(data.to_choose_from(), experiment)
        for number, part in enumerate(candidates.sections):
            if claim.is_about(part):
                seeds = len(_known(claim.values(candidates, part)))
                if seeds > most:
                    best, most = (experiment, number), seeds
    return best


def _known(values: Values) -> dict[int, float]:
    return {seed: value for seed, value in values.items() if value is not None}


def _of_experiment(data: Collected, experiment: str) -> Collected:
    """The data with the rows of one experiment, on the seeds that it plans.

    If the user chose common seeds, only those that its section shows are kept.
    """
    parts = []
    for part in data.sections:
        shown = {seed for row in part.rows for seed in row.seeds}
        for family in part.families:
            if family.experiment != experiment:
                continue
            rows = []
            for row in family.runs:
                runs = row.runs
                if data.common_seeds:
                    runs = tuple(run for run in runs if run.seed in shown)
                if row.name in family.rows:
                    rows.append(replace(row, runs=runs))
            parts.append(replace(part, rows=tuple(rows), families=(family,)))
    return replace(data, sections=tuple(parts))


def _unselected(data: Collected, scale: str) -> Collected:
    """All rows of the scale, whichever the user chose; what is read of them is ``seen`` only."""
    parts = tuple(part for part in data.unselected or data.sections if part.scale == scale)
    return replace(data.to_choose_from(), sections=parts, common_seeds=False)


def _without_number(claim: Claim, data: Collected) -> str:
    """Why no run has the claim's number: its rows have not run, or did not record it."""
    if not isinstance(claim.values, OfRows):
        return NOT_RUN
    runs: set[str] = set()
    for part in data.sections:
        for family in part.families if claim.is_about(part) else ():
            runs |= claim.values.ran(data, replace(part, rows=family.runs))
    if not runs:
        return NOT_RUN
    if claim.of_samples and not any(data.by_id[run].has_samples for run in runs):
        return NOT_ARCHIVED
    return NOT_RECORDED
