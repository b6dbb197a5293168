"""What a run says of itself to Weights & Biases: its group, tags and configuration, and where it can be looked at."""

import os
from collections.abc import Iterator
from typing import Any

from scpo.errors import RecordError
from scpo.schema import MACHINE_SECTIONS, RunConfig
from scpo.tracking.atomic import read_json, write_json
from scpo.tracking.folder import RunFolder

TAG_LENGTH = 64  # of W&B
WANDB_RECORD = "wandb.json"  # in the run folder: where the mirror is


def init_settings(folder: RunFolder, config: RunConfig) -> dict[str, Any]:
    """The keyword arguments of ``wandb.init``, without its settings.

    A run that ``wandb agent`` started belongs to its sweep: the agent gives the id, ours is the name.
    """
    agent = "WANDB_SWEEP_ID" in os.environ
    return {
        "mode": config.wandb.mode,
        "project": config.wandb.project,
        "entity": config.wandb.entity,
        "group": group_of(folder.run_id),
        "job_type": "train" if config.method.kind == "trained" else "evaluate",
        "tags": list(dict.fromkeys(_tags(folder, config))),
        "id": None if agent else folder.run_id,
        "name": folder.run_id,
        "resume": None if agent else "allow",
        "dir": str(folder.path),
        "config": {**config.model_dump(mode="json", exclude=set(MACHINE_SECTIONS)), "commit": _commit(folder)},
    }


def group_of(run_id: str) -> str:
    """Benchmark, model, method and what differs from the paper's shaper: the run's id without its seed and hash."""
    return "-".join(run_id.split("-")[:-2]) or run_id


def keep_url(folder: RunFolder, url: str | None, mode: str) -> None:
    """Write down where the run can be looked at; offline there is no such place yet."""
    write_json(folder.path / WANDB_RECORD, {"url": url, "mode": mode})


def url_of(folder: RunFolder) -> str | None:
    """Where the run can be looked at; None if it is not online."""
    path = folder.path / WANDB_RECORD
    return read_json(path).get("url") if path.exists() else None


def _tags(folder: RunFolder, config: RunConfig) -> Iterator[str]:
    """Scale, benchmark and method, and the experiments and rows that it stands in now."""
    yield from (config.scale, config.env.benchmark, config.method.name)
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
