"""The rows of the main table and of the ablation: their names here, in the paper's tables, and their kind."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.rows import Row


@dataclass(frozen=True)
class Method:
    """One row of the main table; ``published`` is its name in ``paper_figures/published/main.csv``, if it is there."""

    label: str
    kind: str
    published: str | None


PROMPTING, TRAINED = "Prompting", "RL"
METHODS = {
    "gpt_4o": Method("GPT-4o", PROMPTING, "GPT-4o"),
    "gemini_2_5_pro": Method("Gemini-2.5-Pro", PROMPTING, "Gemini-2.5-Pro"),
    "plain": Method("Plain prompt", PROMPTING, "Qwen2.5"),
    "react": Method("ReAct", PROMPTING, "ReAct"),
    "reflexion": Method("Reflexion", PROMPTING, "Reflexion"),
    "ppo": Method("PPO", TRAINED, "PPO"),
    "rloo": Method("RLOO", TRAINED, "RLOO"),
    "grpo": Method("GRPO", TRAINED, "GRPO"),
    "dapo": Method("DAPO", TRAINED, None),
    "empg": Method("EMPG", TRAINED, "EMPG"),
    "gigpo": Method("GiGPO", TRAINED, "GiGPO"),
    "hcapo": Method("HCAPO", TRAINED, "HCAPO"),
    "hgpo": Method("HGPO", TRAINED, "HGPO"),
    "g2po": Method("G2PO", TRAINED, None),
    "scpo": Method("SCPO", TRAINED, "SCPO"),
}
CLOSED = ("GPT-4o", "Gemini-2.5-Pro")
SIZES = ("1.5B", "7B")

ABLATION = ("scpo", "chronological", "no_monotonicity", "shortest_reference")
CONTROLS = ("random_match", "uniform_bonus", "exact_scorer", "forward_matcher", "gigpo")


def compared(rows: Sequence[Row]) -> tuple[Row, ...]:
    """What a figure compares: the methods of the main table; where there is but one of them, its variants too.

    A section holds everything that may be compared, a sweep's values among it; those have a figure of their own.
    """
    methods = tuple(row for row in rows if row.name in METHODS)
    return methods if len(methods) > 1 else tuple(rows)
