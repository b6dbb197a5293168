"""The rows of the main table and of the ablation: what each is called in print, and whether it was trained."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.rows import Row
from scpo.schema import AGENT_LABELS, METHOD_LABELS


@dataclass(frozen=True)
class Method:
    """One row of the main table; ``published`` is what ``paper_figures/published/main.csv`` calls it, if it has it."""

    label: str
    kind: str
    published: str


PROMPTING, TRAINED = "Prompting", "RL"
CLOSED_MODELS = {"gpt_4o": "GPT-4o", "gemini_2_5_pro": "Gemini-2.5-Pro"}
PRINTED_AS = {"plain": "Qwen2.5"}
"""What the paper's table calls a row where it does not call it as ours does."""

METHODS = {
    name: Method(label, PROMPTING if name in (*CLOSED_MODELS, *AGENT_LABELS) else TRAINED, PRINTED_AS.get(name, label))
    for name, label in (CLOSED_MODELS | METHOD_LABELS).items()
}
CLOSED = tuple(CLOSED_MODELS.values())
SIZES = ("1.5B", "7B")

ABLATION = ("scpo", "chronological", "no_monotonicity", "shortest_reference")
CONTROLS = ("random_match", "uniform_bonus", "exact_scorer", "forward_matcher", "gigpo")


def compared(rows: Sequence[Row]) -> tuple[Row, ...]:
    """What a figure compares: the methods of the main table; where there is but one of them, its variants too.

    A section holds everything that may be compared, a sweep's values among it; those have a figure of their own.
    """
    methods = tuple(row for row in rows if row.name in METHODS)
    return methods if len(methods) > 1 else tuple(rows)
