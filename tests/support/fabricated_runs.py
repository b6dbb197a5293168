"""Runs as a sweep would leave them: real ids, records and configurations, with invented numbers.

A number is a function of run, metric and step alone (:func:`invented`), so that a test may ask of every cell of a table
which runs it must have come from.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scpo.records.files import write_json
from scpo.records.identity import recorded_id
from scpo.schema.env import FAMILIES
from sweeps.compose.matrix import expand
from tests.support.run_records import write_panels, write_settings
from tests.support.whole_logs import whole

STEPS = (0, 75, 150)
EPISODES = {"valid_seen": 140, "valid_unseen": 134, "test": 500, "train_games": 64}
NOT_STARTED = "not started"


@dataclass(frozen=True)
class Fabricated:
    """One run of a row; ``config`` is what its config.yaml holds."""

    row: str
    label: str
    id: str
    config: dict[str, Any]
    state: str = "DONE"

    @property
    def seed(self):
        return self.config["seed"]

    @property
    def env(self):
        env = self.config["env"]
        return "webshop_paper" if env.get("setting") == "paper" else env["name"]

    @property
    def model(self):
        return self.config["model"]["name"]

    def changed(self, row=None, *, state=None, method=None, **values):
        """Another run: ``values`` are dotted keys with __ for the dot, and a method that nobody knows may be named."""
        config = json.loads(json.dumps(self.config))
        for key, value in values.items():
            *parents, last = key.split("__")
            place = config
            for parent in parents:
                place = place[parent]
            place[last] = value
        if method:
            config["method"]["name"] = method
        row = row or method or self.row
        return Fabricated(row, method or self.label, recorded_id(config), config, state or self.state)


def of_experiment(name, *overrides):
    """The runs of an experiment in conf/, with the ids that its sweep gives them."""
    cells = expand(name, overrides).cells
    return [
        Fabricated(cell.row.name, cell.row.label, cell.run_id, cell.config.model_dump(mode="json")) for cell in cells
    ]


def write_runs(runs_dir, runs, value=None, steps=STEPS, others=()):
    """Their folders; ``value(run, metric, step)`` is :func:`invented` of the run's id by default.

    ``others``: metrics beside those of validation, which every run logs at these steps too.
    """
    value = value or (lambda run, metric, step: invented(run.id, metric, step))
    for run in runs:
        if run.state != NOT_STARTED:
            names = [*metrics_of(run), *others]
            episodes = {f"val/{name}/episodes": EPISODES[name] for name in run.config["env"]["validation_panels"]}
            lines = [{"step": at} | episodes | {name: value(run, name, at) for name in names} for at in steps]
            _write_run(Path(runs_dir) / run.id, run, lines)


def write_record(runs_dir, experiment, runs):
    """``runs/experiments/<experiment>.json``."""
    rows = {}
    for run in runs:
        entry = {"id": run.id, "env": run.env, "model": run.model, "seed": run.seed}
        rows.setdefault((run.row, run.label), []).append(entry)
    listed = [{"name": name, "label": label, "runs": entries} for (name, label), entries in rows.items()]
    record = {"experiment": experiment, "title": experiment, "scale": runs[0].config["scale"], "rows": listed}
    path = Path(runs_dir) / "experiments" / f"{experiment}.json"
    write_json(path, record)


def invented(run_id, metric, step):
    """A share in [0, 1)."""
    text = f"{run_id} {metric} {step}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % 100_003 / 100_003


def metrics_of(run):
    """The shares that a run of its environment logs."""
    shop = run.config["env"]["name"] == "webshop"
    names = ("success_rate", *(["score"] if shop else [f"{family}/success_rate" for family in FAMILIES.values()]))
    return [f"val/{panel}/{name}" for panel in run.config["env"]["validation_panels"] for name in names]


def _write_run(folder, run, lines):
    folder.mkdir(parents=True, exist_ok=True)
    write_settings(folder, run.config)
    last = lines[-1]["step"]
    status = {"state": run.state, "step": last, "steps": last, "commit": "0123456789abcdef"}
    write_json(folder / "status.json", status)
    write_panels(folder, run.config)
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in whole(run.config, lines)))
