"""Hashes of the code files, and which of the files could change a run's numbers.

Installed packages may register parts (``scpo.extensions``). Their files are found by parsing
imports and not in ``sys.modules``: the loaded modules depend on the progress of a process, so that
a driver and its runs would record different files.
"""

import ast
import functools
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path

from scpo.advantages.registry import ESTIMATORS
from scpo.installed import CODE_PARTS, CODE_SUFFIXES, REPOSITORY
from scpo.records.files import text_sum
from scpo.schema.parts import PACKAGES
from scpo.schema.run import RunConfig
from scpo.shaping.matcher import MATCHERS

# Modules that list all estimators or identities of states, of which a run uses only a few.
REGISTRIES = ("scpo/advantages/registry.py", "scpo/states/registry.py")
_ENTRY = re.compile(
    r"^from scpo\.(?:advantages|states)\.\w+ import [A-Z][A-Z0-9_]*\n", re.MULTILINE
)
_ENTRIES = re.compile(r"^OURS = \([^)]*\)", re.MULTILINE)


def code_files() -> dict[str, str]:
    """Path -> hash of each file of the running code; the same in a checkout and its snapshot.

    Includes the files of installed packages that register parts.
    """
    hashes = {}
    for part in CODE_PARTS:
        top = REPOSITORY / part
        paths = [top] if top.is_file() else top.rglob("*")
        for path in paths:
            if path.suffix in CODE_SUFFIXES and path.is_file():
                name = str(path.relative_to(REPOSITORY))
                content = path.read_bytes()
                if name in REGISTRIES:
                    content = without_entries(content.decode()).encode()
                hashes[name] = text_sum(content)
    for name, path in installed_files().items():
        hashes[name] = text_sum(path.read_bytes())
    return dict(sorted(hashes.items()))


def without_entries(text: str) -> str:
    """A registry's code without its entries; the entry that a run uses is compared as a file."""
    return _ENTRIES.sub("OURS = ()", _ENTRY.sub("", text))


def used_files(config: RunConfig, root: Path) -> set[str]:
    """Paths, as in ``code_files``, of the files whose change could change a run's numbers.

    These are the files that the trainer imports, at the top of a file or inside a function, and all
    files of the run's environment. For a part of an installed package, they include the files that
    the part imports from its package. Estimators and identities of states that the run does not
    use, and unused matchers and scorers in files of their own, are left out, so that a new baseline
    does not prevent runs from being resumed. Sweeps, the doctor and the commands of this project
    are left out, too.

    Args:
        config: The run's configuration.
        root: Folder of this project's code.
    """
    installed = installed_files()
    packages = frozenset({"scpo", *(name.split("/")[0].removesuffix(".py") for name in installed)})
    waiting = ["scpo/trainers/__init__.py", *_parts(config)]
    for folder in (f"scpo/trainers/{_trainer(config)}", f"scpo/envs/{config.env.name}"):
        waiting += [str(path.relative_to(root)) for path in sorted((root / folder).rglob("*.py"))]
    used: set[str] = set()
    while waiting:
        name = waiting.pop()
        path = installed.get(name, root / name)
        if name in used or not path.is_file():
            continue
        used.add(name)
        text = path.read_text(errors="replace")
        text = without_entries(text) if name in REGISTRIES else text
        # Not analysis: scpo/__init__.py imports two of its functions, but only for notebooks.
        waiting += imported_files(text, name, packages)
    return used


def code_kind(config: RunConfig) -> tuple[str, ...]:
    """Key that is equal for runs that use the same files, such as all seeds of a row."""
    return (*_parts(config), _trainer(config), config.env.name)


def _trainer(config: RunConfig) -> str:
    if config.method.kind != "trained":
        return "evaluate"
    return config.trainer.name


def _parts(config: RunConfig) -> Iterator[str]:
    """Files of the estimator, the identities, the matcher and the scorer that a run names."""
    if config.method.kind != "trained":
        return
    # Only a scorer in files of its own has these two; other scorers are found as imports.
    yield f"scpo/schema/scorer/{config.scorer.kind}.py"
    yield f"scpo/scoring/{config.scorer.kind}.py"
    identities = config.method.identities.values()
    named = [("scpo.estimators", config.method.estimator.name)]
    named += [("scpo.identities", identity.name) for identity in identities]
    functions = [ESTIMATORS[config.method.estimator.name].function]
    functions += [identity.function for identity in identities]
    if config.method.needs_scorer:
        named.append(("scpo.scorers", config.scorer.kind))
    if config.method.shaper is not None:
        named.append(("scpo.matchers", config.method.shaper.matcher))
        functions.append(MATCHERS[config.method.shaper.matcher])
    for part in named:
        if part in PACKAGES:
            # The entry point's file may only join settings with a function from elsewhere.
            yield from files_of_module(PACKAGES[part].module)
    for function in functions:
        yield from files_of_module(function.__module__)


def failed_part(error: Exception, config: RunConfig) -> str | None:
    """Estimator, identity or matcher that raised an error, with file and line; None if none did."""
    if config.method.kind != "trained":
        return None
    estimator = ESTIMATORS[config.method.estimator.name]
    parts: list[tuple[str, object]] = [(f"estimator {estimator.name!r}", estimator.function)]
    for identity in config.method.identities.values():
        parts.append((f"identity {identity.name!r}", identity.function))
    if config.method.shaper is not None:
        matcher = config.method.shaper.matcher
        parts.append((f"matcher {matcher!r}", MATCHERS[matcher]))
    # From the innermost line outwards, because the error may be raised in NumPy.
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        for what, function in parts:
            code = getattr(function, "__code__", None)
            if code is not None and code.co_filename == frame.filename:
                return f"{what}: {frame.filename}, line {frame.lineno}"
    return None


def installed_files() -> dict[str, Path]:
    """Files of all installed parts: path in the package, e.g. ``my_package/mine.py`` -> file.

    These are the file of each entry point and what it imports, at the top of a file or inside a
    function, of its own distribution and of modules outside site-packages, such as a module of
    helpers in a folder on PYTHONPATH. Imports by ``importlib`` are not seen.
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
def imported_files(text: str, name: str, packages: frozenset[str] | None = None) -> tuple[str, ...]:
    """Files that a module may import: modules, packages, and parent packages.

    Args:
        text: Code of the module.
        name: Path of the module, from which relative imports are resolved.
        packages: Top-level modules whose files are wanted; None for all.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        # The file is being edited; its checksum differs from that of the file that was imported.
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
            if packages is None or module.partition(".")[0] in packages:
                found += files_of_module(module)
    return tuple(found)


def _root(module: str) -> Path | None:
    """Folder from which a loaded module was imported; None if the module has no file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return None
    path = Path(file)
    depth = len(module.split("."))
    return path.parents[depth if path.stem == "__init__" else depth - 1]


def _closure(module: str, root: Path, packages: frozenset[str]) -> dict[str, Path]:
    """Path -> file of a module and of all modules that it imports, also indirectly."""
    files: dict[str, Path] = {}
    waiting = files_of_module(module)
    while waiting:
        name = waiting.pop()
        top = name.split("/")[0].removesuffix(".py")
        folder = root if top in packages else _own_folder(top)
        if folder is not None and name not in files and (folder / name).is_file():
            files[name] = folder / name
            waiting += imported_files((folder / name).read_text(errors="replace"), name)
    return files


@functools.cache
def _own_folder(top: str) -> Path | None:
    """Folder of a top-level module that is neither installed, nor Python's, nor this project's."""
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    places = list(spec.submodule_search_locations or [])
    if spec.has_location and spec.origin is not None and not places:
        places = [spec.origin]
    if not places:
        return None
    folder = Path(places[0]).resolve().parent
    paths = sysconfig.get_paths()
    not_own = [REPOSITORY, *(Path(paths[key]) for key in ("stdlib", "platstdlib"))]
    installed = {"site-packages", "dist-packages"} & set(folder.parts)
    if installed or any(folder.is_relative_to(place.resolve()) for place in not_own):
        return None
    return folder
