"""The paper's printed numbers, from ``paper_figures/published/*.csv``."""

import csv
from pathlib import Path

from analysis.table import Number
from scpo.errors import RecordError

FOLDER = Path(__file__).resolve().parent.parent / "paper_figures" / "published"


def ablation(folder: Path = FOLDER) -> dict[tuple[str, str], Number]:
    """The ablation table: (row name, column) -> number."""
    return {
        (line["variant"], line["column"]): Number(line["mean"], line["std"]) for line in _lines(folder / "ablation.csv")
    }


def _lines(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))
    except OSError as error:
        raise RecordError(
            f"the published numbers are missing: {path.name} cannot be read ({error.strerror}). "
            "They are part of the repository: restore them with `git checkout -- paper_figures/published`."
        ) from error
