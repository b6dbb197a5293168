"""The paper's printed numbers, from ``paper_figures/published/*.csv``."""

import csv
from dataclasses import dataclass
from pathlib import Path

from analysis.rendering.table import Number
from scpo.errors import RecordError

FOLDER = Path(__file__).resolve().parents[2] / "paper_figures" / "published"


def ablation() -> dict[tuple[str, str], Number]:
    """The ablation table: (row name, column) -> number."""
    return {
        (line["variant"], line["column"]): Number(line["mean"], line["std"])
        for line in _lines("ablation.csv")
    }


@dataclass(frozen=True)
class Printed:
    """One printed number; ``quoted`` if the paper took it from another paper."""

    number: Number
    quoted: bool


def main_table() -> dict[tuple[str, str, str, str], Printed]:
    """The main table: (size, method, environment, column) -> number."""
    numbers = {}
    for line in _lines("main.csv"):
        key = (line["size"], line["method"], line["env"], line["column"])
        number = Number(line["mean"], line["std"])
        numbers[key] = Printed(number, quoted=line["quoted"] == "yes")
    return numbers


def cost() -> dict[tuple[str, str, str], str]:
    """Cost of the shaper on ALFWorld at 1.5B: (method, quantity, statistic) -> number."""
    numbers = {}
    for line in _lines("cost.csv"):
        if line["size"] == "1.5B" and line["env"] == "ALFWorld":
            numbers[line["method"], line["column"], line["statistic"]] = line["mean"]
    return numbers


def credit() -> dict[tuple[str, str, str], float]:
    """Credit and distances on ALFWorld at 1.5B: (variant, quantity, statistic) -> number."""
    return {
        (line["variant"], line["column"], line["statistic"]): float(line["mean"])
        for line in _lines("credit.csv")
    }


def _lines(name: str) -> list[dict[str, str]]:
    path = FOLDER / name
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise RecordError(
            f"the published numbers are missing: {path.name} cannot be read ({error.strerror}). "
            "They are part of the repository: restore them with `git checkout -- "
            "paper_figures/published`."
        ) from error
