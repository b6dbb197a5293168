"""What the study is asked, which comparisons answer it, and the sentences that their numbers make."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from analysis.sources.collect import Collected
from analysis.stats.comparisons import (
    ENOUGH,
    HIGHER,
    LOWER,
    NOT_RUN,
    OPEN,
    Comparison,
    compare,
    corrected,
    effect_text,
    label_of,
    primary,
)
from analysis.stats.measures import MEASURES

MEASURE = MEASURES["validation_area"]


@dataclass(frozen=True)
class Question:
    """A question, the comparisons (each the first row minus the second) that answer it, and what makes their runs."""

    text: str
    pairs: tuple[tuple[str, str], ...]
    experiment: str
    env: str = "alfworld"

    @property
    def command(self) -> str:
        """What runs its rows."""
        return f"python sweep.py +experiment={self.experiment} scale=study"


def _each(rows: Sequence[str], reference: str) -> tuple[tuple[str, str], ...]:
    return tuple((row, reference) for row in rows)


RIVALS = Question(
    "Is credit by exact states, which siblings share, worth more?",
    _each(("crbc", "graphgpo", "rewardflow", "gagpo"), "scpo"),
    "beyond",
)
QUESTIONS = (
    Question(
        "Does SCPO help over GiGPO, which it wraps, and with which scorer?",
        _each(("scpo", "scpo_lexical", "scpo_minilm"), "gigpo"),
        "main_table",
    ),
    Question("What does GiGPO add to GRPO?", (("gigpo", "grpo"),), "main_table"),
    Question(
        "Is it the order, the monotonicity, the longest reference?",
        tuple(("scpo", row) for row in ("chronological", "no_monotonicity", "shortest_reference")),
        "ablation",
    ),
    RIVALS,
    Question(
        "Is matched credit better than the same amount on random steps, or spread evenly?",
        tuple(("scpo", row) for row in ("random_match", "uniform_bonus")),
        "controls",
    ),
    Question("Algorithm 2, or the matcher of the paper's prose?", (("scpo", "forward_matcher"),), "controls"),
    Question(
        "Does it help to compare steps that are alone in their anchor group with all steps of their group?",
        (("scpo_group_step", "scpo"), ("gigpo_group_step", "gigpo"), ("scpo_group_step", "gigpo_group_step")),
        "singletons",
    ),
    Question(
        "How large may the credit be?", _each(("alpha_01", "alpha_025", "alpha_1", "alpha_2"), "scpo"), "sweep_alpha"
    ),
    Question(
        "Does it help more where there are few siblings?",
        (("scpo_4", "gigpo_4"), ("scpo", "gigpo"), ("scpo_16", "gigpo_16")),
        "group_size",
    ),
    Question(
        "Do references from earlier training steps help, where every sibling fails?",
        (("scpo_buffer", "scpo"), ("scpo_buffer_10", "scpo_buffer")),
        "reference_buffer",
    ),
    Question(
        "Does it help other hosts?",
        (("scpo_gigpo", "gigpo"), ("scpo_hgpo", "hgpo"), ("scpo_g2po", "g2po")),
        "hosts",
    ),
    Question(
        "Does the best of 100 searched settings help, on seeds that the search did not see?",
        (("searched", "gigpo"), ("searched", "scpo"), ("searched_4", "gigpo_4")),
        "search_winner",
    ),
    Question(
        "And on the games that ALFWorld released, instead of generated ones?",
        (
            ("scpo_official", "gigpo_official"),
            ("searched_official", "gigpo_official"),
            ("searched_official", "scpo_official"),
        ),
        "official_games",
    ),
    Question(
        "And on WebShop?",
        (
            *_each(("scpo", "scpo_lexical"), "gigpo"),
            ("gigpo", "grpo"),
            *(("scpo", row) for row in ("chronological", "no_monotonicity", "shortest_reference")),
            *(("scpo", row) for row in ("random_match", "uniform_bonus", "forward_matcher")),
        ),
        "webshop_study",
        "webshop",
    ),
)


def answers(data: Collected, question: Question) -> list[Comparison]:
    """Its comparisons that have two pairs of seeds or more.

    What an experiment named before its runs keeps the correction of its family; the others are corrected together.
    """
    families = reversed(primary(data).values())
    asked = (one for family in families for one in family if one.part.env == question.env)
    named = {(one.first.name, one.second.name): one for one in asked}
    rest = corrected([one for one in _compared(data, question) if (one.first.name, one.second.name) not in named])
    found = {(one.first.name, one.second.name): one for one in rest} | named
    return [found[pair] for pair in question.pairs if pair in found and found[pair].reading != NOT_RUN]


def _compared(data: Collected, question: Question) -> Iterator[Comparison]:
    for first, second in question.pairs:
        for part in data.sections:
            rows = part.row(first), part.row(second)
            if part.env == question.env and all(row.finished for row in rows):
                yield compare(data, part, *rows, MEASURE)
                break


def sentence(one: Comparison) -> str:
    """What a comparison says, by its corrected test."""
    first, second = label_of(one.first), label_of(one.second)
    shown = f"{effect_text(one)} {one.measure.difference_unit} of {one.measure.label}, {one.pairs} seeds"
    if one.reading == HIGHER:
        return f"**{first} is ahead of {second}**: {shown}."
    if one.reading == LOWER:
        return f"**{first} is behind {second}**: {shown}."
    return f"{first} and {second} are not told apart: {shown}; {_how_far(one)}."


def _how_far(one: Comparison) -> str:
    largest = one.measure.factor * max(map(abs, one.difference.interval()))
    if one.difference.n < ENOUGH:
        return f"too few seeds to say more than that it may be as large as {largest:.1f} {one.measure.difference_unit}"
    if seeds := one.seeds_needed:
        more = f"{seeds} seeds would find a difference as large as the observed one"
    else:
        more = "over a thousand seeds would find a difference as small as the observed one"
    return f"by this interval it is at most {largest:.1f} {one.measure.difference_unit}; {more}"


def headlined(data: Collected) -> list[Comparison]:
    """What the headline is made of: the first question's answers, and what tells a rival and SCPO apart."""
    resolved = [one for one in answers(data, RIVALS) if one.reading in (HIGHER, LOWER)]
    return [*answers(data, QUESTIONS[0]), *resolved]


def headline(found: Sequence[Comparison]) -> str:
    """The comparisons in a line: what is ahead, or how small the difference must be."""
    if not found:
        return "No pair of SCPO and GiGPO has finished yet."
    ahead = [one for one in found if one.reading == HIGHER]
    behind = [one for one in found if one.reading == LOWER]
    parts = [f"{label_of(one.first)} beats {label_of(one.second)} by {_size(one)}" for one in ahead]
    parts += [f"{label_of(one.second)} beats {label_of(one.first)} by {_size(one)}" for one in behind]
    parts += [
        f"{label_of(one.first)} and {label_of(one.second)} are not told apart ({effect_text(one)})"
        for one in found
        if one.reading == OPEN
    ]
    return "; ".join(parts) + "."


def _size(one: Comparison) -> str:
    low, high = sorted(one.measure.factor * abs(bound) for bound in one.difference.interval())
    mean = one.measure.factor * abs(one.difference.mean)
    return f"{mean:.1f} [{low:.1f}, {high:.1f}] {one.measure.difference_unit}"
