"""A copy of a run's metrics in Weights & Biases. Training never waits for it and never dies of it."""

import logging
import math
import os
import queue
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from scpo.errors import RecordError, first_line
from scpo.records.files import read_json, write_json
from scpo.records.run_folders import RunFolder
from scpo.schema import MACHINE_SECTIONS, RunConfig

TAG_LENGTH = 64  # of W&B


WANDB_RECORD = "wandb.json"  # in the run folder: where the mirror is


OUR_OWN = ("WANDB_NAME", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_DIR", "WANDB_DISABLED")


WHOLE = "scpo"  # key of a sweep's runs: the configuration that no parameter replaced


RUN_ID = re.compile(r"(?!\.+$)[A-Za-z0-9_.-]{1,128}")


def init_settings(folder: RunFolder, config: RunConfig) -> dict[str, Any]:
    """The keyword arguments of ``wandb.init``, without its settings.

    A run that ``wandb agent`` started belongs to its sweep: the agent says where, and its id; ours is the name. When
    it goes on without the agent, it goes on there.
    """
    return {
        "mode": config.wandb.mode,
        **_where(folder, config),
        "group": os.environ.get("WANDB_RUN_GROUP") or group_of(folder.run_id),
        "job_type": os.environ.get("WANDB_JOB_TYPE") or ("train" if config.method.kind == "trained" else "evaluate"),
        "tags": list(dict.fromkeys(_tags(folder, config))),
        "name": folder.run_id,
        "dir": str(folder.path),
        "config": _configuration(folder, config),
    }


def unheeded() -> list[str]:
    """Variables of W&B that are set and say what is a run's own here."""
    return [] if "WANDB_SWEEP_ID" in os.environ else [name for name in OUR_OWN if os.environ.get(name)]


def group_of(run_id: str) -> str:
    """Benchmark, model, method and what differs from the paper's shaper: the run's id without its seed and hash."""
    return "-".join(run_id.split("-")[:-2]) or run_id


def keep_address(folder: RunFolder, run: Any, mode: str) -> None:
    """Write down where a ``wandb.Run`` can be looked at (offline nowhere yet), and whose sweep it is in."""
    address = {name: getattr(run, name) for name in ("url", "entity", "project", "id", "sweep_id")}
    write_json(folder.path / WANDB_RECORD, {**address, "mode": mode})


def url_of(folder: RunFolder) -> str | None:
    """Where the run can be looked at; None if it is not online."""
    return _address(folder).get("url")


def _address(folder: RunFolder) -> dict[str, Any]:
    path = folder.path / WANDB_RECORD
    return dict(read_json(path)) if path.exists() else {}


def _configuration(folder: RunFolder, config: RunConfig) -> dict[str, Any]:
    """What is sent of the configuration.

    In a sweep W&B keeps the parameters' own values, and drops ours of the same name (``method``): it is there twice.
    """
    sections = config.model_dump(mode="json", exclude=set(MACHINE_SECTIONS))
    again = {WHOLE: sections} if "WANDB_SWEEP_ID" in os.environ else {}
    return {**sections, **again, "run_id": folder.run_id, "commit": _commit(folder)}


def read_configuration(logged: Mapping[str, Any], wandb_id: str) -> tuple[str, dict[str, Any], str | None]:
    """Run id, configuration and commit of a run, from what W&B has as its configuration and id."""
    whole = logged.get(WHOLE)
    sections = whole if isinstance(whole, dict) else logged
    beside = {WHOLE, "run_id", "commit"}
    ours = {name: value for name, value in sections.items() if name not in beside}
    run_id, commit = str(logged.get("run_id")), logged.get("commit")
    if not ("run_id" in logged and RUN_ID.fullmatch(run_id)):  # it names files, and a server may say anything
        run_id = wandb_id
    return run_id, ours, None if commit is None else str(commit)


def _where(folder: RunFolder, config: RunConfig) -> dict[str, str | None]:
    """Project, entity and id, and whether a run of that id goes on."""
    names = ("project", "entity", "id")
    if "WANDB_SWEEP_ID" in os.environ:
        return dict.fromkeys((*names, "resume"))  # the agent's variables say it
    kept = _address(folder)
    if kept.get("sweep_id"):
        return {**{name: kept[name] for name in names}, "resume": "allow"}
    return {"project": config.wandb.project, "entity": config.wandb.entity, "id": folder.run_id, "resume": "allow"}


def _tags(folder: RunFolder, config: RunConfig) -> Iterator[str]:
    """Scale, benchmark and method, and the experiments and rows that it stands in now."""
    yield from (config.scale, config.env.benchmark, config.method.name)
    yield from (tag.strip()[:TAG_LENGTH] for tag in os.environ.get("WANDB_TAGS", "").split(",") if tag.strip())
    for path in sorted((folder.path.parent / "experiments").glob("*.json")):
        record = read_json(path)
        for row in record["rows"]:
            if any(run["id"] == folder.run_id for run in row["runs"]):
                yield record["experiment"][:TAG_LENGTH]
                yield f"{record['experiment']}:{row['name']}"[:TAG_LENGTH]


def _commit(folder: RunFolder) -> str | None:
    try:
        return folder.read_status().commit if folder.status.exists() else None
    except RecordError:  # it is the run's own to report
        return None


logger = logging.getLogger(__name__)


Task = Callable[[], object]


PROGRAM = "train.py"


class WandbMirror:
    """Sends metrics to W&B from a thread of its own: a server that is slow, gone or dying delays only that thread.

    The first failure, at init, log or finish, is one warning; after it the mirror is silent.
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
            self._tasks.put(lambda: self._run.log(finite, step=step))

    def alert(self, title: str, text: str) -> None:
        """Queue an alert, which W&B sends by mail or Slack as its user has set it."""
        if self._thread is not None:
            self._tasks.put(lambda: self._run.alert(title=title, text=text))

    def finish(self, exit_code: int = 0) -> None:
        """Let W&B write what is queued, for at most ``finish_timeout_s``."""
        if self._thread is None:
            return
        self._tasks.put(lambda: self._run.finish(exit_code=exit_code))
        self._tasks.put(None)
        limit = self._config.wandb.finish_timeout_s
        self._thread.join(limit)
        if self._thread.is_alive():
            self._abandoned = True
            logger.warning(
                "W&B did not finish within %g s and is left behind; %s is whole", limit, self._folder.metrics
            )
        self._thread = None

    def _work(self) -> None:
        try:
            self._init()
            while (task := self._tasks.get()) is not None:
                task()
        except ImportError:
            logger.info("wandb is not installed, metrics are not mirrored; pip install 'scpo[track]' adds it")
        except Exception as error:  # noqa: BLE001 (whatever goes wrong in the mirror, training goes on)
            if self._abandoned:
                return
            logger.warning(
                "W&B mirror stopped: %s. Training goes on; %s is whole", first_line(error), self._folder.metrics
            )

    def _init(self) -> None:
        import wandb  # optional, and slow to import

        config = self._config
        if names := unheeded():
            logger.warning(
                "%s: not read here. A run's name and id in W&B are those of its folder, in which its files are, and it "
                "goes on by itself; without W&B: WANDB_MODE=disabled",
                ", ".join(names),
            )
        self._run = wandb.init(
            **init_settings(self._folder, config),
            settings=wandb.Settings(
                init_timeout=config.wandb.init_timeout_s,
                silent=True,
                console="off",  # stdout stays ours
                disable_git=True,  # the commit is in the config, provenance.json holds the rest of the code's state
                disable_code=True,
                x_disable_meta=True,  # the machine's names; x_disable_machine_info would end the system metrics too
                host="",  # else its name would be in the run all the same
                program=PROGRAM,  # else the path of what was started
            ),
        )
        for metric in ("train/*", "val/*", "credit/*", "actor/*"):
            self._run.define_metric(metric, summary="max,last")
        keep_address(self._folder, self._run, config.wandb.mode)
        if self._run.url:
            logger.info("W&B: %s", self._run.url)
