"""Whether what is on disk is whole and agrees with itself."""

import itertools
from collections.abc import Iterable

from scpo.errors import RecordError, ScpoError
from scpo.tracking import JsonLines, RunFolder, State
from scpo.tracking.atomic import read_json
from sweeps.records import run_folders as store


def problems(folder: RunFolder) -> list[str]:
    """What is wrong with a run's records, each as one sentence; empty if nothing is."""
    found: list[str] = []
    for check in (store.check, _status_agrees_with_metrics, _timing, RunFolder.read_panels, _provenance):
        try:
            check(folder)
        except ScpoError as error:
            found.append(str(error))
    return found


def panel_conflicts(folders: Iterable[RunFolder]) -> list[str]:
    """Runs of one environment that were validated on different panels of one name: they may not share a table."""
    first: dict[tuple[str, str], tuple[str, str]] = {}
    found = []
    for folder in folders:
        try:
            settings = folder.read_config().env.model_dump_json()
            panels = folder.read_panels()
        except ScpoError:
            continue  # told by `problems`
        for name, panel in panels.items():
            run_id, sha256 = first.setdefault((settings, name), (folder.run_id, panel["sha256"]))
            if sha256 != panel["sha256"]:
                found.append(f"{folder.run_id}: panel {name} is not the one of {run_id}, whose settings are the same")
    return found


def _status_agrees_with_metrics(folder: RunFolder) -> None:
    status = folder.read_status()
    steps = [record["step"] for record in JsonLines(folder.metrics).records()]
    if any(after <= before for before, after in itertools.pairwise(steps)):
        raise RecordError(f"{folder.metrics}: steps do not ascend")
    last = steps[-1] if steps else 0
    if status.state is State.DONE and last != status.steps:
        raise RecordError(f"{folder.status} says DONE, but {folder.metrics} ends at step {last} of {status.steps}")
    kept = folder.complete_checkpoints()
    if kept and kept[-1] > last:
        raise RecordError(f"{folder.metrics} ends at step {last}, before checkpoint {kept[-1]}: lines were lost")


def _timing(folder: RunFolder) -> None:
    JsonLines(folder.timing).records()


def _provenance(folder: RunFolder) -> None:
    if folder.provenance.exists() and "attempts" not in read_json(folder.provenance):
        raise RecordError(f"{folder.provenance} is damaged: it has no attempts")
