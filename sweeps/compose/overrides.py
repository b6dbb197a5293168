"""Overrides as people type them (``key=value``, ``+key=value``, ``~key``), parsed once into objects."""

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from scpo.errors import ConfigError
from scpo.schema import HOSTS, MACHINE_SECTIONS, configuration_folders
from sweeps.compose.explanations import explain_bare_name, explain_host, explain_option, explain_syntax

CONF = Path(__file__).resolve().parents[2] / "conf"
FOLDERS = (CONF, *configuration_folders())
"""Where configuration files are looked up: ours, and those that installed estimators bring."""
HOST_KEY = "method.host"
AXES_HINT = "'env=[...]', 'model=[...]' and 'seeds=[...]'"


@dataclass(frozen=True)
class Override:
    """One override.

    ``text`` is what was typed, ``target`` the config group or the key that it names. ``sets``: it is a plain
    ``key=value``; others add (``+``), force (``++``), delete (``~``) or put a group elsewhere (``group@package``).
    """

    text: str
    target: str = field(compare=False)
    value: Any = field(compare=False)
    sets: bool = field(compare=False)

    def __str__(self) -> str:
        return self.text

    @property
    def key(self) -> str:
        """The dotted configuration key."""
        return self.target.replace("/", ".")

    @property
    def of_machine(self) -> bool:
        """It says where and how a run runs, not what runs."""
        return self.key.partition(".")[0] in MACHINE_SECTIONS

    @property
    def is_host(self) -> bool:
        """It names the estimator that the shaper's credit goes through."""
        return self.target == HOST_KEY

    @property
    def is_group(self) -> bool:
        """Its target is a config group."""
        return (CONF / self.target).is_dir()

    @property
    def is_choice(self) -> bool:
        """It takes a file of a config group; such decide which keys there are."""
        return self.is_host or (self.is_group and not isinstance(self.value, dict))

    @property
    def for_hydra(self) -> str:
        """``method.host=<name>`` stands for a choice: the host's settings replace those of the default host."""
        return f"estimator@method.estimator={self.value}" if self.is_host else self.text

    def check(self) -> None:
        """ConfigError if it chooses a file that its config group does not have."""
        if self.is_host and self.value not in HOSTS:
            raise ConfigError(explain_host(self.text, str(self.value), HOSTS))
        if not self.is_group:
            return
        if isinstance(self.value, list):
            raise ConfigError(f"{self}: one {self.target}, not a list; allowed: {', '.join(options(self.target))}")
        known = options(self.target)
        deletes = self.text.startswith("~")
        if not deletes and isinstance(self.value, str | None) and self.value not in known:
            raise ConfigError(explain_option(self.text, self.target, str(self.value), known))


@functools.lru_cache(maxsize=1024)
def parse(text: str) -> Override:
    """Parse one override; ConfigError if it is none, or if it asks for Hydra's own sweep."""
    try:
        parsed = OverridesParser.create().parse_override(text)
    except HydraException as error:
        group = next((group for group in ("experiment", "search") if text in options(group)), None)
        raise ConfigError(explain_bare_name(text, group) if group else explain_syntax(text, str(error))) from None
    if parsed.is_sweep_override():
        key = parsed.get_key_element()
        raise ConfigError(f"{text}: one value a key, or a list in quotes: '{key}=[...]'. Axes are {AXES_HINT}")
    sets = parsed.package is None and not (parsed.is_add() or parsed.is_force_add() or parsed.is_delete())
    return Override(text, str(parsed.key_or_group), parsed.value(), sets)


def parse_all(texts: Iterable[str]) -> tuple[Override, ...]:
    """Parse several, in their order."""
    return tuple(map(parse, texts))


def options(group: str) -> list[str]:
    """The files of a config group, as names."""
    return sorted(path.stem for folder in FOLDERS for path in (folder / group).glob("*.yaml"))


@dataclass(frozen=True)
class Request:
    """What a command line asks for: ``name`` of ``group`` (experiment or search), and whether only to show it."""

    group: str
    name: str
    overrides: tuple[Override, ...]
    dry_run: bool


def read_request(words: Iterable[str]) -> Request:
    """Read the words of sweep.py; ConfigError with a hint for what Hydra would want."""
    flags = [word for word in words if word.startswith("-")]
    if flags:
        raise ConfigError(f"{flags[0]}: not needed, an experiment's axes are the sweep; `python sweep.py --help`")
    overrides = parse_all(words)
    last = {override.target: override for override in overrides}  # a key that is given twice: the last one holds
    group = "search" if "search" in last else "experiment"
    chosen, dry_run = last.pop(group, None), last.pop("dry_run", None)
    if chosen is None:
        raise ConfigError(
            "which experiment? `python sweep.py` lists them; one run alone: `python train.py key=value ...`"
        )
    if not chosen.text.startswith("+"):
        article = "an experiment" if group == "experiment" else "a search"
        raise ConfigError(f"{chosen}: {article} is added to the configuration: write +{chosen}")
    if dry_run is not None and not isinstance(dry_run.value, bool):
        raise ConfigError(f"{dry_run}: dry_run is true or false")
    rest = tuple(override for override in overrides if override in last.values())
    return Request(group, str(chosen.value), rest, dry_run is not None and dry_run.value)
