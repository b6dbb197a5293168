"""From Hydra overrides to a validated RunConfig; whatever is wrong with them becomes a ConfigError that says so."""

import contextlib
import functools
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import ValidationError
from yaml import YAMLError

from scpo.errors import ConfigError
from scpo.schema import HOSTS, Experiment, RunConfig
from sweeps.compose.explanations import (
    explain_bare_name,
    explain_host,
    explain_hydra,
    explain_interpolation,
    explain_option,
    explain_sweep_word,
    explain_syntax,
    explain_validation,
)
from sweeps.compose.loader import CONF, FOLDERS, compose

HOST_KEY = "method.host"
SWEEP_WORDS = ("experiment", "search", "dry_run")
COMPUTED_KEY = re.compile(r"\$\{([^}.]*|\.[^}]*|[^}]*:[^}]*)\$\{")
AXES_HINT = "'env=[...]', 'model=[...]' and 'seeds=[...]'"


def compose_run(overrides: Sequence[str]) -> RunConfig:
    """The configuration of one run."""
    for override in overrides:
        key = str(parse(override).key_or_group)
        if key in SWEEP_WORDS:
            check_option(override)
            raise ConfigError(explain_sweep_word(override, key))
    return validate_run(resolve(compose_raw(tuple(overrides))), overrides)


def compose_experiment(name: str, overrides: Sequence[str] = ()) -> tuple[Experiment, str]:
    """An experiment, one of conf/experiment or a YAML file named by its path, and the scale it is asked for at."""
    own = name.endswith(".yaml")
    raw = resolve(compose_raw(tuple(overrides) if own else (f"+experiment={name}", *overrides)))
    section, where = (_section(Path(name)), name) if own else (raw["experiment"], f"conf/experiment/{name}.yaml")
    try:
        return Experiment.model_validate(section), str(raw["scale"])
    except ValidationError as error:
        raise ConfigError(f"{where}:\n{explain_validation(error, Experiment)}") from error


def _section(path: Path) -> Any:
    """The experiment in a file of the user's own, such as the winner of a search."""
    try:
        data = OmegaConf.to_container(OmegaConf.load(path))
    except (OSError, UnicodeDecodeError, YAMLError, OmegaConfBaseException) as error:
        raise ConfigError(f"+experiment={path}: cannot be read: {error}") from None
    if not isinstance(data, dict) or "experiment" not in data:
        raise ConfigError(f"+experiment={path}: has no section `experiment`; conf/experiment/ shows how to write one")
    return data["experiment"]


@functools.lru_cache(maxsize=1024)
def compose_raw(overrides: tuple[str, ...]) -> DictConfig:
    """What Hydra makes of the overrides, interpolations unresolved. Cached (20 to 40 ms each): not to be written to."""
    for override in overrides:
        check_option(override)
    try:
        raw = compose([parse(_host_choice(override)) for override in overrides])
    except (HydraException, OmegaConfBaseException, OSError, TypeError, ValueError) as error:
        raise ConfigError(explain_hydra(error, overrides, lambda: _keys_with(overrides), RunConfig)) from None
    _refuse_host_without_shaper(raw, overrides)
    return raw


def resolve(raw: DictConfig) -> dict[str, Any]:
    """Fill in the interpolations."""
    try:
        return dict(OmegaConf.to_container(raw, resolve=True))  # type: ignore[arg-type]
    except OmegaConfBaseException as error:
        raise ConfigError(explain_interpolation(error, OmegaConf.to_container(raw, resolve=False))) from None


def refers_to(raw: DictConfig, word: str) -> bool:
    """Whether an interpolation has the word in it or makes its key up from the start: either may refer.

    One like ``${env.settings.${env.setting}.reward}`` stays inside ``env``.
    """
    texts = [text for text in _texts(OmegaConf.to_container(raw, resolve=False)) if "${" in text]
    return any(word in text or COMPUTED_KEY.search(text) for text in texts)


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, dict | list):
        for value in data.values() if isinstance(data, dict) else data:
            yield from _texts(value)


def validate_run(data: dict[str, Any], overrides: Sequence[str] = ()) -> RunConfig:
    """Check a composed configuration against the schema; an experiment's own section is no part of it."""
    try:
        return RunConfig.model_validate({key: value for key, value in data.items() if key != "experiment"})
    except ValidationError as error:
        raise ConfigError(explain_validation(error, RunConfig)) from None


@functools.lru_cache(maxsize=1024)
def parse(override: str) -> Override:
    """Parse one override; ConfigError if it is none, or if it asks for Hydra's own sweep."""
    try:
        parsed = OverridesParser.create().parse_override(override)
    except HydraException as error:
        group = next((group for group in ("experiment", "search") if override in options(group)), None)
        raise ConfigError(
            explain_bare_name(override, group) if group else explain_syntax(override, str(error))
        ) from None
    if parsed.is_sweep_override():
        key = parsed.get_key_element()
        raise ConfigError(f"{override}: one value a key, or a list in quotes: '{key}=[...]'. Axes are {AXES_HINT}")
    return parsed


def check_option(override: str) -> None:
    """Refuse the choice of a file that its config group does not have."""
    parsed = parse(override)
    group, value = str(parsed.key_or_group), parsed.value()
    if group == HOST_KEY and value not in HOSTS:
        raise ConfigError(explain_host(override, str(value), HOSTS))
    if isinstance(value, list) and (CONF / group).is_dir():
        raise ConfigError(f"{override}: one {group}, not a list; allowed: {', '.join(options(group))}")
    if (
        not parsed.is_delete()
        and (CONF / group).is_dir()
        and isinstance(value, str | None)
        and value not in options(group)
    ):
        raise ConfigError(explain_option(override, group, str(value), options(group)))


def options(group: str) -> list[str]:
    """The files of a config group, as names."""
    return sorted(path.stem for folder in FOLDERS for path in (folder / group).glob("*.yaml"))


def _host_choice(override: str) -> str:
    """``method.host=<name>`` is written for the choice of a file: the host's settings replace the default host's."""
    parsed = parse(override)
    return f"estimator@method.estimator={parsed.value()}" if parsed.key_or_group == HOST_KEY else override


def _refuse_host_without_shaper(raw: DictConfig, overrides: Sequence[str]) -> None:
    hosts = [override for override in overrides if parse(override).key_or_group == HOST_KEY]
    if hosts and OmegaConf.select(raw, "method.shaper") is None:
        raise ConfigError(
            f"{hosts[0]}: method={raw.method.name} has no shaper and so no host; method=scpo has one. "
            f"To run an estimator by itself: method={parse(hosts[0]).value()}"
        )


def _is_choice(override: str) -> bool:
    """Whether the override takes a file of a config group; such decide which keys there are."""
    group = str(parse(override).key_or_group)
    return group == HOST_KEY or (CONF / group).is_dir()


def _keys_with(overrides: tuple[str, ...]) -> dict[str, Any]:
    """The configuration with the files that these choose and nothing else, to look misspelt keys up in."""
    choices = tuple(filter(_is_choice, overrides))
    if choices != overrides:
        with contextlib.suppress(ConfigError):
            return resolve(compose_raw(choices))
    return resolve(compose_raw(()))  # a choice is at fault itself
