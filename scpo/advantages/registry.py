"""Registry of estimators: the project's own, and those of installed packages."""

import inspect
from collections.abc import Iterator
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path

from scpo.advantages.crbc import CRBC
from scpo.advantages.ecpo import ECPO
from scpo.advantages.empg import EMPG
from scpo.advantages.estimator import Estimator
from scpo.advantages.g2po import G2PO
from scpo.advantages.gae import GAE
from scpo.advantages.gagpo import GAGPO
from scpo.advantages.gigpo import GIGPO
from scpo.advantages.graphgpo import GRAPHGPO
from scpo.advantages.grpo import GRPO
from scpo.advantages.hcapo import HCAPO
from scpo.advantages.hgpo import HGPO
from scpo.advantages.pace import PACE
from scpo.advantages.proxmo import PROXMO
from scpo.advantages.rewardflow import REWARDFLOW
from scpo.advantages.rloo import RLOO
from scpo.errors import ConfigError

ENTRY_POINTS = "scpo.estimators"
"""Entry-point group of other packages' estimators: ``<name> = "<module>:<ESTIMATOR>"``."""

# In the order of tables.
OURS = (
    GAE,
    RLOO,
    GRPO,
    EMPG,
    GIGPO,
    HCAPO,
    HGPO,
    G2PO,
    REWARDFLOW,
    GRAPHGPO,
    GAGPO,
    CRBC,
    ECPO,
    PROXMO,
    PACE,
)


def _installed() -> Iterator[tuple[EntryPoint, Estimator]]:
    """Load the estimators of other packages, each with its entry point.

    Raises:
        ConfigError: An entry point cannot be loaded or loads something else, or its name is taken;
            names the package.
    """
    taken = {entry.name for entry in OURS}
    # By name, because the order of entry points is that of the file system.
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        try:
            estimator = point.load()
        except Exception as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"{place_of(point)}: cannot be loaded, {type(error).__name__}: {reason}. Correct "
                f"that module (python -c 'import {point.module}' shows where), or the entry point "
                "in the package's pyproject.toml and install it again, or pip uninstall "
                f"{_package(point)}"
            ) from error
        if not isinstance(estimator, Estimator):
            raise ConfigError(
                f"{place_of(point)} is {estimator!r}; allowed: a "
                "scpo.advantages.estimator.Estimator"
            )
        if estimator.name in taken:
            raise ConfigError(
                f"{place_of(point)}: the name {estimator.name!r} is taken; give it another"
            )
        taken.add(estimator.name)
        yield point, estimator


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an installed package"


def place_of(point: EntryPoint) -> str:
    """The entry point and its package, for a message."""
    return f"entry point {ENTRY_POINTS} of {_package(point)}, {point.value}"


# At import: the configuration's type is the union of all estimators' settings
# (``scpo.schema.method``), so that they must be known before a class is made of them.
_LOADED = tuple(_installed())
INSTALLED = tuple(estimator for _, estimator in _LOADED)
PACKAGES = {estimator.name: point for point, estimator in _LOADED}
"""Installed estimator -> the entry point that registers it."""

ESTIMATORS: dict[str, Estimator] = {entry.name: entry for entry in (*OURS, *INSTALLED)}

HOSTS = tuple(name for name, entry in ESTIMATORS.items() if "step_bonus" in entry.requires)
"""The estimators that read a step's bonus and so can host SCPO's shaper."""

WITH_STEP_TERM = tuple(name for name, entry in ESTIMATORS.items() if entry.step_term is not None)
"""The estimators whose advantages tell the steps of one trajectory apart."""


def configuration_folders() -> tuple[Path, ...]:
    """Configuration folders of installed estimators, laid out like ``conf/``.

    Each is the folder ``conf`` next to the file of the estimator's function.
    """
    beside = map(_configurations_of, INSTALLED)
    return tuple(dict.fromkeys(folder for folder in beside if folder.is_dir()))


def missing_configuration(name: str) -> str | None:
    """Say that an estimator of this name is installed without the file that makes it a method.

    None if there is such a file, or no such estimator of another package.
    """
    for entry in INSTALLED:
        file = _configurations_of(entry) / "method" / f"{name}.yaml"
        if name in (entry.name, *entry.labels) and not file.is_file():
            return (
                f"{place_of(PACKAGES[entry.name])}, was found, but the package brings no "
                f"configuration of that name: {file} is missing; list it in the package's "
                "package-data (CONTRIBUTING.md, A baseline) and install it again"
            )
    return None


def _configurations_of(entry: Estimator) -> Path:
    """The folder that is next to the file of an estimator's function, whether it exists or not."""
    return Path(inspect.getfile(entry.function)).parent / "conf"
