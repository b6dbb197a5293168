"""The rows of the main table and of the ablation: what each is called in print, and whether it was trained."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from scpo.schema import AGENT_LABELS, METHOD_LABELS

from analysis.sources.rows import DEFAULT, Row


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
    name: Method(
        label,
        PROMPTING if name in (*CLOSED_MODELS, *AGENT_LABELS) else TRAINED,
        PRINTED_AS.get(name, label),
    )
    for name, label in (CLOSED_MODELS | METHOD_LABELS).items()
}
CLOSED = tuple(CLOSED_MODELS.values())
SIZES = ("1.5B", "7B")

ABLATION = (DEFAULT, "chronological", "no_monotonicity", "shortest_reference")
CONTROLS = ("random_match", "uniform_bonus", "exact_scorer", "forward_matcher", "gigpo")


def is_method(row: Row) -> bool:
    """Whether a row is a method as it is, known here or not; else it is a variant of one, for tables of its own."""
    return row.name in METHODS or row.name == row.method


def method_of(row: Row) -> Method:
    """What is known of a row that is a method; of an unknown one its label."""
    return METHODS.get(row.name) or Method(row.label, TRAINED, row.label)


def in_order(rows: Iterable[Row]) -> list[str]:
    """Names of the rows that are methods, each once: in the order of tables, what is unknown before SCPO, it last."""
    names = dict.fromkeys(row.name for row in rows if is_method(row))
    known = [name for name in METHODS if name in names and name != DEFAULT]
    unknown = sorted(name for name in names if name not in METHODS)
    return [*known, *unknown, *(name for name in names if name == DEFAULT)]


def compared(rows: Sequence[Row], chosen: Sequence[str] = ()) -> tuple[Row, ...]:
    """Rows that a figure compares: those that the user chose, else the methods; a single method with its variants.

    A section holds every row that may be compared, the values of a sweep among them; those have
    their own figure.
    """
    methods = {row.name: replace(row, label=method_of(row).label) for row in rows if is_method(row)}
    if chosen:
        by_name = {row.name: methods.get(row.name, row) for row in rows}
        return tuple(by_name[name] for name in chosen if name in by_name)
    if len(methods) > 1:
        return tuple(methods[name] for name in in_order(methods.values()))
    return tuple(rows)


def left_out(rows: Sequence[Row], drawn: Iterable[Row]) -> str:
    """A sentence that names the rows which are not drawn; empty if all are."""
    shown = {row.name for row in drawn}
    rest = (row for row in rows if row.name not in shown)
    names = list(
        dict.fromkeys(METHODS[row.name].label if row.name in METHODS else row.label for row in rest)
    )
    if not names:
        return ""
    few = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return f" Not drawn here: {few}."
