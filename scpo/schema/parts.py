"""Parts of installed packages, of all kinds: their configuration folders and entry points."""

from importlib.metadata import EntryPoint
from pathlib import Path

from scpo.advantages.registry import INSTALLED as ESTIMATORS
from scpo.extensions import Part, place_of
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


def configuration_folders() -> tuple[Path, ...]:
    """Configuration folders of installed parts, laid out like ``conf/``.

    Each is the folder ``conf`` next to the file of a part's function.
    """
    folders = (part.conf for part in INSTALLED)
    return tuple(dict.fromkeys(folder for folder in folders if folder.is_dir()))


def missing_configuration(group: str, name: str) -> str | None:
    """Explain that a part of this name is installed without the file that makes it a choice.

    None if there is such a file, or no such part of another package.

    Args:
        group: Folder of configurations: ``method`` or ``scorer``.
        name: The file in it, without its ending.
    """
    for part in {"method": ESTIMATORS, "scorer": SCORERS}.get(group, ()):
        names = (part.name, *getattr(part.value, "labels", ()))
        file = part.conf / group / f"{name}.yaml"
        if name in names and not file.is_file():
            return (
                f"{place_of(part.point)}, was found, but the package brings no "
                f"configuration of that name: {file} is missing; list it in the package's "
                "package-data (CONTRIBUTING.md, From another package) and install it again"
            )
    return None
