"""Run id: a readable slug and a hash of the configuration."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from scpo.strict import MACHINE_SECTIONS

HASH_LENGTH = 8

# Key of a second copy of the configuration: in W&B sweeps, parameters replace keys of their name.
WHOLE = "scpo"

# W&B's run ids.
RUN_ID = re.compile(r"(?!\.+$)[A-Za-z0-9_.-]{1,128}")

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


def identity(config: BaseModel) -> dict[str, Any]:
    """The configuration without the sections that only affect where and how it runs."""
    return config.model_dump(mode="json", exclude=set(MACHINE_SECTIONS))


def digest(value: Any) -> str:
    """The sha256 of a value's canonical JSON: sorted keys, no spaces, ASCII."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def run_id(config: BaseModel) -> str:
    """For example ``alfworld-tiny-scpo-no_monotonicity-s0-4c541560``."""
    return recorded_id(identity(config))


def recorded_id(config: Mapping[str, Any]) -> str:
    """The run id of a configuration as config.yaml has it, of any version of the schema.

    Raises:
        KeyError, ValueError, TypeError, AttributeError: The configuration is not one of a run.
    """
    hashed = {key: value for key, value in config.items() if key not in MACHINE_SECTIONS}
    words = [
        _benchmark(config["env"]),
        config["model"]["name"],
        config["method"]["name"],
        *_choices(config["method"]),
        f"s{config['seed']}",
    ]
    return "-".join([*map(_slug, words), digest(hashed)[:HASH_LENGTH]])


def is_id_of(name: str, config: Mapping[str, Any]) -> bool:
    """Return True if a folder's name is the id of the configuration recorded in it."""
    try:
        return name == recorded_id(config)
    except (KeyError, ValueError, TypeError, AttributeError):
        return False


def read_configuration(
    logged: Mapping[str, Any], wandb_id: str
) -> tuple[str, dict[str, Any], str | None]:
    """Run id, configuration and commit of a run, from what ``WandbMirror`` sent of it."""
    whole = logged.get(WHOLE)
    sections = whole if isinstance(whole, dict) else logged
    config = {}
    for name, value in sections.items():
        if name not in (WHOLE, "run_id", "commit"):
            config[name] = value
    run_id = str(logged.get("run_id"))
    commit = logged.get("commit")
    # The id becomes a file name, and a server may answer anything.
    if not ("run_id" in logged and RUN_ID.fullmatch(run_id)):
        run_id = wandb_id
    return run_id, config, None if commit is None else str(commit)


def settings_digest(config: BaseModel) -> str:
    """The hash of a configuration without its seed: equal for repetitions of one setting."""
    settings = identity(config)
    del settings["seed"]
    return digest(settings)[:HASH_LENGTH]


def _benchmark(env: Mapping[str, Any]) -> str:
    """WebShop's two settings are two benchmarks; see ``WebshopConfig.benchmark``."""
    if env.get("setting") == "paper":
        return f"{env['name']}_paper"
    return str(env["name"])


def _choices(method: Mapping[str, Any]) -> list[str]:
    values = method.get("shaper")
    if method.get("kind") == "prompted" or values is None:
        return []
    host = method["estimator"]["name"]
    choices = [] if host == PAPERS_HOST else [f"on_{host}"]
    for name, paper, word in SHAPER_CHOICES:
        if values.get(name, paper) != paper:
            choices.append(word.format(values[name]))
    return choices


def _slug(word: str) -> str:
    """Letters, digits, dot and underscore only: safe in a path and in a shell."""
    return re.sub(r"[^a-z0-9._]+", "_", word.lower()).strip("._") or "x"
