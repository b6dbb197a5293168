"""Configurations of runs and their values in print.

A configuration is all but seed and machine; runs of one configuration are repetitions. A setting is
all but seed, method and machine; runs of one setting may be compared.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from scpo.strict import MACHINE_SECTIONS

NOT_COMPARED = ("seed", "method", *MACHINE_SECTIONS)

# Ends of keys that a record leaves out while they have this default (``exclude_if`` in the
# schemas), so that the ids of older runs stay. Defaults that are null are not listed.
LEFT_OUT_DEFAULTS = {
    "estimator.states": "exact",
    "state_key": "anchor",
    "reference_buffer": "off",
    "dense": False,
    "amount": "similarity",
    "credited_states": "all",
    "added_to": "returns",
    "model.starts": 1,
    "skip_updates_without_advantage": False,
    "verl.attention": "auto",
    "verl.offload_training": False,
    "held_out": False,
    "wordings.dose": 0,
}

Panels: TypeAlias = Mapping[str, Any]


def configuration_of(config: Mapping[str, Any]) -> str:
    """The configuration without seed and machine, as JSON with sorted keys."""
    shared = {key: value for key, value in config.items() if key not in ("seed", *MACHINE_SECTIONS)}
    return json.dumps(shared, sort_keys=True, default=str)


def is_prompted(config: Mapping[str, Any]) -> bool:
    """True if a run only prompts a model and trains nothing."""
    method = config.get("method")
    return isinstance(method, dict) and method.get("kind") == "prompted"


def reworded_dose(config: Mapping[str, Any]) -> float:
    """Share of the observations that credit reads in other words than the game's; usually 0."""
    wordings = (config.get("env") or {}).get("wordings") or {}
    return float(wordings.get("dose", 0))


def short_hash(text: str) -> str:
    """First eight digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def values_of(configuration: str) -> dict[str, str]:
    """Key -> value in print of every setting of a configuration."""
    flat = dict(leaves(json.loads(configuration)))
    return {key: shown_value(flat, key) for key in flat}


def setting_of(config: dict[str, Any], panels: dict[str, Any]) -> str:
    """Hash of the panels and of the configuration without seed, method and machine."""
    shared = {key: value for key, value in config.items() if key not in NOT_COMPARED}
    text = json.dumps([shared, _panel_hashes(panels)], sort_keys=True, default=str)
    return short_hash(text)


def other_values(
    words: Iterable[str], config: Mapping[str, Any], example: Mapping[str, Any]
) -> str | None:
    """The values that a run has where words of a command line gave another run other ones.

    Args:
        words: Words such as ``trainer.steps=4``.
        config: Configuration of the run.
        example: Configuration of a run with these words.

    Returns:
        For example ``trainer.steps=40``; empty if the run has no such setting, or if a word names
        none; None if it has all the values.
    """
    own, given = dict(leaves(config)), dict(leaves(example))
    parts: list[str] = []
    unknown = False
    for word in words:
        path = word.lstrip("+").partition("=")[0].replace("/", ".").partition("@")[0]
        keys = [key for key in given if key in (path, f"{path}.name")]
        unknown = unknown or not keys
        for key in keys:
            if key not in own:
                unknown = True
            elif own[key] != given[key]:
                parts.append(f"{key.removesuffix('.name')}={shown_value(own, key)}")
    if parts:
        return ", ".join(parts)
    return "" if unknown else None


def same_games(panels: Panels, other: Panels) -> bool:
    """True if panels of equal name have the same tasks in both runs."""
    return not any(differing_panels(panels, other))


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of a configuration with their values; an empty section is a value."""
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def shown_value(flat: Mapping[str, Any], key: str) -> str:
    """The value of a dotted key in print; ``all`` for a panel whose number of games is null."""
    if key not in flat:
        return in_print(_left_out_default(flat, key))
    if key.endswith(".games") and flat[key] is None:
        return "all"
    return in_print(flat[key])


def _left_out_default(flat: Mapping[str, Any], key: str) -> Any:
    """The default of a setting that a record leaves out; None without one."""
    # A section that is switched off has no settings: `shaper: null`.
    if key.rpartition(".")[0] in flat:
        return None
    dotted = f".{key}"
    ends = (end for end in LEFT_OUT_DEFAULTS if dotted.endswith(f".{end}"))
    return next((LEFT_OUT_DEFAULTS[end] for end in ends), None)


def in_print(value: Any) -> str:
    """A value as configuration files write it; ``none`` for null."""
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def differing_panels(panels: Panels, other: Panels) -> Iterator[str]:
    """Describe each panel that has other tasks in the second run."""
    first = _panel_hashes(panels)
    second = _panel_hashes(other)
    for name in sorted(set(first) & set(second)):
        if first[name] != second[name]:
            yield f"other tasks in the panel {name}"


def _panel_hashes(panels: Panels) -> dict[str, Any]:
    return {name: panel.get("sha256") for name, panel in panels.items() if isinstance(panel, dict)}
