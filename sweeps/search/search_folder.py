"""What a search leaves in its folder: the plan, and from it and the trials the summary, the winner and the plots."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from scpo.errors import RecordError
from scpo.schema import Search
from scpo.tracking.atomic import read_json, write_json
from sweeps.compose.overrides import parse_all
from sweeps.search.plan import SEARCHES, Plan
from sweeps.search.plots import write_plots
from sweeps.search.results import default_result, ranked
from sweeps.search.summary import write_summary
from sweeps.search.winner import write_winner

if TYPE_CHECKING:
    from optuna.trial import FrozenTrial

PLAN = "search.json"


def write_plan(plan: Plan) -> None:
    """Keep what the search is, so that a summary can be made from the folder alone."""
    words = [override.text for override in plan.overrides]
    record = {"scale": plan.scale, "words": words, "search": plan.search.model_dump(mode="json")}
    write_json(plan.folder / PLAN, record)


def read_plan(folder: Path) -> Plan:
    """The plan of a search's folder; RecordError if there is none."""
    record = read_json(folder / PLAN, "Start the search again: it writes the file anew")
    try:
        return Plan(Search.model_validate(record["search"]), record["scale"], parse_all(record["words"]))
    except (ValidationError, LookupError, TypeError) as error:
        raise RecordError(f"{folder / PLAN} describes no search: {error}") from error


def search_folders(runs_dir: Path) -> list[Path]:
    """The folders of all searches, by name."""
    return sorted(path.parent for path in (runs_dir / SEARCHES).glob(f"*/{PLAN}"))


def write_results(plan: Plan, trials: "Sequence[FrozenTrial]") -> list[Path]:
    """Write summary, winner and plots into the search's folder; returns the files."""
    results = ranked(trials)
    files = [write_winner(plan, results[0], default_result(plan, results))] if results else []
    plots = write_plots(plan, trials)
    return [write_summary(plan, trials, plots), *files, *plots]
