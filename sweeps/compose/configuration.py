"""Compose and validate a RunConfig from Hydra overrides; all problems become ConfigErrors."""

import contextlib
import copy
import functools
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigAttributeError, ConfigKeyError, OmegaConfBaseException
from pydantic import ValidationError
from yaml import MarkedYAMLError, YAMLError

from scpo.errors import ConfigError, first_line
from scpo.records.files import yaml_problem
from scpo.schema.experiment import Experiment
from scpo.schema.parts import check_names
from scpo.schema.run import RunConfig
from scpo.strict import Scale
from sweeps.compose.hints import (
    explain_hydra,
    explain_interpolation,
    explain_key,
    explain_sweep_word,
    explain_validation,
)
from sweeps.compose.overrides import CONF, FOLDERS, Override, file_of, parse, parse_all, where_is

SWEEP_KEYS = ("experiment", "search", "dry_run")

# An interpolation whose target is known only when it is resolved: it contains another one in its
# first part (${a${b}}), after a leading dot or in a resolver's arguments.
COMPUTED_KEY = re.compile(r"\$\{([^}.]*|\.[^}]*|[^}]*:[^}]*)\$\{")


def compose_run(texts: Sequence[str]) -> RunConfig:
    """Compose and validate the configuration of one run."""
    overrides = parse_all(texts)
    for override in overrides:
        if override.key in SWEEP_KEYS:
            override.check()
            raise ConfigError(explain_sweep_word(override.text, override.key))
    return validate_run(resolve(compose_raw(overrides)))


def compose_experiment(name: str, overrides: Sequence[Override] = ()) -> tuple[Experiment, Scale]:
    """Read an experiment, as its file has it, and its scale.

    ``name``: a YAML file, or the name of one in ``conf/experiment``, ours or that of an installed
    package.
    """
    path = Path(name)
    if path.suffix != ".yaml":
        parse(f"+experiment={name}").check()
        path = file_of("experiment", name)
    section = _experiment_section(path)
    # Composed rather than read from the overrides: the default of `scale` is in conf/config.yaml.
    scale: Scale = resolve(compose_raw(overrides))["scale"]
    where = where_is(path) if path.is_relative_to(CONF) else name
    try:
        experiment = Experiment.model_validate(section)
    except ValidationError as error:
        raise ConfigError(f"{where}:\n{explain_validation(error, Experiment)}") from error
    # Runs are recorded under the name: a copied file that keeps it would replace the original's
    # record.
    named = any(path.parent == folder / "experiment" for folder in FOLDERS)
    if named and experiment.name != path.stem:
        raise ConfigError(
            f"{where}: experiment.name is {experiment.name}; it must be the file's name, "
            f"{path.stem}"
        )
    return experiment, scale


def _experiment_section(path: Path) -> Any:
    """Read the section ``experiment`` of a file: of conf/, or a user's own (a search's winner)."""
    try:
        data = OmegaConf.to_container(OmegaConf.load(path), resolve=True)
    except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"+experiment={path}: cannot be read: {error}") from None
    if not isinstance(data, dict) or "experiment" not in data:
        raise ConfigError(
            f"+experiment={path}: has no section `experiment`; conf/experiment/ shows how to "
            "write one"
        )
    return data["experiment"]


def compose_raw(overrides: Sequence[Override]) -> DictConfig:
    """Compose the overrides as ``hydra.compose`` does, interpolations unresolved.

    Composing files is slow, so it happens once for all configurations that choose the same files.
    Plain ``key=value`` overrides are then set by the same call that Hydra uses. Do not modify the
    result: without plain overrides it is the cached object.
    """
    for override in overrides:
        override.check()
    choices = _choices(overrides)
    rest = [override for override in overrides if not override.is_choice]
    if all(override.sets for override in rest):
        raw = compose_files(choices)
        if rest:
            raw = copy.deepcopy(raw)
        for override in rest:
            _set(raw, override, choices)
    else:
        raw = compose_files(tuple(overrides))
    _refuse_host_without_shaper(raw, overrides)
    return _named_after_paths(raw, overrides)


def _named_after_paths(raw: DictConfig, overrides: Sequence[Override]) -> DictConfig:
    """Name a model or scorer after its path if that is another one's than its file's.

    Otherwise ids, tables and figures would give the user's own weights the name of the file's
    model, such as Qwen2.5-1.5B-Instruct. A copy of the file's model keeps its name, and a name
    that was given is left.
    """
    given = {override.key for override in overrides if not override.is_choice}
    sections = {key.partition(".")[0] for key in given} & {"model", "scorer"}
    # Without the given name, the file's own may be refused as that of another file.
    sections -= {section for section in sections if f"{section}.name" in given}
    if not sections:
        return raw
    usual = compose_files(_choices(overrides))
    names = {}
    for section in sections:
        path, usual_path = (_value(each, f"{section}.path") for each in (raw, usual))
        # Problems of a value that is not text are explained once the configuration is checked.
        if not isinstance(path, str) or not isinstance(usual_path, str):
            continue
        name = _name_of_path(path)
        same_name = _value(raw, f"{section}.name") == _value(usual, f"{section}.name")
        if same_name and name != _name_of_path(usual_path):
            names[section] = name
    if names:
        raw = copy.deepcopy(raw)
        for section, name in names.items():
            raw[section].name = name
    return raw


def _value(raw: DictConfig, key: str) -> Any:
    """Value of a key, interpolations filled in; None if it is missing or they cannot be."""
    try:
        return OmegaConf.select(raw, key)
    except OmegaConfBaseException:
        return None


def _name_of_path(path: str) -> str:
    """Name of a model by its folder or its name on the hub."""
    for part in Path(path).parts:
        # The hub's cache: models--Qwen--Qwen2.5-1.5B-Instruct/snapshots/<commit>.
        if part.startswith("models--"):
            return part.rpartition("--")[2]
    return Path(os.path.abspath(path)).name


@functools.lru_cache(maxsize=1024)
def compose_files(overrides: tuple[Override, ...]) -> DictConfig:
    """Compose the overrides with Hydra. The result is cached: do not modify it."""
    asked = [override.for_hydra for override in overrides]
    installed = [folder.as_uri() for folder in FOLDERS[1:]]
    if installed:
        # Installed packages bring folders of configuration files, which Hydra searches after conf/.
        asked.insert(0, f"hydra.searchpath={json.dumps(installed)}")
    try:
        with hydra.initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
            composed = hydra.compose("config", overrides=asked, return_hydra_config=True)
    except MarkedYAMLError as error:
        raise ConfigError(_yaml_message(error)) from None
    except UnicodeDecodeError as error:
        names = ", ".join(str(where_is(path)) for path in _not_utf8()) or "a configuration file"
        raise ConfigError(f"{names}: not UTF-8 text: {error}. Save it as UTF-8") from None
    except RecursionError:
        asked_for = " ".join(str(override) for override in _choices(overrides)) or "no choice"
        raise ConfigError(
            f"{asked_for}: a defaults list in {where_is(CONF)} includes its own file, directly or "
            "through others. A method includes another one as `- scpo`; `/method@_here_: scpo` "
            "includes the method that was chosen, which is the file itself"
        ) from None
    except (HydraException, OmegaConfBaseException, OSError, TypeError, ValueError) as error:
        raise ConfigError(
            explain_hydra(error, overrides, lambda: _chosen_configuration(overrides), RunConfig)
        ) from None
    chosen = composed.hydra.runtime.choices
    with open_dict(composed):
        del composed["hydra"]
    check_names(composed, chosen, [each.key for each in overrides if not each.is_choice])
    return composed


def _yaml_message(error: MarkedYAMLError) -> str:
    """Message with the file and line of a YAML file that cannot be parsed."""
    mark = error.problem_mark or error.context_mark
    path = Path(mark.name) if mark else CONF
    return yaml_problem(where_is(path), error)


def _not_utf8() -> Iterator[Path]:
    """Configuration files that cannot be decoded. Python's error does not name the file."""
    for folder in FOLDERS:
        for path in sorted(folder.rglob("*.yaml")):
            try:
                path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                yield path


def _choices(overrides: Sequence[Override]) -> tuple[Override, ...]:
    return tuple(override for override in overrides if override.is_choice)


def _set(raw: DictConfig, override: Override, choices: tuple[Override, ...]) -> None:
    """Set a plain override in a composition of ``choices``."""
    try:
        # Merged, as in Hydra: a mapping changes only the keys that it names.
        OmegaConf.update(raw, override.target, override.value, merge=True)
    except (ConfigAttributeError, ConfigKeyError) as error:
        # In a mapping such as method={nme: x}, the wrong key is below that of the override.
        failed_key = str(error.full_key)
        wrong = failed_key if failed_key.startswith(f"{override.key}.") else override.text
        raise ConfigError(explain_key(wrong, resolve(compose_files(choices)), RunConfig)) from None
    except OmegaConfBaseException as error:
        raise ConfigError(f"Error merging override {override}: {first_line(error)}") from None


def resolve(raw: DictConfig) -> dict[str, Any]:
    """Fill in the interpolations."""
    try:
        return dict(OmegaConf.to_container(raw, resolve=True))  # type: ignore[arg-type]
    except OmegaConfBaseException as error:
        raise ConfigError(
            explain_interpolation(error, OmegaConf.to_container(raw, resolve=False))
        ) from None


def refers_to(raw: DictConfig, key: str) -> bool:
    """Return True if an interpolation may refer to the key.

    One may if it contains the key, or if its own first part is computed (``COMPUTED_KEY``). For
    ``seed``, ``${env.settings.${env.setting}.reward}`` does not: its first part is ``env``.
    """
    for text in _texts(OmegaConf.to_container(raw, resolve=False)):
        if "${" in text and (key in text or COMPUTED_KEY.search(text)):
            return True
    return False


def _texts(data: Any) -> Iterator[str]:
    """All text values in a configuration, at any depth."""
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict):
        for value in data.values():
            yield from _texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value)


def validate_run(data: dict[str, Any]) -> RunConfig:
    """Check a composed configuration against the schema.

    The section ``experiment`` is ignored: it describes the sweep, not the run.
    """
    settings = {key: value for key, value in data.items() if key != "experiment"}
    _refuse_empty_folders(settings.get("machine"))
    try:
        config = RunConfig.model_validate(settings)
    except ValidationError as error:
        lines = [explain_validation(error, RunConfig), *_files_with_unknown_names(error)]
        raise ConfigError("\n".join(lines)) from None
    _refuse_nothing_of_scpo(config)
    return config


def _refuse_nothing_of_scpo(config: RunConfig) -> None:
    """Refuse SCPO without its shaper: ids and tables would call a run of its host SCPO.

    Not in the schema, which also reads the records of such runs.
    """
    method = config.method
    if method.kind == "trained" and method.name == "scpo" and method.shaper is None:
        raise ConfigError(
            "method.shaper=null: method=scpo without its shaper is its host, in runs and rows that "
            f"are called scpo; write method={method.estimator.name}"
        )


def _refuse_empty_folders(machine: Any) -> None:
    """Refuse a folder with an empty name, which would be the current folder.

    Not in the schema, which also reads the records of runs that such a command made before.
    """
    if not isinstance(machine, Mapping):
        return
    meant = {
        "runs_dir": "machine.runs_dir=. for the current one",
        "cache_dir": "machine.cache_dir=. for the current one",
        "archive": "machine.archive=null for none",
    }
    for name, otherwise in meant.items():
        folder = machine.get(name)
        if isinstance(folder, str) and not folder.strip():
            raise ConfigError(
                f"machine.{name} is empty (a variable that is not set?); give a folder, or "
                f"{otherwise}"
            )


def _files_with_unknown_names(error: ValidationError) -> Iterator[str]:
    """One line for each configuration file with an unknown ``name:`` or ``kind:``."""
    for detail in error.errors(include_url=False):
        if detail["type"] != "union_tag_invalid" or not detail["loc"]:
            continue
        # The section with the unknown name, which is called like its folder of files.
        group = detail["loc"][-1]
        tag = detail["ctx"]["tag"]
        line = re.compile(rf"^(name|kind): *{re.escape(tag)} *(#|$)", re.MULTILINE)
        for folder in FOLDERS:
            for path in sorted((folder / str(group)).glob("*.yaml")):
                if found := line.search(path.read_text(errors="replace")):
                    yield (
                        f"{path.relative_to(folder.parent)} has {found[1]}: {tag}. A part of your "
                        "own must also be registered, in the code or by the entry point of an "
                        'installed package: CONTRIBUTING.md, "How to add a part"'
                    )


def seeded_runs(
    overrides: Sequence[Override], seeds: Iterable[Any], values: Mapping[str, Any] | None = None
) -> Iterator[RunConfig]:
    """Compose a run's configuration at each seed, with ``values`` set at their dotted keys.

    A seed of None keeps the seed of the overrides. Composing and resolving interpolations take most
    of the time: seeds share one composition, and one resolution if no interpolation refers to them.
    """
    raw = _with_values(values or {}, compose_raw(overrides))
    data = resolve(raw)
    depends_on_seed = refers_to(raw, "seed")
    for seed in seeds:
        if seed is None:
            yield validate_run(data)
        elif depends_on_seed:
            yield validate_run(resolve(_with_values({"seed": seed}, raw)))
        else:
            yield validate_run({**data, "seed": seed})


def _with_values(values: Mapping[str, Any], raw: DictConfig) -> DictConfig:
    """A copy of the composition with the values set at their keys; itself without any.

    Raises:
        ConfigError: A key has no place in the composition.
    """
    if values:
        # The composition is cached and shared by all seeds.
        raw = copy.deepcopy(raw)
    for key, value in values.items():
        try:
            # Not merged: a search's panels replace those of the configuration.
            OmegaConf.update(raw, key, value, merge=False)
        except OmegaConfBaseException as error:
            section = key.rpartition(".")[0]
            method = OmegaConf.select(raw, "method.name")
            raise ConfigError(
                f"{key} cannot be set with method={method}: {section} is null or has no such key. "
                "Leave it out, or take a method that has it"
            ) from error
    return raw


def _refuse_host_without_shaper(raw: DictConfig, overrides: Sequence[Override]) -> None:
    """Refuse ``method.host=...`` for a method that has no shaper, where it would have no effect."""
    host = next((override for override in overrides if override.is_host), None)
    if host is not None and OmegaConf.select(raw, "method.shaper") is None:
        raise ConfigError(
            f"{host}: method={raw.method.name} has no shaper and so no host; method=scpo has one. "
            f"To run an estimator by itself: method={host.value}"
        )


def _chosen_configuration(overrides: Sequence[Override]) -> dict[str, Any]:
    """The configuration of the chosen files without other overrides, to look up misspelt keys."""
    choices = _choices(overrides)
    if choices != tuple(overrides):
        with contextlib.suppress(ConfigError):
            return resolve(compose_files(choices))
    # A choice itself is wrong, so only the defaults can be composed.
    return resolve(compose_files(()))
