"""``python -m sweeps export RUN``: a run's configuration as an experiment for sweep.py."""

import json
import re
from collections.abc import Iterator
from typing import Any

import yaml

from scpo.errors import ConfigError
from scpo.records import RunFolder, run_config
from scpo.records.identity import identity, run_id
from scpo.schema.run import LauncherConfig, RunConfig
from sweeps.compose.configuration import compose_run
from sweeps.compose.overrides import options

# Config groups whose settings enter the run's id.
GROUPS = ("env", "method", "model", "trainer", "scorer")

# Config groups that an experiment chooses by its axes, not by the overrides of its rows.
AXES = ("env", "model")

# Strings that Hydra's grammar takes without quotes.
PLAIN = re.compile(r"[A-Za-z0-9_.+-]+")


def experiment_yaml(folder: RunFolder) -> str:
    """Express one run as an experiment: the files that it chooses, and the values that differ.

    Raises:
        ConfigError: The present configuration files cannot express the run, e.g. a key was renamed.
        RecordError: The folder's name and its configuration disagree, or the folder is damaged.
    """
    config = run_config.check(folder)
    scale = f"scale={config.scale}"
    choices: dict[str, str] = {}
    for group in GROUPS:
        choices[group] = _nearest(config, group, [scale, *_words(choices)])
    host = _host(config, choices["method"])
    words = [scale, *_words(choices), f"seed={config.seed}", *host]
    differing = _remaining_overrides(words, config, folder.run_id)
    not_axes = {group: choice for group, choice in choices.items() if group not in AXES}
    overrides = [*_words(not_axes), *host, *differing]
    row = {"name": _name(config), "label": config.method.name, "overrides": overrides}
    experiment = {
        "name": _name(config),
        "title": f"As run {folder.run_id}",
        # The file has only what differs from the present files of conf/, which may change later.
        "of_run": folder.run_id,
        "axes": {
            "env": [choices["env"]],
            "model": {config.scale: [choices["model"]]},
            "seeds": {config.scale: [config.seed]},
        },
        "rows": [row],
    }
    # Hydra needs the first line to read the file at the top level of a configuration.
    head = (
        f"# @package _global_\n# The configuration of {folder.run_id}, for scale={config.scale}.\n"
    )
    return head + yaml.safe_dump(
        {"experiment": experiment}, sort_keys=False, allow_unicode=True, width=100
    )


def _remaining_overrides(words: list[str], config: RunConfig, wanted_id: str) -> list[str]:
    """Overrides that, after ``words``, compose the run of this id; ``config`` is its record.

    Raises:
        ConfigError: They compose another run.
    """
    composed = identity(compose_run(words))
    differing = []
    for key, value in _differences(composed, identity(config)):
        differing.append(f"{_sign(key, composed)}{key}={_value(value)}")
    # The id holds a hash of all settings that affect the result, so equal ids prove the export.
    if run_id(compose_run([*words, *differing])) == wanted_id:
        return differing
    # Tried second, because records also lack settings that are off.
    differing += [f"~{key}" for key in _deletions(composed, identity(config))]
    if run_id(compose_run([*words, *differing])) == wanted_id:
        return differing
    raise ConfigError(
        f"{wanted_id} cannot be written as an experiment: the present configuration files, "
        f"with {' '.join(differing) or 'no overrides'}, compose another run. Write it with the "
        "version of the code that made it"
    )


def _words(choices: dict[str, str]) -> list[str]:
    return [f"{group}={choice}" for group, choice in choices.items()]


def _sign(key: str, composed: dict[str, Any]) -> str:
    """``+`` for a panel that the files do not have, such as that of a search's trial."""
    section, _, name = key.rpartition(".")
    is_panel = section == "env.validation_panels"
    return "+" if is_panel and name not in composed["env"]["validation_panels"] else ""


def _host(config: RunConfig, method: str) -> list[str]:
    """Override that chooses the estimator under SCPO's credit, unless it is the method's own."""
    if config.method.kind == "prompted" or config.method.shaper is None:
        return []
    usual = compose_run([f"method={method}"]).trained.estimator.name
    chosen = config.method.estimator.name
    return [f"method.host={chosen}"] if chosen != usual else []


def launcher_words(launcher: LauncherConfig) -> list[str]:
    """Overrides that choose a launcher with these settings; none for the default."""
    default = compose_run([]).launcher
    if launcher == default:
        return []
    # Files of the same launcher, such as those of two clusters, differ in values only. The one that
    # needs the fewest overrides is chosen.
    words_by_file = []
    for choice in options("launcher"):
        composed = _launcher(choice)
        if composed.name != launcher.name:
            continue
        chosen = [] if composed == default else [f"launcher={choice}"]
        differences = _differences(composed.model_dump(), launcher.model_dump())
        changed = [f"launcher.{key}={_value(value)}" for key, value in differences]
        words_by_file.append([*chosen, *changed])
    return min(words_by_file, key=len, default=[])


def machine_words(config: RunConfig) -> list[str]:
    """Overrides of ``wandb`` and ``machine`` for the values of this run that are not the defaults.

    Records of experiments leave them out, because they affect no result. ``machine.runs_dir`` is
    left to the caller.
    """
    default = compose_run([f"scale={config.scale}"])
    words = []
    for section in ("wandb", "machine"):
        old = getattr(default, section).model_dump()
        new = getattr(config, section).model_dump()
        words += [f"{key}={_value(value)}" for key, value in _differences(old, new, section)]
    return [word for word in words if not word.startswith("machine.runs_dir=")]


def _launcher(choice: str) -> LauncherConfig:
    return compose_run([f"launcher={choice}"]).launcher


def _nearest(config: RunConfig, group: str, words: list[str]) -> str:
    """The file of a group that composes to the run's settings, else the closest one.

    The closest one is a file with the ``name`` in the run's settings, if there is one: a method
    that has another name than its file is refused where a label depends on the name. Of several
    files, the closest differs in the fewest values.
    """
    wanted = identity(config)
    closest: tuple[bool, int, str] | None = None
    named = wanted[group]["name"]
    # The file with the run's name first, because it nearly always fits.
    for choice in sorted(options(group), key=lambda choice: choice != named):
        try:
            composed = identity(compose_run([*words, f"{group}={choice}"]))
        except ConfigError:
            # The choice does not exist with this environment or scale.
            continue
        if composed[group] == wanted[group]:
            return choice
        other_name = composed[group]["name"] != named
        found = other_name, len(list(_differences(composed, wanted))), choice
        if closest is None or found[:2] < closest[:2]:
            closest = found

    if closest is None:
        raise ConfigError(f"no {group} of conf/{group} can be composed with {' '.join(words)}")
    return closest[2]


def _differences(old: Any, new: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and new values of the leaves that differ.

    Keys that only ``old`` has are ignored: records leave out settings that are off.
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for name in new:
            yield from _differences(old.get(name), new[name], f"{key}.{name}" if key else name)
    elif old != new:
        yield key, new


def _deletions(old: Any, new: Any, key: str = "") -> Iterator[str]:
    """Dotted keys that only ``old`` has, such as those of a panel that a run leaves out."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in old:
            path = f"{key}.{name}" if key else name
            if name in new:
                yield from _deletions(old[name], new[name], path)
            else:
                yield path


def _value(value: Any) -> str:
    """A value in Hydra's grammar."""
    if isinstance(value, str) and PLAIN.fullmatch(value):
        return value
    if isinstance(value, list):
        return f"[{','.join(map(_value, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{name}:{_value(inner)}" for name, inner in value.items()) + "}"
    return json.dumps(value)


def _name(config: RunConfig) -> str:
    name = f"{config.method.name}_{config.env.benchmark}_s{config.seed}"
    return re.sub(r"[^a-z0-9]+", "_", name.lower())
