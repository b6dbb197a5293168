"""Verify that a run's records are complete and consistent."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from scpo.errors import RecordError, ScpoError, UnreadableError
from scpo.records import log_gaps
from scpo.records.code_record import read_code
from scpo.records.files import RUN_AGAIN, change, check_readable, folder_change, read_record
from scpo.records.logs import check_end, check_provenance, read_whole
from scpo.records.manifest import experiment_members
from scpo.records.run_config import check, read_config
from scpo.records.run_folders import CHECKPOINT_MARKER, CheckpointMarker, RunFolder
from scpo.schema.run import RunConfig

DELETE_CHECKPOINT = "Delete it: a run that goes on takes the one before"


def problems(folder: RunFolder) -> list[str]:
    """Messages on all problems of a run's records; empty without problems."""
    found: list[str] = []
    config: RunConfig | None = None
    try:
        config = check(folder)
    except UnreadableError as error:
        # Nothing can be said of the other records.
        return [str(error)]
    except ScpoError as error:
        found.append(str(error))
    checks: tuple[Callable[[RunFolder], Any], ...] = (
        partial(_logs, config=config),
        _checkpoints,
        _samples,
        RunFolder.read_stop,
        RunFolder.read_panels,
        _provenance,
        _end,
        _code,
    )
    for check_records in checks:
        try:
            check_records(folder)
        except ScpoError as error:
            found.append(str(error))

    # Several checks report an unreadable status.
    return list(dict.fromkeys(found))


def check_results(folder: RunFolder) -> None:
    """Check what tables read of a run: its logs and panels.

    Raises:
        RecordError: Lines or panels were lost or changed since the run wrote them.
    """
    read_whole(folder, folder.metrics)
    read_whole(folder, folder.timing)
    known = folder.read_status().sums.get(folder.panels.name)
    changed = change(folder.panels, known, whole=True) if known else None
    if changed:
        raise RecordError(f"{folder.panels} {changed}. {RUN_AGAIN}")


def panel_conflicts(folders: Iterable[RunFolder]) -> list[str]:
    """Messages on runs with equal environment settings but different panels.

    They must not share a table.
    """
    # (settings, panel) -> the first run with it, and the hash of its games.
    first: dict[tuple[str, str], tuple[str, str]] = {}
    found = []
    for folder in folders:
        try:
            settings = read_config(folder).env.model_dump_json()
            panels = folder.read_panels()
        except ScpoError:
            # `problems` reports damaged records.
            continue
        for name, panel in panels.items():
            run_id, sha256 = first.setdefault((settings, name), (folder.run_id, panel["sha256"]))
            if sha256 != panel["sha256"]:
                found.append(
                    f"{folder.run_id}: panel {name} is not the one of {run_id}, whose settings are "
                    "the same"
                )
    return found


def without_experiment(runs_dir: Path, folders: Iterable[RunFolder]) -> list[str]:
    """Ids of the runs in no manifest: single runs, or runs whose manifest was deleted."""
    members, _ = experiment_members(runs_dir)
    named: set[str] = set().union(*members.values())
    return [folder.run_id for folder in folders if folder.run_id not in named]


def _logs(folder: RunFolder, config: RunConfig | None) -> None:
    """Check for lost, added or changed lines, and for missing measures."""
    lines = read_whole(folder, folder.metrics)
    read_whole(folder, folder.timing)
    checkpoints = folder.complete_checkpoints()
    last = lines[-1]["step"] if lines else 0
    if checkpoints and checkpoints[-1] > last:
        raise RecordError(
            f"{folder.metrics} ends at step {last}, before checkpoint {checkpoints[-1]}: lines "
            "were lost"
        )
    if config is not None:
        log_gaps.check(folder.metrics, config.model_dump(mode="json"), lines)


def _checkpoints(folder: RunFolder) -> None:
    """Check the files of the newest checkpoint, from which a run would go on."""
    check_readable(folder.checkpoints)
    for step in folder.complete_checkpoints()[-1:]:
        place = folder.checkpoint(step)
        path = place / CHECKPOINT_MARKER
        marker = read_record(path, CheckpointMarker, "marker of a checkpoint", DELETE_CHECKPOINT)
        if marker.step != step:
            raise RecordError(
                f"{path} is of step {marker.step}, its folder of step {step}: this checkpoint is "
                f"damaged. {DELETE_CHECKPOINT}"
            )
        changed = folder_change(place, marker.files)
        if changed:
            raise RecordError(
                f"{place}: {changed}: this checkpoint is damaged. {DELETE_CHECKPOINT}"
            )


def _samples(folder: RunFolder) -> None:
    """Check for panels and diagnostics that are missing or differ from their checksums."""
    # Logs, which may grow, are verified by `_logs`.
    logs = (folder.metrics.name, folder.timing.name)
    for name, known in folder.read_status().sums.items():
        if name in logs:
            continue
        changed = change(folder.path / name, known, whole=True)
        if changed:
            raise RecordError(f"{folder.path / name} {changed}. {RUN_AGAIN}")


def _provenance(folder: RunFolder) -> None:
    check_provenance(folder, folder.read_status(), folder.read_attempts())


def _end(folder: RunFolder) -> None:
    check_end(folder, folder.read_status())


def _code(folder: RunFolder) -> None:
    """Check for the record of the code, without which a resume cannot detect changed code."""
    if read_code(folder) is None and folder.complete_checkpoints():
        raise RecordError(
            f"{folder.path} has checkpoints but no code.json, the record of the code that wrote "
            "them: it was deleted. Restore it; a run that goes on compares the commits instead"
        )
