"""The code that a run uses: the files whose change could change its numbers.

They are what the trainer imports, at the top of a file or inside a function, and all of the run's
environment. Other estimators and identities of states are in the same registries and are left out,
as are sweeps, the doctor and this project's commands: a new baseline keeps no run from being
resumed.
"""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

from scpo.advantages.registry import ESTIMATORS
from scpo.schema.run import RunConfig

REGISTRIES = ("scpo/advantages/registry.py", "scpo/states/registry.py")
_ENTRY = re.compile(
    r"^from scpo\.(?:advantages|states)\.\w+ import [A-Z][A-Z0-9_]*\n", re.MULTILINE
)
_ENTRIES = re.compile(r"^OURS = \([^)]*\)", re.MULTILINE)


def without_entries(text: str) -> str:
    """A registry's code without its list of parts: a part that a run uses is compared itself."""
    return _ENTRIES.sub("OURS = ()", _ENTRY.sub("", text))


def used_files(config: RunConfig, root: Path) -> set[str]:
    """Paths, relative to ``root``, of the files that a run can execute."""
    waiting = ["scpo/trainers/__init__.py", *_parts(config)]
    for folder in (f"scpo/trainers/{_trainer(config)}", f"scpo/envs/{config.env.name}"):
        waiting += [str(path.relative_to(root)) for path in sorted((root / folder).rglob("*.py"))]
    used: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in used or not (root / name).is_file():
            continue
        used.add(name)
        text = (root / name).read_text()
        waiting += _imported(without_entries(text) if name in REGISTRIES else text)
    return used


def _trainer(config: RunConfig) -> str:
    if config.method.kind != "trained":
        return "evaluate"
    return config.trainer.name


def _parts(config: RunConfig) -> Iterator[str]:
    """Files of the estimator and of the identities that the method names."""
    if config.method.kind != "trained":
        return
    functions = [ESTIMATORS[config.method.estimator.name].function]
    functions += [identity.function for identity in config.method.identities.values()]
    for function in functions:
        yield function.__module__.replace(".", "/") + ".py"


# Cached, because a sweep asks for each of its runs.
@functools.lru_cache(maxsize=2048)
def _imported(text: str) -> tuple[str, ...]:
    """Files that may hold what a module imports: modules, packages, and the packages above them."""
    found: list[str] = []
    for node in ast.walk(ast.parse(text)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            # scpo/__init__.py names two functions of analysis for notebooks.
            if parts[0] != "scpo":
                continue
            for length in range(1, len(parts) + 1):
                path = "/".join(parts[:length])
                found += (f"{path}.py", f"{path}/__init__.py")
    return tuple(found)
