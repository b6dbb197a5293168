"""Checks of a run's records that need no schema of configurations, so that tables use them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scpo.errors import MisnamedError, RecordError, ScpoError, UnreadableError
from scpo.records.files import RUN_AGAIN, change, read_json, read_yaml
from scpo.records.identity import is_id_of, recorded_id
from scpo.records.logs import check_end, check_provenance
from scpo.records.run_folders import (
    CODE_REMEDY,
    JOB_REMEDY,
    TRAINING_PANELS,
    RunFolder,
    check_link,
    misnamed,
)
from scpo.records.status import State, Status
from scpo.strict import MACHINE_SECTIONS


def check_records(folder: RunFolder) -> None:
    """Check a run's records except its logs and checkpoints.

    Raises:
        RecordError: A record cannot be read, or was changed since the run wrote it.
    """
    check_name(folder)
    status = folder.read_status()
    check_provenance(folder, status, folder.read_attempts())
    check_end(folder, status)
    folder.read_stop()
    if folder.code.exists():
        read_json(folder.code, CODE_REMEDY)
    if folder.job.exists():
        read_json(folder.job, JOB_REMEDY)
    _check_panels(folder, status)


def explained(folder: RunFolder, error: ScpoError) -> str:
    """Message of an error in a run's records; of a finished run, also that its metrics are whole.

    A user must know it before a damaged run is given up.
    """
    if isinstance(error, UnreadableError | MisnamedError) or not _has_whole_metrics(folder):
        return str(error)
    return f"{error}. The run is finished, and its {folder.metrics.name} is whole"


def _has_whole_metrics(folder: RunFolder) -> bool:
    """True if the metrics of a finished run are those that it wrote."""
    try:
        status = folder.read_status()
        known = status.sums.get(folder.metrics.name)
        if status.state is not State.DONE or known is None:
            return False
        return change(folder.metrics, known, whole=True) is None
    except RecordError:
        return False


def _check_panels(folder: RunFolder, status: Status) -> None:
    panels = folder.read_panels()
    known = status.sums.get(folder.panels.name)
    if known is not None:
        changed = change(folder.panels, known, whole=True)
        if changed:
            raise RecordError(f"{folder.panels} {changed}. {RUN_AGAIN}")
    if not panels and status.state is not State.DONE:
        # The run has not recorded them yet.
        return
    # Without a checksum, at least the names must be those of the configuration.
    env = read_yaml(folder.config)["env"]
    asked = {*TRAINING_PANELS, *env.get("validation_panels", ())}
    if set(panels) != asked:
        held = ", ".join(sorted(panels)) or "none"
        wanted = ", ".join(sorted(asked))
        raise RecordError(
            f"{folder.panels} has the panels {held}; config.yaml asks for {wanted}. {RUN_AGAIN}"
        )


def check_name(folder: RunFolder) -> None:
    """Verify that a folder's name is the id of its config.yaml, of any version of the schema.

    Raises:
        MisnamedError: The folder is a copy, a link to another run, or was renamed.
        RecordError: A record of its settings is damaged.
    """
    check_link(folder.path)
    config = read_yaml(folder.config)
    check_id(folder, config)
    # The settings are recorded twice, so that a change of either record is detected.
    hashed = {key: value for key, value in config.items() if key not in MACHINE_SECTIONS}
    recorded = read_yaml(folder.identity)
    check_same(folder.path, "config.yaml", hashed, "identity.yaml", recorded)


def check_id(folder: RunFolder, config: Mapping[str, Any]) -> None:
    """Verify that a folder's name is the id of its configuration.

    Raises:
        MisnamedError: It is that of another run.
        RecordError: It is not a run's configuration.
    """
    if is_id_of(folder.run_id, config):
        return
    try:
        held = recorded_id(config)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise RecordError(
            f"{folder.config} is no run's configuration. Restore it, or move {folder.path} away"
        ) from error
    raise misnamed(folder.path, held)


def check_same(path: Path, old_name: str, old: Any, new_name: str, new: Any) -> None:
    """Raise RecordError with the first setting in which two records of a run differ."""
    difference = next(_differences(old, new), None)
    if difference:
        key, before, after = difference
        raise RecordError(
            f"{path} is of another configuration: {key} is {before!r} in {old_name} and {after!r} "
            f"in {new_name}. Restore the file, or move {path} away to start the run again"
        )


def _differences(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, old, new) of each leaf that differs; a missing key counts as None."""
    if isinstance(old, dict) and isinstance(new, dict):
        # Keys of both, in the order of the older file.
        for name in dict.fromkeys([*old, *new]):
            dotted = f"{key}.{name}" if key else str(name)
            yield from _differences(old.get(name), new.get(name), dotted)
    elif old != new:
        yield key or "everything", old, new
