"""Parts of installed packages, of all kinds: their configuration folders and entry points."""

import contextlib
import functools
from collections.abc import Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf

from scpo.advantages import registry
from scpo.advantages.registry import INSTALLED as ESTIMATORS
from scpo.errors import ConfigError
from scpo.extensions import Part, place_of
from scpo.installed import REPOSITORY
from scpo.schema.scorer import INSTALLED as SCORERS
from scpo.shaping import matcher
from scpo.states import registry as states

INSTALLED: tuple[Part, ...] = (
    *ESTIMATORS,
    *SCORERS,
    *states.load_installed(),
    *matcher.load_installed(),
)

PACKAGES: dict[tuple[str, str], EntryPoint] = {
    (part.point.group, part.name): part.point for part in INSTALLED
}
"""Group of entry points and name of an installed part -> the entry point that registers it."""

CONF = REPOSITORY / "conf"

NAMED = {
    "method": ("method", "a method"),
    "scorer": ("scorer", "a scorer"),
    "estimator@method.estimator": ("method.estimator", "an estimator"),
    "model": ("model", "a model"),
}
"""Config group -> its key, and what the ``name`` in its files names.

Without environments: their ``name`` selects the class, so several files may have the same one.
"""


def configuration_folders() -> tuple[Path, ...]:
    """Configuration folders of installed parts, laid out like ``conf/``.

    Each is the folder ``conf`` next to the file of a part's function.
    """
    folders = (part.conf for part in INSTALLED)
    return tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))


def missing_configuration(group: str, name: str) -> str | None:
    """Explain that a part is installed without the configuration file by which it is selected.

    None if the file exists, or if no other package has a part of this name.

    Args:
        group: Folder of configurations: ``method`` or ``scorer``.
        name: The file in it, without its ending.
    """
    for part in {"method": ESTIMATORS, "scorer": SCORERS}.get(group, ()):
        # The labels of an estimator are by method.
        names = (part.name, *getattr(part.value, "labels", ()))
        file = part.conf / group / f"{name}.yaml"
        if name in names and not file.is_file():
            return (
                f"{place_of(part.point)}, was found, but the package brings no "
                f"configuration of that name: {file} is missing; list it in the package's "
                "package-data (CONTRIBUTING.md, From another package) and install it again"
            )
    return None


def _refuse_taken_files() -> None:
    """Refuse files of packages that Hydra would ignore: of equal paths, it reads only the first.

    Raises:
        ConfigError: A file would be ignored; names the package, the file and the one that is read.
    """
    read = {path.relative_to(CONF): path for path in CONF.rglob("*.yaml")}
    searched = {CONF.resolve()}
    for part in INSTALLED:
        if part.conf.resolve() in searched:
            continue
        searched.add(part.conf.resolve())
        for path in sorted(part.conf.rglob("*.yaml")):
            file = path.relative_to(part.conf)
            if file in read:
                first = read[file]
                shown = first.relative_to(REPOSITORY) if first.is_relative_to(CONF) else first
                raise ConfigError(
                    f"{place_of(part.point)}: the name of its file {path} is taken by {shown}, "
                    "which is read in its place; give it another"
                )
            read[file] = path


_refuse_taken_files()


def check_names(
    composed: DictConfig, chosen: Mapping[str, str | None], given: Sequence[str] = ()
) -> None:
    """Refuse a chosen file whose ``name`` is another file's: records and tables would confuse them.

    Args:
        composed: The composed configuration.
        chosen: The file of each config group, by Hydra's name of the group.
        given: Keys of overrides. A name that one of them sets is not compared with the file's.

    Raises:
        ConfigError: A name is another file's; names the file, its name and the expected one.
    """
    for group, (key, what) in NAMED.items():
        file = chosen.get(group)
        name_key = f"{key}.name"
        name = OmegaConf.select(composed, name_key)
        # By an override of the name itself, or of a section that contains it.
        overridden = any(f"{name_key}.".startswith(f"{override}.") for override in given)
        if file is None or name is None or overridden:
            continue
        folder = group.partition("@")[0]
        if folder == "estimator" and name not in registry.ESTIMATORS:
            continue  # the schema refuses it, with the allowed names
        start = f"{folder}={file}: its file {folder}/{file}.yaml has name: {name}"
        if folder == "model":
            # A model's name is the one in print ("7B") and may differ from its file's.
            models = _model_names().items()
            other = next((stem for stem, taken in models if stem != file and taken == name), None)
            if other is not None:
                raise ConfigError(
                    f"{start}, as model/{other}.yaml has; records and tables know {what} by this "
                    "name, so give it another"
                )
        elif name != file:
            raise ConfigError(
                f"{start}; records and tables know {what} by this name, so it must be that of the "
                f"file: {file}"
            )


@functools.cache
def _model_names() -> dict[str, Any]:
    """The ``name`` of each file in the group ``model``, where it has one."""
    names = {}
    for folder in (CONF, *configuration_folders()):
        for path in sorted((folder / "model").glob("*.yaml")):
            # A file that cannot be read is an error only where it is chosen.
            with contextlib.suppress(OSError, UnicodeDecodeError, yaml.YAMLError):
                data = yaml.safe_load(path.read_text(encoding="utf-8"))
                if isinstance(data, dict) and "name" in data:
                    names[path.stem] = data["name"]
    return names
