"""Faults of a search: finished runs that a new search reads, its journal, and folders that changed names.

Judged by its trials: each is complete with the same value, or failed with a reason that names a run.
"""

import contextlib
import shutil
import traceback
from functools import cache
from pathlib import Path
from typing import Any

from scpo.errors import RecordError, ScpoError
from scpo.records import RunFolder, State
from sweeps.launchers.run_process import Outcome
from sweeps.records import attempt
from sweeps.search import driver
from sweeps.search.plan import Plan
from sweeps.search.space import key_of_params
from tests.faults import fake_objective
from tests.faults.campaign.place import Found, Place, damage_one, records
from tests.faults.campaign.readers import Verdict
from tests.faults.campaign.samples import change_any
from tests.support.searches import InstantLauncher, drive, plan_in

SMALL = ("search.trials=3", "search.parallel=1", "trainer.steps=2", "seeds=[0,1]", "search.pruner=null")


class Trains(InstantLauncher):
    """Runs the fake objective in this process as train.py would, with records and checksums as real."""

    def _run(self, folder: Any, _config: Any) -> None:
        self.started.append(folder.run_id)
        code = attempt.run(folder, fake_objective.train)
        self._ended[folder.run_id] = Outcome(State.DONE if code == 0 else State.FAILED, f"exit status {code}")


def make(top: Path) -> None:
    """A finished search."""
    driver.LEAST_POLL_S = 0.0
    attempt.stop_signals_go_to = lambda _handler: contextlib.nullcontext()  # a thread may set no signal handler
    trials = _search(_plan(top / "searches" / "runs"))
    if [trial.state.name for trial in trials] != ["COMPLETE"] * 3:
        raise SystemExit(f"the undisturbed search failed: {trials}")


def _plan(runs: Path) -> Plan:
    return plan_in(runs, *SMALL)


def _search(plan: Plan, launcher: Any = None) -> list[Any]:
    return list(drive(plan, launcher or Trains())[0])


def damaged_finished_runs(place: Place) -> Found:
    """A new search over finished runs: one is damaged or has other metrics, or two have changed names."""
    runs = Path(shutil.copytree(place.top / "searches" / "runs", place.folder / "runs"))
    shutil.rmtree(runs / "searches")
    folders = sorted(path.parent for path in runs.glob("*/config.yaml"))
    kind = place.chance.random()
    if kind < 0.2:
        first, second = place.chance.sample(folders, 2)
        first.rename(runs / "between")
        second.rename(first)
        (runs / "between").rename(second)
        what = f"{first.name} and {second.name} swapped"
    elif kind < 0.5:
        what = change_any(place.chance, RunFolder(place.chance.choice(folders)))
    else:
        what = damage_one(place.chance, records(place.chance.choice(folders)))
    return _judged(place, runs, what)


def damaged_journal(place: Place) -> Found:
    """The journal of a finished search, damaged: the same trials, or it is named."""
    runs = Path(shutil.copytree(place.top / "searches" / "runs", place.folder / "runs"))
    what = damage_one(place.chance, records(runs / "searches"))
    return _judged(place, runs, what)


@cache
def _truth(runs: Path) -> dict[str, float]:
    return {key_of_params(trial.params): trial.value for trial in _search(_plan(runs))}


def _judged(place: Place, runs: Path, what: str) -> Found:
    truth = _truth(place.top / "searches" / "runs")
    try:
        trials = _search(_plan(runs))
    except RecordError as error:
        return (Verdict.NAMED if str(runs) in str(error) else Verdict.LOST), f"{what}: {error}"
    except ScpoError as error:
        return Verdict.LOST, f"{what}: {type(error).__name__}: {error}"
    except Exception:  # noqa: BLE001 (this is what is counted)
        return Verdict.TRACEBACK, f"{what}: {traceback.format_exc(limit=-6)}"
    complete = {key_of_params(trial.params): trial.value for trial in trials if trial.state.name == "COMPLETE"}
    if any(truth.get(key) != value for key, value in complete.items()):
        return Verdict.SILENT, f"{what}: {complete} instead of {truth}"
    reasons = [str(trial.user_attrs.get("reason", "")) for trial in trials if trial.state.name != "COMPLETE"]
    if not all(reasons):
        return Verdict.LOST, f"{what}: a trial failed without a reason"
    return (Verdict.NAMED if reasons else Verdict.EQUAL), f"{what}: {reasons}"


KINDS = {
    "search, finished runs": (6, damaged_finished_runs),
    "search, records": (3, damaged_journal),
}
