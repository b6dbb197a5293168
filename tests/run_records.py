"""Builds run folders as the trainer and the sweep write them, with invented numbers, for the tests of analysis."""

import copy
import functools
import hashlib
import json
from pathlib import Path

import numpy as np
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

ROOT = Path(__file__).parents[1]
FAMILIES = (
    *("pick_and_place_simple", "look_at_obj_in_light", "pick_clean_then_place_in_recep"),
    *("pick_heat_then_place_in_recep", "pick_cool_then_place_in_recep", "pick_two_obj_and_place"),
)
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
RISE = {"train_games": 0.45, "valid_seen": 0.03, "valid_unseen": 0.0}


@functools.cache
def _composed(scale):
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return OmegaConf.to_container(compose("config", overrides=[f"scale={scale}"]), resolve=True)


def config(scale="mini", row="scpo", seed=0, **trainer):
    """A whole run config of one row of the ablation."""
    made = copy.deepcopy(_composed(scale))
    made["seed"] = seed
    made["trainer"] |= trainer
    made["method"]["shaper"] |= {
        "chronological": {"order": "chronological"},
        "no_monotonicity": {"monotonic": False},
        "shortest_reference": {"reference": "shortest"},
    }.get(row, {})
    return made


def write_run(runs_dir, row="scpo", seed=0, *, scale="mini", state="DONE", steps=40, every=10, probes=(), **trainer):
    """One run folder; returns what the experiment record says of it."""
    made = config(scale, row, seed, steps=steps, **trainer)
    suffix = hashlib.sha256(json.dumps(made, sort_keys=True).encode()).hexdigest()[:8]
    model = made["model"]["name"]
    run = {
        "id": f"alfworld-{model}-{row}-s{seed}-{suffix}",
        "env": "alfworld",
        "model": model,
        "seed": seed,
    }
    folder = Path(runs_dir) / run["id"]
    (folder / "diagnostics").mkdir(parents=True)
    (folder / "config.yaml").write_text(yaml.safe_dump(made, sort_keys=False))
    write_json(folder / "provenance.json", {"commit": "0123456789abcdef", "host": "node"})
    write_json(folder / "status.json", {"state": state, "step": steps, "steps": steps})
    panels = {name: {"sha256": hashlib.sha256(name.encode()).hexdigest(), "tasks": [name]} for name in PANELS[scale]}
    write_json(folder / "panels.json", panels)
    numbers = np.random.default_rng([seed, len(row)])
    write_lines(folder / "metrics.jsonl", _metrics(numbers, scale, steps, every))
    write_lines(
        folder / "timing.jsonl", ({"step": step, "timing_s/step": 2.0 + step / 100} for step in range(1, steps + 1))
    )
    for step in probes:
        write_probe(folder, step, numbers)
    return run


def write_experiment(
    runs_dir, rows, *, name="ablation_monotonicity", scale="mini", title="Ablation: monotonic crediting"
):
    """``runs/experiments/<name>.json`` for {row name: [run, ...]}."""
    listed = [{"name": row, "label": LABELS[row], "runs": runs} for row, runs in rows.items()]
    record = {"experiment": name, "title": title, "scale": scale, "rows": listed}
    write_json(Path(runs_dir) / "experiments" / f"{name}.json", record)


def write_ablation(runs_dir, rows=("scpo", "no_monotonicity"), seeds=(0, 1, 2), **settings):
    """Finished runs of an ablation with their record, and their ids by row."""
    made = {row: [write_run(runs_dir, row, seed, **settings) for seed in seeds] for row in rows}
    write_experiment(runs_dir, made, scale=settings.get("scale", "mini"))
    return {row: [run["id"] for run in runs] for row, runs in made.items()}


def write_probe(folder, step, numbers=None, *, found=True):
    """One probe file: a failed sibling that follows its reference more closely as training goes on."""
    path = Path(folder) / "diagnostics" / f"probe_step_{step:05d}.npz"
    task = np.array("pick_heat_then_place_in_recep")
    if not found:
        np.savez(path, found=np.array(False), task=task)
        return path
    numbers = np.random.default_rng(step) if numbers is None else numbers
    references, failures = int(numbers.integers(6, 14)), int(numbers.integers(12, 20))
    similarity = numbers.beta(1.2, 5, size=(references, failures)).astype(np.float32)
    for reference in range(references):
        similarity[reference, min(failures - 1, int(reference * 1.3))] = numbers.uniform(0.4 + step / 100, 1)
    np.savez(path, found=np.array(True), task=task, **_walk(similarity, numbers))
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
            }
        if step % every == 0:
            for panel, games in PANELS[scale].items():
                line |= _validation(numbers, panel, games, start + rise * RISE[panel] * step / steps)
        yield line


def _validation(numbers, panel, games, success):
    rates = np.clip(success + numbers.normal(0, 0.05, len(FAMILIES)), 0, 1)
    line = {f"val/{panel}/{family}/success_rate": float(rate) for family, rate in zip(FAMILIES, rates, strict=True)}
    return line | {f"val/{panel}/success_rate": float(rates.mean()), f"val/{panel}/episodes": games}


def write_json(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
