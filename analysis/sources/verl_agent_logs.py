"""Logs of verl-agent: its configuration and metric names in this project's words, so that old runs can be drawn too.

Names are those of verl-agent at commit 796ed31. ``val/text/test_score`` is left out: it averages
over step rows, so that long episodes count more often.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from scpo.schema import FAMILIES

SCORE = "webshop_task_score (not success_rate)"
ESTIMATORS = {"gae": "ppo"}  # the other names of ``algorithm.adv_estimator`` are ours too
PANELS = {"eval_in_distribution": "valid_seen", "eval_out_of_distribution": "valid_unseen"}
FAMILY_NAMES = {family.removesuffix("_simple"): family for family in FAMILIES.values()}
TRAINING = {
    "episode/success_rate": "train/success_rate",
    f"episode/{SCORE}": "train/score",
    "episode/length/mean": "train/episode_length",
}
# What the rows of one table must share: the benchmark, the budget and the optimisation.
SHARED = (
    ("env", ("env_name", "max_steps", "history_length", "rollout", "alfworld", "webshop")),
    ("data", ("train_batch_size", "val_batch_size", "max_prompt_length", "max_response_length")),
    ("trainer", ("total_epochs", "total_training_steps", "test_freq")),
)


def is_verl_agent(config: Mapping[str, Any]) -> bool:
    """Whether a run's configuration is one of verl-agent."""
    return (
        "actor_rollout_ref" in config
        and isinstance(config.get("env"), dict)
        and "env_name" in config["env"]
    )


def head_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of our own configuration that analysis reads. Raises KeyError for one that is not complete."""
    env = config["env"]
    name = str(config["algorithm"]["adv_estimator"]).lower()
    method = "scpo" if _hooked_with_shaper(config) else ESTIMATORS.get(name, name)
    return {
        "scale": "paper",  # it trains language models only
        "seed": env.get("seed", 0),
        "method": {"name": method},
        "env": {"name": str(env["env_name"]).partition("/")[0].lower()},
        "model": {"name": _size(str(config["actor_rollout_ref"]["model"]["path"]))},
    }


def _hooked_with_shaper(config: Mapping[str, Any]) -> bool:
    """Whether ``trainer=verl_agent`` started it for SCPO: the fork's configuration then names our run folder."""
    folder = str((config.get("scpo") or {}).get("run_folder", ""))
    return "-scpo-" in folder.rstrip("/").rpartition("/")[2]


def setting_of(config: Mapping[str, Any]) -> str:
    """Hash of what comparable runs share."""
    shared = [{key: config.get(section, {}).get(key) for key in keys} for section, keys in SHARED]
    return hashlib.sha256(json.dumps(shared, sort_keys=True, default=str).encode()).hexdigest()[:8]


def steps_of(config: Mapping[str, Any]) -> int | None:
    """Training steps that were planned."""
    trainer: Mapping[str, int | None] = config.get("trainer", {})
    return trainer.get("total_training_steps") or trainer.get("total_epochs")


def translate(line: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """The metrics of one step under our names; what has none here (``actor/*``, ``timing_s/*``) keeps its own."""
    panel = _panel(config)
    return {new: value for name, value in line.items() if (new := _name(name, panel))}


def _name(name: str, panel: str) -> str | None:
    if name in TRAINING:
        return TRAINING[name]
    if not name.startswith("val/"):
        return name
    rest = name.removeprefix("val/")
    if rest == "success_rate":
        return f"val/{panel}/success_rate"
    if rest == SCORE:
        return f"val/{panel}/score"
    family = FAMILY_NAMES.get(rest.removesuffix("_success_rate"))
    return f"val/{panel}/{family}/success_rate" if family else None


def _panel(config: Mapping[str, Any]) -> str:
    """verl-agent draws its validation games, so these are names of splits rather than of fixed panels."""
    env = config["env"]
    if str(env["env_name"]).lower().startswith("webshop"):
        return "test"
    chosen = str((env.get("alfworld") or {}).get("eval_dataset", "eval_in_distribution"))
    return PANELS.get(chosen, chosen)


def _size(path: str) -> str:
    found = re.search(
        r"(\d+(?:\.\d+)?B)(?![a-z])", path.rstrip("/").rpartition("/")[2], re.IGNORECASE
    )
    return found[1].upper() if found else path
