"""What a run says of itself to Weights & Biases: its group, tags and configuration, and where it can be looked at."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from scpo.errors import RecordError
from scpo.schema import MACHINE_SECTIONS, RunConfig
from scpo.tracking.atomic import read_json, write_json
from scpo.tracking.folder import RunFolder

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
