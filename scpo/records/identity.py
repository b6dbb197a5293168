"""Run id: a readable slug and a hash of the configuration."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from scpo.schema.method import MethodConfig
from scpo.schema.run import RunConfig
from scpo.strict import MACHINE_SECTIONS

HASH_LENGTH = 8

# The shaper's choices of the paper's table 4, and the word for another choice in a run id. They are
# here and not in conf/, so that an id depends only on the configuration: a default that changes
# later renames no run.
SHAPER_CHOICES: tuple[tuple[str, object, str], ...] = (
    ("matcher", "kmp", "{}"),
    ("monotonic", True, "no_monotonicity"),
    ("after_full_match", "stop", "{}"),
    ("theta", 0.6, "theta{}"),
    ("soft_base", 0.4, "lambda{}"),
    ("reference", "longest", "{}_reference"),
    ("order", "balanced", "{}"),
    ("step_text", "action_next_observation", "{}"),
    ("allocation", "matched", "{}"),
    ("reference_buffer", "off", "{}"),
    ("reference_max_age", None, "age{}"),
)


PAPERS_HOST = "gigpo"


def identity(config: RunConfig) -> dict[str, Any]:
    """The configuration without the sections that only affect where and how it runs."""
    return config.model_dump(mode="json", exclude=set(MACHINE_SECTIONS))


def digest(value: Any) -> str:
    """The sha256 of a value's canonical JSON: sorted keys, no spaces, ASCII."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def run_id(config: RunConfig) -> str:
    """For example ``alfworld-tiny-scpo-no_monotonicity-s0-4c541560``."""
    words = [
        config.env.benchmark,
        config.model.name,
        config.method.name,
        *_choices(config.method),
        f"s{config.seed}",
    ]
    return "-".join([*map(_slug, words), digest(identity(config))[:HASH_LENGTH]])


def is_id_of(name: str, config: Mapping[str, Any]) -> bool:
    """Return True if a folder's name is the id of the configuration recorded in it.

    Environment and model begin it, seed and hash end it; words between them, for method and
    choices, have changed with the code. The configuration is taken as it was recorded: one of an
    earlier version of the code has the hash that it had then.
    """
    recorded = {key: value for key, value in config.items() if key not in MACHINE_SECTIONS}
    try:
        env, model = _slug(config["env"]["name"]), _slug(config["model"]["name"])
        ending = f"s{config['seed']}-{digest(recorded)[:HASH_LENGTH]}"
    except (KeyError, ValueError, TypeError, AttributeError):  # nothing that a configuration has
        return False
    # A benchmark with settings is called by its setting too: webshop_paper.
    beginning = rf"{re.escape(env)}\w*-{re.escape(model)}"
    return re.fullmatch(rf"{beginning}(-[a-z0-9._]+)+-{ending}", name, re.ASCII) is not None


def settings_digest(config: RunConfig) -> str:
    """The hash of a configuration without its seed: equal for repetitions of one setting."""
    settings = identity(config)
    del settings["seed"]
    return digest(settings)[:HASH_LENGTH]


def _choices(method: MethodConfig) -> list[str]:
    if method.kind == "prompted" or method.shaper is None:
        return []
    values = method.shaper.model_dump(mode="json")
    host = [] if method.estimator.name == PAPERS_HOST else [f"on_{method.estimator.name}"]
    choices = []
    for name, paper, word in SHAPER_CHOICES:
        if values.get(name, paper) != paper:
            choices.append(word.format(values[name]))
    return host + choices


def _slug(word: str) -> str:
    """Letters, digits, dot and underscore only: safe in a path and in a shell."""
    return re.sub(r"[^a-z0-9._]+", "_", word.lower()).strip("._") or "x"
