"""Parts that installed packages register by entry points: one loader for every kind of part.

The groups are ``scpo.estimators``, ``scpo.identities``, ``scpo.matchers`` and ``scpo.scorers``.
Each registry loads its own group; ``scpo.schema.parts`` knows the parts of all of them.
"""

import inspect
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from scpo.errors import ConfigError

# Overrides, run ids and file names contain the name of a part.
NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True)
class Part:
    """A part of an installed package.

    Attributes:
        point: The entry point that registers it.
        name: Its name in configurations.
        value: The object that the entry point names.
    """

    point: EntryPoint
    name: str
    value: Any

    @property
    def conf(self) -> Path:
        """The folder ``conf`` next to the file of its function, whether it exists or not."""
        try:
            file = inspect.getfile(getattr(self.value, "function", self.value))
        except TypeError:
            # Python knows no file of some objects, for example of functools.partial.
            file = str(sys.modules[self.point.module].__file__)
        return Path(file).parent / "conf"


def load_parts(
    group: str,
    allowed: str,
    fits: Callable[[Any], bool],
    taken: Iterable[str],
    name_of: Callable[[EntryPoint, Any], str] = lambda point, value: str(value.name),
) -> tuple[Part, ...]:
    """Load the parts that installed packages register in a group of entry points.

    Args:
        group: The group, such as ``scpo.estimators``.
        allowed: What an entry point may name, for the message.
        fits: Returns True for such an object.
        taken: Names in use.
        name_of: Returns the name of a part that fits; by default the object's own.

    Returns:
        The parts, in the order of their entry points' names.

    Raises:
        ConfigError: An entry point cannot be loaded or names something else, its settings have a
            type that cannot be resolved, or its name is malformed or taken; names the package.
    """
    taken = set(taken)
    parts = []
    # By name, because the order of entry points is that of the file system.
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        try:
            value = point.load()
        except Exception as error:
            reason = " ".join(str(error).split())
            # Not `point.module`, which fails for a malformed value.
            module = point.value.partition(":")[0].strip()
            raise ConfigError(
                f"{place_of(point)}: cannot be loaded, {type(error).__name__}: {reason}. Correct "
                f"that module (python -c 'import {module}' shows where), or the entry point "
                "in the package's pyproject.toml and install it again, or pip uninstall "
                f"{_package(point)}"
            ) from error
        if not fits(value):
            raise ConfigError(f"{place_of(point)} is {value!r}; allowed: {allowed}")
        _complete_settings(point, value)
        name = name_of(point, value)
        if not NAME.fullmatch(name):
            raise ConfigError(
                f"{place_of(point)}: {name!r} is not a valid name; allowed: a lower-case letter, "
                "then a-z, 0-9 and _"
            )
        if name in taken:
            raise ConfigError(f"{place_of(point)}: the name {name!r} is taken; give it another")
        taken.add(name)
        parts.append(Part(point, name, value))
    return tuple(parts)


def _complete_settings(point: EntryPoint, value: Any) -> None:
    """Resolve the types of a part's settings, if it has any.

    pydantic defers a type that it cannot resolve until the settings are used, where the error names
    the whole configuration and not the package.

    Raises:
        ConfigError: A type cannot be resolved; names the package and the class.
    """
    settings = getattr(value, "settings", None)
    if not (inspect.isclass(settings) and issubclass(settings, BaseModel)):
        return
    try:
        # Without names of this function, which are no types of the package.
        settings.model_rebuild(_types_namespace={})
    except Exception as error:
        name = getattr(error, "name", None)
        wrong = f"the type {name!r}, which is not defined" if name else f"a type: {error}"
        raise ConfigError(
            f"{place_of(point)}: its settings {settings.__module__}.{settings.__qualname__} cannot "
            f"be used, they have {' '.join(wrong.split())}. Correct its spelling, or import it "
            f"outside of `if TYPE_CHECKING:`, or pip uninstall {_package(point)}"
        ) from error


def place_of(point: EntryPoint) -> str:
    """The entry point and its package, for a message."""
    return f"entry point {point.group} of {_package(point)}, {point.value}"


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "an installed package"
