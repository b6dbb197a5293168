"""Verify that a run's records are complete and consistent."""

import contextlib
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from scpo.errors import MisnamedError, RecordError, ScpoError, UnreadableError
from scpo.records import log_gaps
from scpo.records.code_record import read_code, without_code
from scpo.records.files import RUN_AGAIN, SAMPLE, change, check_readable, read_yaml
from scpo.records.logs import check_logs_at, read_whole
from scpo.records.manifest import experiment_members
from scpo.records.provenance import without_provenance
from scpo.records.record_checks import check_records, explained
from scpo.records.run_config import check, read_config
from scpo.records.run_folders import RunFolder, observe
from scpo.records.status import State
from scpo.records.wandb_mirror import url_of
from scpo.schema.run import RunConfig


def problems(folder: RunFolder) -> list[str]:
    """Messages on all problems of a run's records; empty without problems."""
    found: list[str] = []
    config: RunConfig | None = None
    try:
        config = check(folder)
    except (UnreadableError, MisnamedError) as error:
        # The other records cannot be checked, or are those of another run.
        return [str(error)]
    except ScpoError as error:
        found.append(explained(folder, error))
    checks: tuple[Callable[[RunFolder], Any], ...] = (
        *([] if config is None else [check_records]),
        partial(_logs, config=config),
        _checkpoints,
        _samples,
        _code,
        _provenance,
    )
    for check_part in checks:
        try:
            check_part(folder)
        except ScpoError as error:
            found.append(explained(folder, error))

    # Several checks report an unreadable status.
    return list(dict.fromkeys(found))


def check_usable(folder: RunFolder, state: State) -> None:
    """Check the records on which a run's numbers or its resume depend; it is DAMAGED otherwise.

    `status`, sweeps, dry runs and `rm` call this; tables call ``check_records`` and read the logs.
    Only ``problems`` checks samples, which figures leave out one by one, and checkpoints of
    finished runs.

    Args:
        folder: The run.
        state: Its observed state.

    Raises:
        RecordError: A record cannot be read, or was changed since the run wrote it; or the run
            stopped, and none of its checkpoints is whole.
    """
    check_records(folder)
    if state is State.DONE:
        lines = read_whole(folder, folder.metrics)
        read_whole(folder, folder.timing)
        log_gaps.check(folder.metrics, read_yaml(folder.config), lines)
    elif not state.live:
        _check_resume(folder)


def _check_resume(folder: RunFolder) -> None:
    """Check that a run without a process can go on from a checkpoint, if it has any."""
    lost: RecordError | None = None
    for step in folder.whole_checkpoints(at_a_glance=True):
        try:
            check_logs_at(folder, step)
        except RecordError as error:
            # As in a resumed run, the error of the newest checkpoint is the most helpful one.
            lost = lost or error
        else:
            return
    if lost is not None:
        raise lost


def rewritten(folder: RunFolder, state: State) -> str | None:
    """Remark on damaged log lines that a stopped run writes again when it goes on.

    They are later than its newest whole checkpoint, so nothing is lost with them. Damage before
    that checkpoint is a problem, even if the run can go on from an earlier one.

    Args:
        folder: The run.
        state: Its observed state.

    Returns:
        None if no line is damaged, or if the damage is a problem.
    """
    if state.live or state is State.DONE:
        return None
    try:
        step = next(folder.whole_checkpoints(at_a_glance=True), None)
        if step is None:
            return None
        check_logs_at(folder, step)
    except RecordError:
        return None

    for path in (folder.metrics, folder.timing):
        try:
            read_whole(folder, path)
        except UnreadableError:
            return None
        except RecordError:
            return (
                f"{path.name} is damaged after step {step}: the run goes on from the checkpoint "
                "of that step and writes those lines again"
            )
    return None


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
    if rewritten(folder, observe(folder).state):
        # One of the `remarks`.
        return
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
    steps = folder.complete_checkpoints()
    done = folder.read_status().state is State.DONE
    lost = folder.lost_markers()
    if lost is not None and not done:
        # The error with which the run itself stops.
        raise lost
    damage = folder.checkpoint_damage(steps[-1]) if steps else None
    if damage is None:
        return
    if done:
        advice = (
            f"Restore its files, or delete {folder.checkpoint(steps[-1])} if nobody needs its "
            "weights: the numbers of a finished run do not depend on it"
        )
    else:
        whole = [step for step in steps[:-1] if not folder.checkpoint_damage(step)]
        if not whole:
            # The error with which the run itself stops.
            raise folder.all_damaged(steps[-1], damage)
        advice = f"It needs no repair: a run that goes on takes the checkpoint of step {whole[-1]}"
    raise RecordError(f"{damage}: this checkpoint is damaged. {advice}")


def remarks(folder: RunFolder) -> list[str]:
    """Remarks on a run that are no problems of its results."""
    found = [begins_anew(folder), _foreign_samples(folder)]
    with contextlib.suppress(ScpoError):
        # `problems` reports damaged records.
        if damage := rewritten(folder, observe(folder).state):
            found.append(f"{folder.run_id}: {damage}")
    try:
        url_of(folder)
    except (UnreadableError, PermissionError):
        # `problems` names the folder.
        pass
    except RecordError as error:
        found.append(str(error))
    return [remark for remark in found if remark is not None]


def _foreign_samples(folder: RunFolder) -> str | None:
    """Remark on files among a finished run's samples that it did not write; None without any."""
    try:
        check_readable(folder.diagnostics)
        status = folder.read_status()
    except ScpoError:
        # `problems` reports damaged records.
        return None
    # A live run may have written a sample whose checksum it has not recorded yet.
    if status.state is not State.DONE or not status.sums:
        return None
    names = []
    for path in sorted((folder.diagnostics).rglob("*")):
        name = str(path.relative_to(folder.path))
        if path.is_file() and name not in status.sums:
            names.append(name)
    if not names:
        return None
    return (
        f"{folder.run_id}: {', '.join(names)}: not written by the run, so no figure and no report "
        "shows it. Move it away"
    )


def begins_anew(folder: RunFolder) -> str | None:
    """Remark on a stopped run that has steps and no checkpoint to go on from; None for others."""
    try:
        state = observe(folder).state
        status = folder.read_status()
        trained = read_config(folder).method.kind == "trained"
    except ScpoError:
        # `problems` reports damaged records.
        return None
    if not trained or state.live or state is State.DONE or not status.step:
        return None
    # `problems` reports checkpoints that have lost their markers.
    if folder.complete_checkpoints() or folder.lost_markers():
        return None
    return (
        f"{folder.run_id} is {state} at step {status.step} of {status.steps} and has no "
        "checkpoint: a run that goes on begins anew from step 0"
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
            # Those in subfolders are samples.
            remedy = SAMPLE if "/" in name else RUN_AGAIN
            raise RecordError(f"{folder.path / name} {changed}. {remedy}")


def _code(folder: RunFolder) -> None:
    """Check for the record of the code, to compare that of a finished run or of a resume."""
    if lost := without_code(folder):
        raise RecordError(f"{folder.path}: {lost}")
    if read_code(folder) is None and folder.complete_checkpoints():
        raise RecordError(
            f"{folder.path} has checkpoints but no code.json, the record of the code that wrote "
            "them: it was deleted. Restore it; a run that goes on compares the commits instead"
        )


def _provenance(folder: RunFolder) -> None:
    """Check for the record of attempts of an unfinished run; `check_records` of a finished one."""
    if lost := without_provenance(folder):
        raise RecordError(f"{folder.path} {lost}")
