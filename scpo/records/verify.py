"""Verify that a run's records are complete and consistent."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from scpo.errors import RecordError, ScpoError
from scpo.records import run_folders
from scpo.records.files import RUN_AGAIN, change, read_record
from scpo.records.logs import read_whole
from scpo.records.run_folders import CHECKPOINT_MARKER, CheckpointMarker, RunFolder
from scpo.schema import RunConfig


def problems(folder: RunFolder) -> list[str]:
    """What is wrong with a run's records, each as one sentence; empty if nothing is."""
    found: list[str] = []
    config: RunConfig | None = None
    try:
        config = run_folders.check(folder)
    except ScpoError as error:
        found.append(str(error))
    every = config is not None and config.trainer.name == "local" and config.method.kind != "prompted"
    logs: Callable[[RunFolder], Any] = partial(_logs, every=every)
    for check in (logs, _checkpoints, _samples, RunFolder.read_stop, RunFolder.read_panels, RunFolder.read_attempts):
        try:
            check(folder)
        except ScpoError as error:
            found.append(str(error))
    return list(dict.fromkeys(found))  # a status that cannot be read is missed by several


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


def _logs(folder: RunFolder, *, every: bool) -> None:
    """Lines that were lost, added or changed; and of a trainer that logs ``every`` step, gaps between them."""
    steps = [record["step"] for record in read_whole(folder, folder.metrics)]
    read_whole(folder, folder.timing)
    kept = folder.complete_checkpoints()
    last = steps[-1] if steps else 0
    if kept and kept[-1] > last:
        raise RecordError(f"{folder.metrics} ends at step {last}, before checkpoint {kept[-1]}: lines were lost")
    if every and steps != list(range(len(steps))):
        missing = next(step for step, found in enumerate(steps) if step != found)
        raise RecordError(
            f"{folder.metrics} has no line of step {missing}, and later ones: lines were lost. {RUN_AGAIN}"
        )


def _checkpoints(folder: RunFolder) -> None:
    """Of the newest: files that are not there or not whole. What is in them is checked when a run goes on from it."""
    for step in folder.complete_checkpoints()[-1:]:
        place = folder.checkpoint(step)
        marker = read_record(place / CHECKPOINT_MARKER, CheckpointMarker, "marker of a checkpoint", _PASSED_OVER)
        for name, known in marker.files.items():
            size = (place / name).stat().st_size if (place / name).is_file() else None
            if size != known.bytes or marker.step != step:
                held = "is missing" if size is None else f"holds {size} bytes of {known.bytes}"
                raise RecordError(f"{place / name} {held}: this checkpoint is damaged. {_PASSED_OVER}")


def _samples(folder: RunFolder) -> None:
    """Panels and files of diagnostics that were written and are not there, or are others."""
    logs = (folder.metrics.name, folder.timing.name)  # which may grow
    for name, known in folder.read_status().sums.items():
        if name not in logs and (changed := change(folder.path / name, known, whole=True)):
            raise RecordError(f"{folder.path / name} {changed}. {RUN_AGAIN}")


_PASSED_OVER = "Delete it: a run that goes on takes the one before"
