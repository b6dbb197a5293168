"""Configuration of a run folder: written when the run is created, verified whenever it is read."""

import contextlib
import shutil
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from scpo.advantages.registry import ESTIMATORS
from scpo.errors import ConfigError, RecordError, UnreadableError
from scpo.records.files import (
    check_readable,
    first_complaint,
    naming_write_errors,
    read_yaml,
    write_yaml,
)
from scpo.records.identity import identity, run_id
from scpo.records.record_checks import check_name, check_same
from scpo.records.run_folders import RUNS_DIR, RunFolder, check_link, command_on, list_runs
from scpo.records.status import State, Status
from scpo.schema.run import RunConfig
from scpo.schema.scorer import SCORER_KINDS
from scpo.shaping.matcher import MATCHERS
from scpo.states.registry import IDENTITIES


def read_config(folder: RunFolder) -> RunConfig:
    """Read and validate the full configuration of a run.

    Raises:
        RecordError: The file is damaged, or the schema has changed since it was written.
    """
    data = read_yaml(folder.config)
    part = _unknown_part(data)
    if part is not None:
        raise RecordError(
            f"{folder.config} names the {part}, which neither this code nor an "
            "installed package registers: install the package that it came from (code.json lists "
            "its files), or move the folder away"
        )
    try:
        return RunConfig.model_validate(data)
    except ValidationError as error:
        raise RecordError(
            f"{folder.config} is no valid run configuration: {first_complaint(error)}. It was "
            "edited, or written by another version of the code (its commit is in "
            f"{folder.provenance.name}): restore one or the other, or move the folder away"
        ) from error


# Key of a configuration that names a part -> the kind of part, and the registered ones.
_PARTS: dict[tuple[str, ...], tuple[str, Collection[str]]] = {
    ("method", "estimator", "name"): ("estimator", ESTIMATORS),
    ("method", "estimator", "states"): ("identity of states", IDENTITIES),
    ("method", "shaper", "states"): ("identity of states", IDENTITIES),
    ("method", "shaper", "matcher"): ("matcher", MATCHERS),
    ("scorer", "kind"): ("scorer", SCORER_KINDS),
}


def _unknown_part(data: Any) -> str | None:
    """Kind and name of the first part of a configuration that is not registered."""
    for keys, (kind, known) in _PARTS.items():
        name = data
        try:
            for key in keys:
                name = name[key]
        except (LookupError, TypeError):
            continue
        if isinstance(name, str) and name not in known:
            return f"{kind} {name!r}"
    return None


def write_config(folder: RunFolder, config: RunConfig) -> None:
    """Write the full configuration of a run."""
    write_yaml(folder.config, config.model_dump(mode="json"), checked=True)


def ensure(config: RunConfig) -> RunFolder:
    """Create the run folder of a configuration if it is missing; check it if it exists.

    The folder is created under another name and renamed when complete, so that neither a crash nor
    a second caller leaves an incomplete one. It is private (0700, as mkdtemp creates it). The
    machine settings of an unfinished run are replaced by the present ones.

    Raises:
        ConfigError: ``machine.runs_dir`` is not a folder.
        RecordError: The existing folder is damaged or of another configuration.
        RecordWriteError: The folder cannot be written.
    """
    folder = RunFolder(Path(config.machine.runs_dir) / run_id(config))
    if not folder.path.exists():
        _create(folder, config)
    recorded = check(folder, config)
    # Only machine settings can differ, because `check` has compared the rest.
    if recorded != config and folder.read_status().state is not State.DONE:
        write_config(folder, config)
    return folder


def check(folder: RunFolder, want: RunConfig | None = None) -> RunConfig:
    """Read a folder's configuration and verify that its id is the folder's name.

    Raises:
        RecordError: Its records disagree with its name, with each other or with ``want``.
    """
    check_readable(folder.path)
    check_link(folder.path)
    if not folder.path.is_dir():
        raise RecordError(
            f"there is no run folder {folder.path}; `{_listing(folder)}` lists those there are"
        )
    if not folder.identity.exists() and not folder.status.exists():
        raise RecordError(
            f"{folder.path} is no run folder; `{_listing(folder)}` lists those there are"
        )

    hashed = read_yaml(folder.identity)
    config = read_config(folder)
    path = folder.path
    check_same(path, "config.yaml", identity(config), "identity.yaml", hashed)
    if want is not None:
        check_same(path, "identity.yaml", hashed, "the configuration asked for", identity(want))
    check_name(folder)
    return config


def _listing(folder: RunFolder) -> str:
    """Command that lists the runs in, below or next to a folder."""
    path = folder.path
    for place in (path, path / RUNS_DIR, path.parent):
        with contextlib.suppress(UnreadableError):
            if list_runs(place):
                return command_on(place, "sweeps status")
    # For a bare word without runs near it: those of the default folder.
    return command_on(path.parent if path.parent.name else RUNS_DIR, "sweeps status")


def _create(folder: RunFolder, config: RunConfig) -> None:
    parent = next(path for path in folder.path.parents if path.exists())
    if not parent.is_dir():
        raise ConfigError(
            f"machine.runs_dir={folder.path.parent}: {parent} is a file; name a folder for the runs"
        )

    with naming_write_errors(folder.path, 0):
        folder.path.parent.mkdir(parents=True, exist_ok=True)
        draft = RunFolder(tempfile.mkdtemp(dir=folder.path.parent, prefix=".new-"))
    try:
        write_config(draft, config)
        write_yaml(draft.identity, identity(config))
        status = Status(run=folder.run_id, state=State.PENDING, steps=config.trainer.steps)
        draft.write_status(status)
        # Another caller may have created the folder first; `ensure` checks it next.
        with contextlib.suppress(OSError):
            draft.path.rename(folder.path)
    finally:
        shutil.rmtree(draft.path, ignore_errors=True)
