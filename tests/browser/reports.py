"""Where the pages under test lie."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Reports:
    """Pages by name, and the ids of the ablation's runs: SCPO's seeds 0 and 1, then those without monotonicity."""

    paths: dict[str, Path]
    runs: list[str]
