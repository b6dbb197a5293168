"""Mirror of a run in Weights & Biases: group, tags, configuration and metrics.

The files of the run folder are authoritative. Training never waits for W&B or fails because of it.
``misnamed`` checks the configuration of a run that is read back from W&B.
"""

import functools
import logging
import math
import os
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, get_type_hints

from pydantic import BaseModel, ValidationError, create_model

from scpo.errors import RecordError, first_line
from scpo.installed import install_command
from scpo.records import wandb_address
from scpo.records.files import read_json, write_json
from scpo.records.identity import (
    WHOLE,
    is_id_of,
    read_configuration,
    recorded_id,
    settings_digest,
)
from scpo.records.manifest import manifest_paths, read
from scpo.records.run_folders import RunFolder
from scpo.schema.run import RunConfig
from scpo.strict import MACHINE_SECTIONS, Strict

# W&B's limit for the length of a tag.
TAG_LENGTH = 64

# File of the run folder with the address of the mirror.
WANDB_RECORD = "wandb.json"
REMEDY = (
    "No result depends on it: it has the run's address in W&B. Restore it from a copy, or delete it"
)

# Environment variables that would rename a run or move its files. They are ignored, because the
# run's folder determines its name, id and files.
OUR_OWN = ("WANDB_NAME", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_DIR", "WANDB_DISABLED")
PROGRAM = "train.py"

Task = Callable[[], object]

logger = logging.getLogger(__name__)


class WandbMirror:
    """Sends metrics to W&B from a thread, so that a slow or failing server delays only that thread.

    The first failure, in init, log or finish, is logged as a warning; then the mirror stops.
    """

    def __init__(self, folder: RunFolder, config: RunConfig) -> None:
        self._folder = folder
        self._config = config
        self._run: Any = None
        self._abandoned = False
        self._tasks: queue.Queue[Task | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        if config.wandb.mode != "disabled":
            self._thread = threading.Thread(target=self._work, name="wandb-mirror", daemon=True)
            self._thread.start()

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Queue the values of one step; non-finite ones, null in metrics.jsonl, are left out."""
        finite = {name: float(value) for name, value in values.items() if math.isfinite(value)}
        if self._thread is not None:
            # A lambda, because `_run` exists only once the thread has initialised W&B.
            self._tasks.put(lambda: self._run.log(finite, step=step))

    def alert(self, title: str, text: str) -> None:
        """Queue an alert, which W&B sends by mail or Slack as its user has configured."""
        if self._thread is not None:
            self._tasks.put(lambda: self._run.alert(title=title, text=text))

    def finish(self, exit_code: int = 0) -> None:
        """Let W&B write the queued values, for at most ``wandb.finish_timeout_s`` seconds."""
        if self._thread is None:
            return
        self._tasks.put(lambda: self._run.finish(exit_code=exit_code))
        # None ends the thread's loop.
        self._tasks.put(None)
        limit = self._config.wandb.finish_timeout_s
        self._thread.join(limit)
        if self._thread.is_alive():
            # The daemon thread continues, but its later errors are not logged.
            self._abandoned = True
            logger.warning(
                "W&B did not finish within %g s and is abandoned; %s is complete",
                limit,
                self._folder.metrics,
            )
        self._thread = None

    def _work(self) -> None:
        try:
            self._init()
            while (task := self._tasks.get()) is not None:
                task()
        except ImportError:
            logger.info(
                "wandb is not installed, metrics are not mirrored; "
                f"{install_command('track')} adds it"
            )
        except Exception as error:  # noqa: BLE001 (training continues after any failure of the mirror)
            if self._abandoned:
                return
            logger.warning(
                "W&B mirror stopped: %s. Training goes on; %s is complete",
                first_line(error),
                self._folder.metrics,
            )

    def _init(self) -> None:
        # An optional package, and slow to import.
        import wandb

        config = self._config
        if config.wandb.mode == "online":
            wandb_address.set_up(wandb)
        else:
            # Offline, wandb does not log in, but its own telemetry uses the address.
            wandb_address.take_user_out()
        if names := unheeded():
            logger.warning(
                "%s: ignored. A run's name, id and files are those of its run folder, and a "
                "resumed run continues in W&B anyway; to run without W&B: WANDB_MODE=disabled",
                ", ".join(names),
            )
        self._run = wandb.init(
            **init_settings(self._folder, config),
            settings=wandb.Settings(
                init_timeout=config.wandb.init_timeout_s,
                silent=True,
                # Otherwise wandb would capture stdout.
                console="off",
                # The commit is in the configuration, and provenance.json has more.
                disable_git=True,
                disable_code=True,
                # Do not send names of the machine. x_disable_machine_info would also disable the
                # system metrics.
                x_disable_meta=True,
                # Otherwise wandb would send the host's name.
                host="",
                # Otherwise wandb would send the path of the started script.
                program=PROGRAM,
            ),
        )
        for metric in ("train/*", "val/*", "credit/*", "actor/*"):
            # By default, W&B's summary is only the last value, without the best one.
            self._run.define_metric(metric, summary="max,last")
        keep_address(self._folder, self._run, config.wandb.mode)
        if url := _url(self._run):
            logger.info("W&B: %s", url)


def init_settings(folder: RunFolder, config: RunConfig) -> dict[str, Any]:
    """Keyword arguments of ``wandb.init``, without ``settings``.

    A run that was started by ``wandb agent`` belongs to the agent's sweep, which determines project
    and id; only the name is set here. If it is resumed without the agent, it keeps both.
    """
    job_type = "train" if config.method.kind == "trained" else "evaluate"
    return {
        "mode": config.wandb.mode,
        **_address_settings(folder, config),
        "group": os.environ.get("WANDB_RUN_GROUP") or group_of(folder.run_id, config),
        "job_type": os.environ.get("WANDB_JOB_TYPE") or job_type,
        "tags": list(dict.fromkeys(_tags(folder, config))),
        "name": folder.run_id,
        "dir": str(folder.path),
        "config": _configuration(folder, config),
    }


def unheeded() -> list[str]:
    """W&B variables that are set but ignored, because they would rename or move the run."""
    if "WANDB_SWEEP_ID" in os.environ:
        return []
    return [name for name in OUR_OWN if os.environ.get(name)]


def group_of(run_id: str, config: RunConfig) -> str:
    """The run id without its seed, and a hash of all settings but the seed.

    The readable part has benchmark, model, method and its choices, but not the scorer or the
    learning rate. Without the hash, W&B would average runs that differ in those.
    """
    readable = "-".join(run_id.split("-")[:-2]) or run_id
    return f"{readable}-{settings_digest(config)}"


def keep_address(folder: RunFolder, run: Any, mode: str) -> None:
    """Record the address of a ``wandb.Run`` (offline runs have none yet) and its sweep."""
    address = {name: getattr(run, name) for name in ("entity", "project", "id", "sweep_id")}
    write_json(folder.path / WANDB_RECORD, {"url": _url(run), **address, "mode": mode})


def _url(run: Any) -> str | None:
    """URL of a ``wandb.Run``; None offline, where wandb would print a warning."""
    return None if run.offline else run.url


def url_of(folder: RunFolder) -> str | None:
    """The URL of the run's mirror; None if it is not online."""
    return _address(folder).get("url")


def _address(folder: RunFolder) -> dict[str, Any]:
    path = folder.path / WANDB_RECORD
    return dict(read_json(path, REMEDY)) if path.exists() else {}


def _address_settings(folder: RunFolder, config: RunConfig) -> dict[str, str | None]:
    """Project, entity, id, and whether a run of that id is resumed."""
    names = ("project", "entity", "id")
    if "WANDB_SWEEP_ID" in os.environ:
        # wandb reads the agent's variables itself.
        return dict.fromkeys((*names, "resume"))
    kept = _address(folder)
    if kept.get("sweep_id"):
        return {**{name: kept[name] for name in names}, "resume": "allow"}
    return {
        "project": config.wandb.project,
        "entity": config.wandb.entity,
        "id": folder.run_id,
        "resume": "allow",
    }


def _configuration(folder: RunFolder, config: RunConfig) -> dict[str, Any]:
    """The configuration for W&B.

    In a W&B sweep, the sweep's parameters replace keys of the same name, such as ``method``. So a
    second copy is sent under ``WHOLE``.
    """
    sections = config.model_dump(mode="json", exclude=set(MACHINE_SECTIONS))
    # Only in a sweep, as the copy doubles the length of the configuration.
    copy = {WHOLE: sections} if "WANDB_SWEEP_ID" in os.environ else {}
    return {**sections, **copy, "run_id": folder.run_id, "commit": _commit(folder)}


def _tags(folder: RunFolder, config: RunConfig) -> Iterator[str]:
    """Scale, benchmark, method, the user's tags, and the run's experiments and rows."""
    yield from (config.scale, config.env.benchmark, config.method.name)
    for tag in os.environ.get("WANDB_TAGS", "").split(","):
        if tag.strip():
            yield tag.strip()[:TAG_LENGTH]
    for path in manifest_paths(folder.path.parent):
        manifest = read(path)
        for row in manifest.rows:
            if any(run.id == folder.run_id for run in row.runs):
                yield manifest.experiment[:TAG_LENGTH]
                yield f"{manifest.experiment}:{row.name}"[:TAG_LENGTH]


def _commit(folder: RunFolder) -> str | None:
    try:
        if not folder.status.exists():
            return None
        return folder.read_status().commit
    except RecordError:
        # The run itself reports a damaged status.
        return None


def misnamed(logged: Mapping[str, Any], wandb_id: str) -> str | None:
    """Describe how the configuration of a run in W&B contradicts its id; None if it does not.

    Configurations can be edited in W&B, and a fork of a run keeps that of its parent.

    Args:
        logged: Its configuration in W&B.
        wandb_id: Its id in W&B, which equals the run id except for runs of W&B sweeps.
    """
    run_id, stored, _ = read_configuration(logged, wandb_id)
    config = with_floats(stored)
    swept = isinstance(logged.get(WHOLE), dict)
    if run_id != wandb_id and not swept:
        return f"its configuration is that of the run {run_id}: a copy or a fork of it"
    if is_id_of(run_id, config):
        return None
    try:
        described = recorded_id(config)
    except (KeyError, ValueError, TypeError, AttributeError):
        described = "no run of this project"
    return f"its id is {run_id}, and its configuration that of {described}: one of them was edited"


def with_floats(config: Mapping[str, Any]) -> dict[str, Any]:
    """Restore the floats of a configuration: W&B stores 1.0 as 1, which changes the run id."""
    try:
        typed = _sections().model_validate(config).model_dump(mode="json")
    except ValidationError:
        return dict(config)
    restored: dict[str, Any] = _typed_as(config, typed)
    return restored


@functools.cache
def _sections() -> type[BaseModel]:
    """Model of a configuration without the sections of the machine."""
    hints = get_type_hints(RunConfig, include_extras=True)
    fields: dict[str, Any] = {}
    for name in RunConfig.model_fields:
        if name not in MACHINE_SECTIONS:
            fields[name] = (hints[name], ...)
    return create_model("Sections", __base__=Strict, **fields)


def _typed_as(value: Any, typed: Any) -> Any:
    """Copy of a value with integers as floats where ``typed`` has floats; adds no keys."""
    if isinstance(value, Mapping) and isinstance(typed, Mapping):
        return {key: _typed_as(inner, typed.get(key)) for key, inner in value.items()}
    if isinstance(value, list) and isinstance(typed, list) and len(value) == len(typed):
        return [_typed_as(inner, other) for inner, other in zip(value, typed, strict=True)]
    is_whole = type(value) is int and isinstance(typed, float)
    return float(value) if is_whole else value
