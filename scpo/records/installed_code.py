"""Code files of installed packages that register estimators, found by their imports.

They are read from the files and not from ``sys.modules``: what is loaded depends on how far a
process has come, so that a driver and its runs would record different files.
"""

import ast
import functools
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

from scpo.advantages.registry import PACKAGES


def installed_files() -> dict[str, Path]:
    """Path in its package, e.g. ``my_package/mine.py`` -> file, of all installed estimators.

    These are the file of each entry point and what it imports of its own package, at the top of a
    file or inside a function.
    """
    files: dict[str, Path] = {}
    for point in PACKAGES.values():
        root = _root(point.module)
        if root is not None:
            files |= _closure(point.module, root, packages_of(point))
    return files


def packages_of(point: EntryPoint) -> frozenset[str]:
    """Top-level modules of the distribution of an entry point, such as ``my_package``."""
    names = {point.module.partition(".")[0]}
    if point.dist is not None:
        names.update((point.dist.read_text("top_level.txt") or "").split())
        # Only some build tools write that file; an editable installation lists no modules.
        for file in point.dist.files or ():
            if file.suffix == ".py":
                names.add(file.parts[0].removesuffix(".py"))
    return frozenset(names)


def files_of_module(module: str) -> list[str]:
    """Paths that the files of a module and of its parent packages may have."""
    parts = module.split(".")
    paths = []
    for length in range(1, len(parts) + 1):
        path = "/".join(parts[:length])
        paths += [f"{path}.py", f"{path}/__init__.py"]
    return paths


# Cached, because a sweep asks for each of its runs.
@functools.lru_cache(maxsize=2048)
def imported_files(text: str, name: str, packages: frozenset[str]) -> tuple[str, ...]:
    """Files that a module may import: modules, packages, and parent packages.

    Args:
        text: Its code.
        name: Its path, from which relative imports are resolved.
        packages: Top-level modules whose files are wanted.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        # It is being edited; its checksum differs from that of the file that was imported.
        return ()
    found: list[str] = []
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = Path(name).parent.parts
            above = parents[: len(parents) + 1 - node.level] if node.level else ()
            module = ".".join((*above, *filter(None, [node.module])))
            modules = [module, *(f"{module}.{alias.name}" for alias in node.names)]
        for module in modules:
            if module.partition(".")[0] in packages:
                found += files_of_module(module)
    return tuple(found)


def _root(module: str) -> Path | None:
    """Folder from which a loaded module was imported; None if it is in no file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return None
    path = Path(file)
    depth = len(module.split("."))
    return path.parents[depth if path.stem == "__init__" else depth - 1]


def _closure(module: str, root: Path, packages: frozenset[str]) -> dict[str, Path]:
    files: dict[str, Path] = {}
    waiting = files_of_module(module)
    while waiting:
        name = waiting.pop()
        if name not in files and (root / name).is_file():
            files[name] = root / name
            text = (root / name).read_text(errors="replace")
            waiting += imported_files(text, name, packages)
    return files
