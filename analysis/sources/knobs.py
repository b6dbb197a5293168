"""Rows that differ in one setting of the shaper only, such as the match threshold."""

from collections.abc import Mapping
from typing import Any

from analysis.sources.configurations import same_games
from analysis.sources.rows import DEFAULT, Row, Section
from analysis.sources.run_records import Run
from analysis.sources.settings import differ_only_in


def rows_of_knob(part: Section, knob: str, runs: Mapping[str, Run]) -> dict[float, Row]:
    """Finished rows whose runs are equal apart from one knob, by its value in ascending order.

    These are the rows that may be compared as values of the knob: a row that changes another
    setting, too, such as the scorer or the learning rate, is left out.

    Args:
        part: The section with the rows.
        knob: Key of the shaper, e.g. ``theta``.
        runs: Every run by its id.

    Returns:
        The default and the rows that differ from it in the knob only; among rows of one value the
        default is kept. Without a finished default, the largest set of rows that differ from each
        other in the knob only. Empty if no row has a shaper.
    """
    rows = [row for row in part.rows if row.finished and _has(knob, _first(row, runs))]
    has_default = bool(part.row(DEFAULT).finished)
    references = [row for row in rows if row.name == DEFAULT or not has_default]
    largest: dict[float, Row] = {}
    for reference in references:
        own = _first(reference, runs)
        found: dict[float, Row] = {}
        for row in rows:
            if _equal_but_for(knob, _first(row, runs), own):
                found[_value(knob, _first(row, runs))] = row
        found[_value(knob, own)] = reference
        if len(found) > len(largest):
            largest = found
    return dict(sorted(largest.items()))


def _first(row: Row, runs: Mapping[str, Run]) -> Run:
    return runs[row.finished[0]]


def _has(knob: str, run: Run) -> bool:
    return not run.foreign and knob in _shaper(run)


def _value(knob: str, run: Run) -> float:
    return float(_shaper(run)[knob])


def _shaper(run: Run) -> Mapping[str, Any]:
    return run.config.get("method", {}).get("shaper") or {}


def _equal_but_for(knob: str, run: Run, other: Run) -> bool:
    same = differ_only_in(f"method.shaper.{knob}", run.config, other.config)
    return same and same_games(run.panels, other.panels)
