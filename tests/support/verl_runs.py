"""Runs of real verl on the CPU, each a process of train.py: what the tests of them have in common."""

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WORDS = ["trainer=verl_cpu", "wandb.mode=disabled", "machine.device=cpu"]  # the usual warm start: one in eight wins


def run_command(runs, cache, *words):
    """The command of a run, its folder in ``runs``."""
    places = [f"machine.runs_dir={runs}", f"machine.cache_dir={cache}"]
    return [sys.executable, str(ROOT / "train.py"), *WORDS, *words, *places]


def warm_start_of(tmp_path_factory):
    """A cache for all runs, so that the policy is warm-started once."""
    return os.environ.get("SCPO_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))


def only_run(runs):
    (folder,) = (path.parent for path in runs.glob("*/config.yaml"))
    return folder


def lines(folder, name="metrics.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def shards(folder, step):
    """The checkpoint's weights, a file from each rank, in the order of ranks."""
    actor = folder / "checkpoints" / f"step_{step:05d}" / f"global_step_{step}" / "actor"
    return sorted(actor.glob("model_world_size_*_rank_*.pt"))
