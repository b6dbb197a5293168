"""Builds run folders as the trainer and the sweep write them, with invented numbers, for the tests of analysis."""

import copy
import functools
import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from scpo.records import RunFolder
from scpo.records.archive_index import FORMAT, INDEX, METRICS, RUNS
from scpo.records.files import file_sum, read_yaml, sealed, write_bytes, write_json, write_yaml
from scpo.records.identity import recorded_id
from scpo.records.run_folders import TRAINING_PANELS
from scpo.schema.env import FAMILIES as FAMILIES_OF_GAMES
from scpo.strict import MACHINE_SECTIONS
from tests.support.whole_logs import whole

ROOT = Path(__file__).parents[2]
FAMILIES = tuple(FAMILIES_OF_GAMES.values())
PANELS = {
    "mini": {"valid_seen": 140, "valid_unseen": 134, "train_games": 32},
    "paper": {"valid_seen": 140, "valid_unseen": 134},
}
LABELS = {
    "scpo": "SCPO (default)",
    "chronological": "chronological order",
    "no_monotonicity": "− monotonicity",
    "shortest_reference": "shortest reference",
}
SHAPERS = {
    "chronological": {"order": "chronological"},
    "no_monotonicity": {"monotonic": False},
    "shortest_reference": {"reference": "shortest"},
}
RISE = {"train_games": 0.45, "valid_seen": 0.03, "valid_unseen": 0.0}


@functools.cache
def _composed(scale, *overrides):
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return OmegaConf.to_container(compose("config", overrides=[f"scale={scale}", *overrides]), resolve=True)


def config(scale="mini", row="scpo", seed=0, overrides=(), **trainer):
    """A whole run config: of a row of the ablation, or of what the overrides name."""
    made = copy.deepcopy(_composed(scale, *overrides))
    made["seed"] = seed
    made["trainer"] |= trainer
    if row in SHAPERS:
        made["method"]["shaper"] |= SHAPERS[row]
    return made


def write_run(
    runs_dir, row="scpo", seed=0, *, scale="mini", state="DONE", steps=40, every=10, probes=(), overrides=(),
    sums=False, panels=None, **trainer,
):  # fmt: skip
    """One run folder; returns its entry in the experiment record.

    ``sums``: with its files' checksums. ``panels``: the only ones that it validates on.
    """
    made = config(scale, row, seed, overrides, steps=steps, **trainer)
    if panels is not None:
        made["env"]["validation_panels"] = {name: made["env"]["validation_panels"][name] for name in panels}
    run = {"id": recorded_id(made), "env": made["env"]["name"], "model": made["model"]["name"], "seed": seed}
    folder = Path(runs_dir) / run["id"]
    (folder / "diagnostics").mkdir(parents=True)
    write_settings(folder, made)
    write_json(folder / "status.json", {"state": state, "step": steps, "steps": steps, "commit": "0123456789abcdef"})
    write_panels(folder, made)
    numbers = np.random.default_rng([seed, len(row)])
    lines = whole(made, _metrics(numbers, scale, steps, every))
    validated = {f"val/{name}/" for name in made["env"]["validation_panels"]}
    write_lines(folder / "metrics.jsonl", [_without_other_panels(line, validated) for line in lines])
    write_lines(folder / "timing.jsonl", (_timing(step) for step in range(1, steps + 1)))
    for step in probes:
        write_probe(folder, step, numbers)
    if sums:
        names = ("metrics.jsonl", "timing.jsonl", "panels.json")
        RunFolder(folder).note_sums({name: file_sum(folder / name) for name in names})
    return run


def _without_other_panels(line, validated):
    return {key: line[key] for key in line if not key.startswith("val/") or key.startswith(tuple(validated))}


def write_settings(folder, made):
    """``config.yaml`` and ``identity.yaml``."""
    write_yaml(folder / "config.yaml", made, checked=True)
    write_yaml(folder / "identity.yaml", {name: made[name] for name in made if name not in MACHINE_SECTIONS})


def write_panels(folder, made):
    """``panels.json`` of a run with this configuration: one game of each panel."""
    names = (*TRAINING_PANELS, *made["env"]["validation_panels"])
    panels = {name: {"sha256": hashlib.sha256(name.encode()).hexdigest(), "tasks": [name]} for name in names}
    write_json(folder / "panels.json", panels)


def write_experiment(
    runs_dir,
    rows,
    *,
    name="ablation_monotonicity",
    scale="mini",
    title="Ablation: monotonic crediting",
    overrides=(),
    compared=(),
    labels=LABELS,
    asked_as=(),
):
    """``runs/experiments/<name>.json`` for {row name: [run, ...]}.

    ``compared``: pairs of rows that it names, by the area under validation. ``labels``: row name -> label.
    """
    listed = [{"name": row, "label": labels.get(row, row), "runs": runs} for row, runs in rows.items()]
    record = {"experiment": name, "title": title, "scale": scale, "overrides": overrides, "rows": listed}
    if asked_as:
        record["asked_as"] = asked_as
    if compared:
        record["primary"] = {"measure": "validation_area", "comparisons": compared}
    write_json(Path(runs_dir) / "experiments" / f"{name}.json", record)


def write_ablation(runs_dir, rows=("scpo", "no_monotonicity"), seeds=(0, 1, 2), **settings):
    """Finished runs of an ablation with their record, and their ids by row."""
    made = {row: [write_run(runs_dir, row, seed, **settings) for seed in seeds] for row in rows}
    write_experiment(runs_dir, made, scale=settings.get("scale", "mini"))
    return {row: [run["id"] for run in runs] for row, runs in made.items()}


def write_probe(folder, step, numbers=None, *, found=True):
    """One probe file: a failed sibling that follows its reference more closely as training goes on."""
    path = Path(folder) / "diagnostics" / f"probe_step_{step:05d}.npz"
    head = {"found": found, "task": "pick_heat_then_place_in_recep", "step": step}
    if not found:
        np.savez(path, **head)
        return path
    numbers = np.random.default_rng(step) if numbers is None else numbers
    references, failures = int(numbers.integers(6, 14)), int(numbers.integers(12, 20))
    similarity = numbers.beta(1.2, 5, size=(references, failures)).astype(np.float32)
    for reference in range(references):
        similarity[reference, min(failures - 1, int(reference * 1.3))] = numbers.uniform(0.4 + step / 100, 1)
    np.savez(path, **head, **_walk(similarity, numbers))
    return path


def _walk(similarity, numbers, theta=0.6, soft_base=0.4):
    references, failures = similarity.shape
    stretches = np.array_split(numbers.permutation(failures), 4)
    order = np.concatenate([np.sort(part) for part in stretches]).astype(np.int32)
    credit, matched, walk, j = np.zeros(failures, np.float32), np.full(failures, -1, np.int32), [], -1
    for step in order:
        if j < references - 1 and similarity[j + 1, step] >= theta:
            j += 1
            credit[step], matched[step] = (similarity[j, step] - soft_base) / (1 - soft_base), j
        walk.append(j)
    texts = {"reference_text_m": np.array([f"go to shelf {u}" for u in range(references)])}
    texts["failed_text_l"] = np.array([f"open drawer {v}" for v in range(failures)])
    scalars = {"theta": np.float64(theta), "soft_base": np.float64(soft_base), "failed_slot": 3, "reference_slot": 1}
    arrays = {"similarity_ml": similarity, "credit_l": credit, "matched_l": matched, "order_l": order}
    return arrays | texts | scalars | {"walk_l": np.array(walk, np.int32)}


def log_only(runs_dir, run, metric, values):
    """Replace what a run logged by one metric: {step: value}; the last step is the run's last."""
    log_lines(Path(runs_dir) / run["id"], [{"step": s, metric: v} for s, v in values.items()])


def log_lines(folder, lines):
    """Replace what a run logged: a finished run has ended with the last of these lines."""
    lines = whole(read_yaml(Path(folder) / "config.yaml"), lines)
    write_lines(Path(folder) / "metrics.jsonl", lines)
    status = json.loads((Path(folder) / "status.json").read_text())
    write_json(Path(folder) / "status.json", status | {"step": lines[-1]["step"], "steps": lines[-1]["step"]})


def write_step_texts(folder, step, success, credited, *, groups=2, per_group=30):
    """Step texts of one batch: in each group every third step is of a success; ``credited`` repeat a success's text."""
    columns = {"group": [], "trajectory": [], "step": [], "text": [], "success": [], "credit": []}
    for row in range(groups * per_group):
        won = row % 3 == 0
        same = not won and row % 3 == 1
        place = row // 3 * 3 if same else row
        columns["group"].append(row // per_group)
        columns["trajectory"].append(row % 3)
        columns["step"].append(row // 3)
        columns["text"].append(f"{success if won or same else 'open'} shelf {place} || You see item {place + step}.")
        columns["success"].append(won)
        columns["credit"].append(1.0 if same and credited else 0.0)
    path = Path(folder) / "diagnostics" / f"step_texts_step_{step:05d}.npz"
    np.savez(path, **{name: np.array(values) for name, values in columns.items()})


def write_groups(folder, step):
    """One sampled group of a training step: three siblings, the reference of four steps, two failed steps credited."""
    texts = [f"go to shelf {i}" for i in range(5)] + [f"You arrive at shelf {i}." for i in range(5)]
    lengths = {0: 4, 1: 5, 2: 5}
    rows = [(trajectory, at) for trajectory, length in lengths.items() for at in range(length)]
    n = len(rows)
    credit = [1.0 if row in ((1, 0), (1, 1)) else 0.0 for row in rows]
    columns = {
        "trajectory": [trajectory for trajectory, _ in rows],
        "step": [at for _, at in rows],
        "action": [at for _, at in rows],
        "observation": [5 + at for _, at in rows],
        "state": [5 + at for _, at in rows],
        "valid": [True] * n,
        "kept": [row != (1, 4) for row in rows],
        "anchor_group": list(range(n)),
        "step_return": [0.0] * n,
        "bonus": [0.5 * one for one in credit],
        "credit": credit,
        "unshaped_advantage": [-0.5] * n,
        "advantage": [-0.5 + one for one in credit],
    }
    similarity = [[1.0 if u == v else 0.1 for v in range(4)] for u in range(4)]
    match = {"trajectory": 1, "steps": [0, 1, 2, 3], "similarity": similarity}
    match |= {"walk": [[0, 0], [1, 1], [2, -1]], "credited": [[0, 0, 1.0, 1.0], [1, 1, 1.0, 1.0]]}
    siblings = [
        {"trajectory": t, "episode_return": 10.0 * (t == 0), "success": t == 0, "steps": length}
        for t, length in lengths.items()
    ]
    group = {"group": 0, "task": "pick_and_place_simple", "siblings": siblings, "steps": columns, "texts": texts}
    group |= {"reference": {"trajectory": 0, "steps": [0, 1, 2, 3]}, "matches": [match]}
    record = {"step": step, "groups_in_batch": 8, "active_groups": 1, "groups": [group]}
    path = Path(folder) / "diagnostics" / f"groups_step_{step:05d}.json.gz"
    path.write_bytes(gzip.compress(json.dumps(record).encode(), mtime=0))


def _timing(step):
    stages = {"scoring": 0.5, "self_similarity": 0.1, "text": 0.01, "matching": 0.001, "accumulation": 0.001}
    line = {f"timing_s/scpo/{name}": seconds * (1 if step > 1 else 50) for name, seconds in stages.items()}
    return {"step": step, "timing_s/step": 2.0 + step / 100, "timing_s/scpo/metrics": 0.002, **line}


def _metrics(numbers, scale, steps, every):
    start, rise = numbers.uniform(0.3, 0.4), numbers.uniform(0.9, 1.1)
    for step in range(steps + 1):
        line = {"step": step}
        if step:
            success = start + rise * RISE["train_games"] * step / steps + numbers.normal(0, 0.04)
            line |= {
                "train/success_rate": float(np.clip(success, 0, 1)),
                "train/episode_length": 15.0,
                "actor/entropy": 0.4,
            }
            line |= {
                "credit/active_groups": 0.6,
                "credit/steps": 4.0 + step / 50,
                "credit/aux_mean": 0.03,
                "credit/effective": 0.4,
                "credit/shift_rms": 0.2,
                "credit/turned_positive": 0.1,
            }
        if step % every == 0:
            for panel, games in PANELS[scale].items():
                line |= _validation(numbers, panel, games, start + rise * RISE[panel] * step / steps)
        yield line


def _validation(numbers, panel, games, success):
    rates = np.clip(success + numbers.normal(0, 0.05, len(FAMILIES)), 0, 1)
    line = {f"val/{panel}/{family}/success_rate": float(rate) for family, rate in zip(FAMILIES, rates, strict=True)}
    return line | {f"val/{panel}/success_rate": float(rates.mean()), f"val/{panel}/episodes": games}


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def write_archive_index(folder, ids, experiments=()):
    """An archive of which a sweep reads the index and the checksums alone."""
    for name in (METRICS, RUNS):
        write_bytes(folder / name, b"a table")
    index = {
        "format": FORMAT,
        "files": {name: file_sum(folder / name).model_dump() for name in (METRICS, RUNS)},
        "runs": {run: {"line": "0", "metrics": "0"} for run in ids},
        "experiments": [sealed(record.model_dump(mode="json")) for record in experiments],
    }
    write_json(folder / INDEX, index)
