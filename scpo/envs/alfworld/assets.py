"""Files and modules of the ``alfworld`` package: PDDL domain, grammar, rooms, constants."""

from __future__ import annotations

import functools
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from scpo.errors import ConfigError
from scpo.installed import install_command


@dataclass(frozen=True)
class Assets:
    """The parts of the package that games are made from.

    Attributes:
        domain: The PDDL domain of ALFRED.
        grammar: The text grammar, with ``UNKNOWN GOAL`` where a game puts its task.
        layouts: Folder of the 120 rooms (``FloorPlan<n>-{openable,objects}.json``).
        constants: Object, receptacle and room tables (``alfworld.gen.constants``).
        goals: PDDL goals and task sentences by family (``alfworld.gen.goal_library``).
        demangler: Class that names a game's objects ("desk 1").
    """

    domain: str
    grammar: str
    layouts: Path
    constants: ModuleType
    goals: ModuleType
    demangler: Any


@functools.cache
def assets() -> Assets:
    """Import the package once, and only its modules that need neither torch nor vision models.

    Raises:
        ConfigError: ``alfworld`` is not installed.
    """
    try:
        with _import_folder():
            from alfworld.agents.utils.misc import Demangler
            from alfworld.gen import constants
            from alfworld.gen import goal_library as goals
            from alfworld.info import ALFRED_PDDL_PATH, ALFRED_TWL2_PATH
    except ImportError as error:
        raise ConfigError(
            f"the ALFWorld environment needs the packages alfworld and textworld ({error}); "
            f"install them with: {install_command('alfworld')}"
        ) from error

    return Assets(
        domain=Path(ALFRED_PDDL_PATH).read_text(encoding="utf-8"),
        grammar=Path(ALFRED_TWL2_PATH).read_text(encoding="utf-8"),
        layouts=Path(constants.__file__).parent / "layouts",
        constants=constants,
        goals=goals,
        demangler=Demangler,
    )


@contextmanager
def _import_folder() -> Iterator[None]:
    """Point ``$ALFWORLD_DATA`` to an existing folder while ``alfworld`` is imported.

    ``alfworld.info`` creates that folder on import, by default below the user's home.
    """
    before = os.environ.get("ALFWORLD_DATA")
    os.environ["ALFWORLD_DATA"] = tempfile.gettempdir()
    try:
        yield
    finally:
        if before is None:
            del os.environ["ALFWORLD_DATA"]
        else:
            os.environ["ALFWORLD_DATA"] = before
