"""docs/architecture.md names the functions that a row of data passes through: each is where the page says."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
STEPS = re.findall(r"`([\w/]+\.py): ([\w.]+)`", PAGE)
PATHS = re.findall(r"`((?:\w+/)*\w+\.py)`", PAGE)


def files(name):
    """Files of the product, or of the tests, whose path ends so."""
    found = [path for top in ("scpo", "sweeps", "analysis", "tests") for path in (ROOT / top).rglob(Path(name).name)]
    found += [ROOT / name] if (ROOT / name).is_file() else []
    return [path for path in found if path.as_posix().endswith(f"/{name}")]


def defined(path):
    """Names of functions and classes, methods as Class.method."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        if isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef))


def test_the_page_names_steps():
    assert len(STEPS) > 20


@pytest.mark.parametrize(("file", "name"), STEPS)
def test_every_step_is_a_function_of_the_file_that_is_named(file, name):
    assert any(name in defined(path) for path in files(file))


@pytest.mark.parametrize("name", PATHS)
def test_every_file_that_is_named_exists(name):
    assert files(name)
