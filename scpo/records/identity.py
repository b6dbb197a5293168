"""Run id: a readable slug and a hash of the configuration."""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from scpo.strict import MACHINE_SECTIONS

HASH_LENGTH = 8

# Key of a second copy of the configuration in W&B. In a W&B sweep, the sweep's parameters replace
# keys of the same name in the first copy.
WHOLE = "scpo"

# Form of W&B's run ids. An id of dots only is excluded, because ids become names of files.
RUN_ID = re.compile(r"(?!\.+$)[A-Za-z0-9_.-]{1,128}")

# (setting of the shaper, the paper's choice in table 4, word for another choice in a run id). The
# choices are not read from conf/, so that an id depends only on the run's configuration, and a
# change of a default does not rename runs.
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

# The host that is left out of run ids.
PAPERS_HOST = "gigpo"


def identity(config: BaseModel) -> dict[str, Any]:
    """The configuration without the sections that only affect where and how it runs."""
    return config.model_dump(mode="json", exclude=set(MACHINE_SECTIONS))


def digest(value: Any) -> str:
    """SHA-256 of a value's canonical JSON: sorted keys, no spaces, ASCII."""
    text = json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )
    return hashlib.sha256(text.encode()).hexdigest()


def run_id(config: BaseModel) -> str:
    """The run id, for example ``alfworld-tiny-scpo-no_monotonicity-s0-4c541560``."""
    return recorded_id(identity(config))


def recorded_id(config: Mapping[str, Any]) -> str:
    """The run id of a configuration in config.yaml, of any version of the schema.

    Raises:
        KeyError, ValueError, TypeError, AttributeError: This is not a run's configuration.
    """
    hashed = {key: value for key, value in config.items() if key not in MACHINE_SECTIONS}
    words = [
        _benchmark(config["env"]),
        config["model"]["name"],
        config["method"]["name"],
        *method_choices(config["method"]),
        f"s{config['seed']}",
    ]
    return "-".join([*map(_slug, words), digest(hashed)[:HASH_LENGTH]])


def is_id_of(name: str, config: Mapping[str, Any]) -> bool:
    """True if a folder's name is the id of the configuration recorded in it."""
    try:
        return name == recorded_id(config)
    except (KeyError, ValueError, TypeError, AttributeError):
        return False


def read_configuration(
    logged: Mapping[str, Any], wandb_id: str
) -> tuple[str, dict[str, Any], str | None]:
    """Run id, configuration and commit of a run, from the configuration that W&B has of it.

    Args:
        logged: The configuration in W&B, as ``WandbMirror`` sent it.
        wandb_id: The run's id in W&B, used if ``logged`` has no valid one.
    """
    whole = logged.get(WHOLE)
    sections = whole if isinstance(whole, dict) else logged
    config = {}
    for name, value in sections.items():
        if name not in (WHOLE, "run_id", "commit"):
            config[name] = value
    run_id = str(logged.get("run_id", wandb_id))
    # The id becomes a file name, and a server may send anything.
    if not RUN_ID.fullmatch(run_id):
        run_id = wandb_id
    commit = logged.get("commit")
    return run_id, config, None if commit is None else str(commit)


def settings_digest(config: BaseModel) -> str:
    """Hash of a configuration without its seed: equal for repetitions with other seeds."""
    settings = identity(config)
    del settings["seed"]
    return digest(settings)[:HASH_LENGTH]


def _benchmark(env: Mapping[str, Any]) -> str:
    """Name of the benchmark; each setting of WebShop is one (see ``WebshopConfig.benchmark``)."""
    if env.get("setting") == "paper":
        return f"{env['name']}_paper"
    return str(env["name"])


def method_choices(method: Mapping[str, Any]) -> list[str]:
    """Words for the estimator and the settings of the shaper that differ from the paper's."""
    shaper = method.get("shaper")
    if method.get("kind") == "prompted" or shaper is None:
        return []
    host = method["estimator"]["name"]
    choices = [] if host == PAPERS_HOST else [f"on_{host}"]
    for name, paper, word in SHAPER_CHOICES:
        if shaper.get(name, paper) != paper:
            choices.append(word.format(shaper[name]))
    return choices


def _slug(word: str) -> str:
    """The word in lower case, with only letters, digits, dots and underscores.

    So that it is safe in paths and shells; other characters become underscores.
    """
    return re.sub(r"[^a-z0-9._]+", "_", word.lower()).strip("._") or "x"
