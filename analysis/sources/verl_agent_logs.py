"""Translate verl-agent's configuration and metric names into ours.

The names are those of verl-agent at commit 796ed31. ``val/text/test_score`` is left out: it
averages over steps and not over episodes, so long episodes have more weight.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from scpo.schema.env import FAMILIES

SCORE = "webshop_task_score (not success_rate)"

# Names of ``algorithm.adv_estimator`` that differ from ours.
ESTIMATORS = {"gae": "ppo"}
PANELS = {
    "eval_in_distribution": "valid_seen",
    "eval_out_of_distribution": "valid_unseen",
}
FAMILY_NAMES = {family.removesuffix("_simple"): family for family in FAMILIES.values()}
TRAINING = {
    "episode/success_rate": "train/success_rate",
    f"episode/{SCORE}": "train/score",
    "episode/length/mean": "train/episode_length",
}

# Keys that the rows of one table must share: the benchmark, the budget and the optimisation.
SHARED = (
    ("env", ("env_name", "max_steps", "history_length", "rollout", "alfworld", "webshop")),
    ("data", ("train_batch_size", "val_batch_size", "max_prompt_length", "max_response_length")),
    ("trainer", ("total_epochs", "total_training_steps", "test_freq")),
)


def is_verl_agent(config: Mapping[str, Any]) -> bool:
    """True for a configuration of verl-agent."""
    env = config.get("env")
    return "actor_rollout_ref" in config and isinstance(env, dict) and "env_name" in env


def head_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """The part of the configuration that the analysis reads, in our terms.

    Raises:
        KeyError: The configuration is incomplete.
    """
    env = config["env"]
    name = str(config["algorithm"]["adv_estimator"]).lower()
    method = ESTIMATORS.get(name, name)
    if _has_our_shaper(config):
        method = "scpo"
    path = str(config["actor_rollout_ref"]["model"]["path"])
    return {
        # verl-agent trains language models only.
        "scale": "paper",
        "seed": env.get("seed", 0),
        "method": {"name": method},
        "env": {"name": str(env["env_name"]).partition("/")[0].lower()},
        "model": {"name": _model_size(path)},
    }


def _has_our_shaper(config: Mapping[str, Any]) -> bool:
    """True if our ``trainer=verl_agent`` started the run for SCPO.

    The configuration then has the path of our run folder, whose name has the method.
    """
    folder = str((config.get("scpo") or {}).get("run_folder", ""))
    return "-scpo-" in folder.rstrip("/").rpartition("/")[2]


def setting_of(config: Mapping[str, Any]) -> str:
    """Hash of the keys that comparable runs share."""
    shared = []
    for section, keys in SHARED:
        values = config.get(section, {})
        shared.append({key: values.get(key) for key in keys})
    text = json.dumps(shared, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def steps_of(config: Mapping[str, Any]) -> int | None:
    """Planned number of training steps; None if unknown."""
    trainer: Mapping[str, int | None] = config.get("trainer", {})
    # In verl-agent, an epoch is one step.
    return trainer.get("total_training_steps") or trainer.get("total_epochs")


def translate(line: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """Metrics of one step with our names.

    Metrics without a counterpart (``actor/*``, ``timing_s/*``) keep their names; unknown ``val/*``
    metrics are dropped.
    """
    panel = _panel(config)
    translated = {}
    for name, value in line.items():
        if new := _name(name, panel):
            translated[new] = value
    return translated


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
    if not family:
        return None
    return f"val/{panel}/{family}/success_rate"


def _panel(config: Mapping[str, Any]) -> str:
    """Name of the panel of a run's validation.

    The name is that of a split and not of a fixed panel, because verl-agent draws its games.
    """
    env = config["env"]
    if str(env["env_name"]).lower().startswith("webshop"):
        return "test"
    split = str((env.get("alfworld") or {}).get("eval_dataset", "eval_in_distribution"))
    return PANELS.get(split, split)


def _model_size(path: str) -> str:
    """Size of a model in its path, e.g. ``1.5B``; the whole path if it has no size."""
    name = path.rstrip("/").rpartition("/")[2]
    size = re.search(r"(\d+(?:\.\d+)?B)(?![a-z])", name, re.IGNORECASE)
    return size[1].upper() if size else path
