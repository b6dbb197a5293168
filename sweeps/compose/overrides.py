"""Parse overrides (``key=value``, ``+key=value``, ``~key``) into objects, once each."""

import functools
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NoReturn

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from scpo.advantages.registry import HOSTS
from scpo.errors import ConfigError
from scpo.records import redaction
from scpo.schema.parts import configuration_folders, missing_configuration
from scpo.strict import MACHINE_SECTIONS
from scpo.suggestions import did_you_mean
from sweeps.compose.hints import (
    explain_axis,
    explain_bare_name,
    explain_blanks,
    explain_flag,
    explain_host,
    explain_option,
    explain_split_axis,
    explain_syntax,
    is_dry_run_word,
)

CONF = Path(__file__).resolve().parents[2] / "conf"
FOLDERS = (CONF, *configuration_folders())
"""Where configuration files are looked up: ours, and those that installed parts bring."""
HOST_KEY = "method.host"
# ${oc.env:NAME} and ${oc.env:NAME,default}, which Hydra replaces by the variable's value.
FROM_ENVIRONMENT = re.compile(r"\$\{\s*oc\.env:\s*([A-Za-z_]\w*)")
AXES_HINT = "'env=[...]', 'model=[...]' and 'seeds=[...]'"


@dataclass(frozen=True)
class Override:
    """One override.

    Attributes:
        text: The override as typed.
        target: The config group or the key that it names.
        value: Its value; None for ``key=a,b``.
        sets: It is a plain ``key=value``; others add (``+``), force (``++``), delete (``~``) or
            put a group elsewhere (``group@package``).
        axis: The values of ``key=a,b``, which only an experiment takes.
    """

    text: str
    target: str = field(compare=False)
    value: Any = field(compare=False)
    sets: bool = field(compare=False)
    axis: tuple[str, ...] = field(compare=False, default=())

    def __str__(self) -> str:
        return self.text

    @property
    def key(self) -> str:
        """The dotted configuration key."""
        return self.target.replace("/", ".")

    @property
    def of_machine(self) -> bool:
        """True if it affects where and how a run executes, but not the result."""
        return self.key.partition(".")[0] in MACHINE_SECTIONS

    @property
    def is_host(self) -> bool:
        """True if it names the estimator that the shaper's credit goes through."""
        return self.target == HOST_KEY

    @property
    def is_group(self) -> bool:
        """True if its target is a config group."""
        return (CONF / self.target).is_dir()

    @property
    def is_choice(self) -> bool:
        """True if it chooses a file of a config group, and with it the keys that exist."""
        return self.is_host or (self.is_group and not isinstance(self.value, dict))

    @property
    def for_hydra(self) -> str:
        """The override for Hydra: ``method.host=<name>`` selects a config group.

        The host's settings replace those of the default host.
        """
        if not self.is_host:
            return self.text
        return f"estimator@method.estimator={self.value}"

    def check(self) -> None:
        """Raise ConfigError for an override that cannot mean what was typed.

        That is an unknown choice of a group, several values instead of one, or an empty mapping.
        """
        if self.axis:
            raise ConfigError(explain_axis(self.text, self.key, self.axis))
        if self.sets and self.value == {}:
            raise ConfigError(
                f"{self}: a mapping sets the keys that it has, so an empty one changes nothing; "
                f"delete what is not wanted: '~{self.key}.<key>'"
            )
        if self.is_host and self.value not in HOSTS:
            raise ConfigError(explain_host(self.text, str(self.value), HOSTS))
        if not self.is_group:
            return
        if isinstance(self.value, list):
            raise ConfigError(
                f"{self}: one {self.target}, not a list; allowed: {', '.join(options(self.target))}"
            )

        known = options(self.target)
        deletes = self.text.startswith("~")
        # A dict sets keys of the group instead of naming one of its files.
        if not deletes and isinstance(self.value, str | None) and self.value not in known:
            missing = missing_configuration(self.target, str(self.value))
            if missing is not None:
                raise ConfigError(f"{self}: {missing}")
            raise ConfigError(explain_option(self.text, self.target, str(self.value), known))


@functools.lru_cache(maxsize=1024)
def parse(text: str) -> Override:
    """Parse one override; ConfigError if it is malformed or requests Hydra's own sweep."""
    text = _quoted(text)
    try:
        # Hydra's own parser, so that every override means the same here and in train.py.
        parsed = OverridesParser.create().parse_override(text)
    except HydraException as error:
        if is_dry_run_word(text):
            raise ConfigError(f"{text!r} is not an override; write dry_run=true") from None
        # The likeliest mistake is the name of an experiment without +experiment=.
        group = next((group for group in ("experiment", "search") if text in options(group)), None)
        if group:
            raise ConfigError(explain_bare_name(text, group)) from None
        raise ConfigError(explain_syntax(text, str(error))) from None

    # Only plain key=value overrides can be set without composing the files again.
    changes_keys = parsed.is_add() or parsed.is_force_add() or parsed.is_delete()
    sets = parsed.package is None and not changes_keys
    if not parsed.is_sweep_override():
        return Override(text, str(parsed.key_or_group), parsed.value(), sets)
    try:
        axis = tuple(parsed.sweep_string_iterator())
    except HydraException:
        key = parsed.get_key_element()
        raise ConfigError(
            f"{text}: name the values of an axis one by one: {key}=a,b or '{key}=[a,b]'"
        ) from None
    return Override(text, str(parsed.key_or_group), None, sets, axis)


def _quoted(text: str) -> str:
    """Quote a value with letters outside ASCII, such as a path with a name, as Hydra requires.

    Between quotes Hydra reads a backslash as itself, except in front of a quote.
    """
    key, equals, value = text.partition("=")
    if value.isascii() or not equals or value[0] in "'\"[{":
        return text

    def escape(found: re.Match[str]) -> str:
        backslashes, quote = found[1], found[2]
        return 2 * backslashes + quote.replace("'", "\\'")

    escaped = re.sub(r"(\\*)('|\Z)", escape, value)
    return f"{key}='{escaped}'"


def parse_all(texts: Iterable[str]) -> tuple[Override, ...]:
    """Parse several overrides, in order.

    Raises:
        ConfigError: One is malformed, holds a secret, or was typed with blanks around its ``=``.
    """
    words = list(texts)
    if meant := explain_blanks(words):
        raise ConfigError(meant)
    overrides = tuple(map(parse, words))
    for override in overrides:
        _refuse_secret(override)
    return overrides


def _refuse_secret(override: Override) -> None:
    """Refuse a value with a secret of an environment variable, which would be recorded."""
    # The name of a file in conf/ is not a secret, even if a variable has the same value.
    if override.is_choice:
        return
    for value in _leaves([override.value, *override.axis]):
        for whose, secret in redaction.secrets_in(value):
            if value == secret:
                _refuse(override, f"is {whose}")
            # Part of a value may be the name of a file in conf/ too, such as that of a model.
            if secret not in _file_names():
                _refuse(override, f"contains {whose}")
        for variable in FROM_ENVIRONMENT.findall(value):
            content = os.environ.get(variable, "")
            if redaction.is_secret(variable, content) or redaction.passwords(content):
                _refuse(override, f"refers to ${variable}")


def _refuse(override: Override, why: str) -> NoReturn:
    raise ConfigError(
        f"{override.target}: the given value {why}, a secret, and the configuration is recorded as "
        "it is typed (config.yaml); leave the secret in the environment"
    )


@functools.lru_cache
def _file_names() -> frozenset[str]:
    """Names of the files of all config groups."""
    return frozenset(path.stem for folder in FOLDERS for path in folder.rglob("*.yaml"))


def _leaves(value: Any) -> Iterator[str]:
    """The keys and values in nested lists and mappings, as texts."""
    if isinstance(value, dict | list):
        if isinstance(value, dict):
            yield from map(str, value)
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part)
    else:
        yield str(value)


def options(group: str) -> list[str]:
    """The files of a config group, as names."""
    return sorted(path.stem for folder in FOLDERS for path in (folder / group).glob("*.yaml"))


def file_of(group: str, name: str) -> Path:
    """Path of a config group's file, in conf/ or in the folder of an installed package."""
    paths = [folder / group / f"{name}.yaml" for folder in FOLDERS]
    return next((path for path in paths if path.exists()), paths[0])


def where_is(path: Path) -> Path:
    """Path of a configuration file in messages: relative to the checkout if the file is in it."""
    return path.relative_to(CONF.parent) if path.is_relative_to(CONF.parent) else path


@dataclass(frozen=True)
class Request:
    """Request of a command line: ``name`` of ``group`` (experiment, search), dry run or not."""

    group: str
    name: str
    overrides: tuple[Override, ...]
    dry_run: bool
    remarks: tuple[str, ...] = ()


def read_request(words: Iterable[str]) -> Request:
    """Read the command line of sweep.py.

    Raises:
        ConfigError: A flag or a malformed override, no experiment or search, or two of them.
    """
    words = list(words)
    flags = [word for word in words if word.startswith("-")]
    if flags:
        raise ConfigError(explain_flag(flags[0], words, "sweep.py"))
    _refuse_split_axes(words)
    overrides = parse_all(words)
    _refuse_two_requests(overrides)

    # Of several overrides of one key, the last wins.
    last = {override.target: override for override in overrides}
    group = "search" if "search" in last else "experiment"
    chosen = last.pop(group, None)
    dry_run = last.pop("dry_run", None)
    if chosen is None:
        for override in last.values():
            hint = did_you_mean(override.target, ("experiment", "search"))
            if hint and override.text.startswith("+"):
                raise ConfigError(f"{override}: unknown key {override.target}{hint}")
        raise ConfigError(
            "which experiment? `python sweep.py` lists them; your own configuration on several "
            "seeds: `python sweep.py +experiment=one key=value ...`; one run alone: "
            "`python train.py key=value ...`"
        )
    if chosen.axis:
        chosen.check()  # refuses several experiments
    if not chosen.text.startswith("+"):
        article = "an experiment" if group == "experiment" else "a search"
        raise ConfigError(f"{chosen}: {article} is added to the configuration: write +{chosen}")
    if dry_run is not None and not isinstance(dry_run.value, bool):
        raise ConfigError(f"{dry_run}: dry_run is true or false")
    # In the order typed: a choice of a file must come before the keys that it brings.
    rest = tuple(override for override in overrides if override in last.values())
    return Request(
        group,
        str(chosen.value),
        rest,
        dry_run is not None and dry_run.value,
        tuple(replaced(overrides)),
    )


def _refuse_split_axes(words: Sequence[str]) -> None:
    """Refuse an axis whose values are separate words, such as ``method=gigpo scpo``."""
    for before, word in pairwise(words):
        key = before.partition("=")[0]
        if "=" in before and "=" not in word and word in options(key):
            raise ConfigError(explain_split_axis(before, word))


def _refuse_two_requests(overrides: Iterable[Override]) -> None:
    """Refuse two experiments or searches in one call: one of them would silently be dropped."""
    asked = [override for override in overrides if override.target in ("experiment", "search")]
    if len({override.text for override in asked}) > 1:
        calls = "; ".join(f"python sweep.py {override}" for override in asked)
        raise ConfigError(
            f"{' '.join(map(str, asked))}: one call runs one of them; give one after the other: "
            f"{calls}"
        )


def replaced(overrides: Iterable[Override]) -> list[str]:
    """One remark for each override that a later one of the same key replaces."""
    last: dict[str, Override] = {}
    remarks = []
    for override in overrides:
        before = last.get(override.target)
        if before is not None and before != override:
            remarks.append(f"{before} is replaced by the later {override}")
        last[override.target] = override
    return remarks
