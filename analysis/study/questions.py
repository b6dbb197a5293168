"""The study's questions, the named comparisons that answer them, and their sentences."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from analysis.names import benchmark
from analysis.sources.collected import Collected
from analysis.stats.comparisons import (
    FEWEST,
    HIGHER,
    LOWER,
    NOT_RUN,
    Comparison,
    Effect,
    named_comparisons,
)
from analysis.stats.study_rows import MAIN, reported
from scpo.intervals import bound_texts, decimal
from scpo.progress import counted

QUESTIONS = {
    MAIN: "Does SCPO help over GiGPO, which it wraps, and GiGPO over GRPO?",
    "ablation": "Is it the order, the monotonicity, the longest reference?",
    "credit_placement": "Does SCPO help where its credit is placed otherwise?",
    "beyond": "Is credit by exact states, which siblings share, worth more?",
    "graph_controls": "Is it the credit, or the key by which states are compared?",
    "controls": "Is matched credit better than credit on other steps, or by the prose's matcher?",
    "ablation_scorer": "Which scorer?",
    "singletons": (
        "Does it help to compare steps that are alone in their anchor group with all steps?"
    ),
    "group_size": "Does it help more where there are few siblings?",
    "reference_buffer": "Do references from earlier steps help where every sibling fails?",
    "hosts": "Does it help other hosts?",
    "further_methods": "Does HGPO lack an outcome term, or a longer context?",
    "official_games": "And on the games that ALFWorld released, instead of generated ones?",
    "webshop_study": "And on WebShop?",
}
"""Experiment -> question, in the order of the page; other experiments get their title."""


@dataclass(frozen=True)
class Answer:
    """A question, with the comparisons that are first named by its experiment."""

    experiment: str
    question: str
    comparisons: tuple[Comparison, ...]

    @property
    def command(self) -> str:
        """Command that runs its experiment."""
        return f"python sweep.py +experiment={self.experiment} scale=study"

    @property
    def finished(self) -> tuple[Comparison, ...]:
        """Comparisons with at least two pairs."""
        return tuple(comparison for comparison in self.comparisons if comparison.finished)


def answers(data: Collected) -> list[Answer]:
    """All questions of ``QUESTIONS`` and of the archive's experiments; each comparison once."""
    titles = {record.experiment: record.title for record in reported(data) if record.primary}
    by_experiment: dict[str, list[Comparison]] = {name: [] for name in (*QUESTIONS, *titles)}
    repeated: set[str] = set()
    for comparison in named_comparisons(data):
        by_experiment[comparison.experiments[0]].append(comparison)
        repeated.update(comparison.experiments[1:])
    results = []
    for experiment, comparisons in by_experiment.items():
        if not comparisons and (experiment in repeated or experiment not in QUESTIONS):
            # Its comparisons are all listed under other questions.
            continue
        question = QUESTIONS.get(experiment, titles.get(experiment, experiment))
        results.append(Answer(experiment, question, tuple(comparisons)))
    return results


def sentence(comparison: Comparison) -> str:
    """A comparison in words: its named measure, then the questions of faster and better."""
    first = comparison.first.title
    second = comparison.second.title
    effect = comparison.effect
    label = effect.measure.label
    numbers = f"{effect_text(effect)}, {p_text(effect)}, {comparison.pairs.count} pairs"
    if effect.verdict == HIGHER:
        lead = f"**{first} has a larger {label} than {second}**{comparison.rates}: {numbers}"
    elif effect.verdict == LOWER:
        lead = f"**{first} has a smaller {label} than {second}**{comparison.rates}: {numbers}"
    else:
        lead = (
            f"{comparison.name}{comparison.rates}: no difference in {label} is shown, "
            f"{numbers}{_limits(effect)}"
        )
    parts = [
        f"{lead}.",
        f"Faster: {_faster(comparison)}.",
        f"Better at the end: {_better(comparison.better)}.",
    ]
    if comparison.pairs.remark:
        parts.append(f"Of the pairs: {comparison.pairs.remark}.")
    return " ".join(parts)


def effect_text(effect: Effect) -> str:
    """Difference, unit and 95 % interval, e.g. ``+0.5 points [−0.9, 1.9]``."""
    measure = effect.measure
    difference = effect.difference
    if difference.n == 0:
        return "–"
    text = f"{_number(effect, difference.mean, sign=True)} {measure.difference_unit}"
    if difference.n > 1:
        interval = bound_texts(difference.interval(), measure.factor, measure.digits)
        text += f" [{', '.join(interval)}]"
    return text


def p_text(effect: Effect) -> str:
    """The corrected p-value; with the number of tests if interval and verdict differ."""
    # NaN with one pair, or if all pairs have the same difference.
    if math.isnan(effect.corrected):
        return "not tested"
    # With two digits, 0.052 would read as 0.05.
    digits = 2 if effect.corrected >= 0.1 else 3
    value = "p < 0.001" if effect.corrected < 0.001 else f"p = {effect.corrected:.{digits}f}"
    if effect.difference.n < FEWEST:
        return f"too few pairs to decide; corrected for {effect.tests} comparisons, {value}"
    if effect.only_uncorrected:
        return f"the interval alone excludes 0; corrected for {effect.tests} comparisons, {value}"
    return value


def _limits(effect: Effect) -> str:
    """Text on the smallest difference that the pairs would detect; empty if unknown."""
    smallest = effect.smallest
    if not math.isfinite(smallest):
        return ""
    shown = f"{_number(effect, smallest)} {effect.measure.difference_unit}"
    return f"; one such test, uncorrected, finds {shown} or more with 80 % power"


def _faster(comparison: Comparison) -> str:
    effect = comparison.faster
    if effect.verdict == NOT_RUN:
        return "not measured"
    if not comparison.reached:
        # Each counts with its last step, so the difference of 0 compares no speeds.
        return "not compared, no run reaches 50 %"
    words = {1: "**yes**", -1: "**no, slower**", 0: "not shown"}
    return f"{words[effect.favours]}, {effect_text(effect)} to 50 %, {p_text(effect)}"


def _better(effect: Effect) -> str:
    if effect.verdict == NOT_RUN:
        return "not measured"
    words = {1: "**yes**", -1: "**no, worse**", 0: "not shown"}
    return f"{words[effect.favours]}, {effect_text(effect)}, {p_text(effect)}"


def _number(effect: Effect, value: float, *, sign: bool = False) -> str:
    return decimal(effect.measure.factor * value, effect.measure.digits, sign=sign)


def headlined(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The first comparison of SCPO with GiGPO, and the largest resolved one of SCPO with others.

    Both are about SCPO, because the study's question is about SCPO; larger differences between two
    other methods would hide the answer.
    """
    chosen: list[Comparison] = []
    resolved: list[Comparison] = []
    for comparison in comparisons:
        if not comparison.finished:
            continue
        is_main = comparison.first.called("scpo") and comparison.second.called("gigpo")
        if is_main and not chosen:
            chosen.append(comparison)
        elif comparison.effect.resolved and _is_of_scpo(comparison):
            resolved.append(comparison)
    # By absolute size, the largest first.
    resolved.sort(key=lambda comparison: -abs(comparison.effect.difference.mean))
    return [*chosen, *resolved[:1]]


def _is_of_scpo(comparison: Comparison) -> bool:
    return comparison.first.called("scpo") or comparison.second.called("scpo")


def headline(comparisons: Sequence[Comparison]) -> str:
    """The headlined ones of all comparisons of the study, in one sentence."""
    parts = [_short(comparison) for comparison in headlined(comparisons)]
    if not parts:
        return without_headline(comparisons)
    return "; ".join(parts) + "."


def without_headline(comparisons: Sequence[Comparison]) -> str:
    """What there is instead of headlined comparisons, in one sentence."""
    if not comparisons:
        return "No comparison was named before the runs (primary: in the file of an experiment)."
    finished = sum(comparison.finished for comparison in comparisons)
    if not finished:
        return "No comparison that was named before the runs has two finished pairs yet."
    return (
        f"{counted(finished, 'comparison')} named before the runs: none is SCPO − GiGPO, and none "
        "of SCPO with another row is resolved."
    )


def _short(comparison: Comparison) -> str:
    effect = comparison.effect
    shown = f"{effect_text(effect)} of {effect.measure.label}"
    if effect.only_uncorrected:
        verdict = f"not resolved after correction for {effect.tests} comparisons"
    else:
        verdict = "resolved" if effect.resolved else "not resolved"
    where = f" on {benchmark(comparison.first.env)}"
    return f"{comparison.name}{where}{comparison.rates} is {shown} ({verdict})"
