"""Who imports whom: no two files each other, not even along a chain, and no sibling its sibling.

Imports inside functions count; those for type checkers do not. import-linter checks the layers (``make lint``).
"""

import ast
import itertools
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("scpo", "sweeps", "analysis")
LONGEST_CHAIN = 18
SIBLINGS = (
    ("scpo.trainers", "scpo.integrations"),
    ("scpo.trainers.local", "scpo.trainers.verl", "scpo.trainers.evaluate"),
    ("scpo.policies", "scpo.rollout"),
    ("scpo.credit", "scpo.scoring", "scpo.envs", "scpo.agents"),
    ("scpo.envs.alfworld", "scpo.envs.webshop"),
    ("scpo.shaping", "scpo.advantages"),
    ("sweeps", "analysis"),
)


def files(root):
    """Every file of the product by the name that it is imported under."""
    tops = ("scpo", "sweeps", "analysis", "bench", "paper_figures")
    paths = [*(path for top in tops for path in (root / top).rglob("*.py")), *root.glob("*.py")]
    return {".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


def imports(modules):
    """Which files each file imports, by name."""
    return {name: set(_imported(ast.parse(path.read_text()), modules)) - {name} for name, path in modules.items()}


def _imported(node, modules):
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names if alias.name in modules)
        elif isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute here"
            named = [f"{child.module}.{alias.name}" for alias in child.names]
            yield from (name if name in modules else child.module for name in named)
        yield from _imported(child, modules)


def longest_chain(graph):
    """The longest chain of files, each of which imports the next."""
    chains = {}
    for name in TopologicalSorter(graph).static_order():
        below = max((chains[imported] for imported in graph.get(name, ())), key=len, default=[])
        chains[name] = [name, *below]
    return max(chains.values(), key=len)


def circle(graph):
    """The files of one circle, each imported by the one before; None: there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return error.args[1][::-1]
    return None


@pytest.fixture(scope="module")
def graph():
    modules = files(ROOT)
    return {name: {one for one in imported if one in modules} for name, imported in imports(modules).items()}


def test_no_two_files_import_each_other(graph):
    assert circle(graph) is None


def test_no_chain_of_imports_is_longer_than_a_reader_can_follow(graph):
    product = {name: imported for name, imported in graph.items() if name.split(".")[0] in PACKAGES}
    chain = longest_chain(product)
    assert len(chain) <= LONGEST_CHAIN, " > ".join(chain)


@pytest.mark.parametrize("family", SIBLINGS, ids=lambda family: family[0])
def test_siblings_do_not_import_each_other(graph, family):
    def within(name, package):
        return name == package or name.startswith(f"{package}.")

    assert all(any(within(name, package) for name in graph) for package in family)
    for importer, imported in itertools.permutations(family, 2):
        found = [(a, b) for a in graph if within(a, importer) for b in graph[a] if within(b, imported)]
        assert not found


def test_a_circle_is_found_through_functions_and_packages(tmp_path):
    sources = {
        "scpo/__init__.py": "",
        "scpo/one/__init__.py": "from scpo.one.low import x",
        "scpo/one/low.py": "def f():\n    import scpo.two",
        "scpo/two.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from scpo.one.low import y",
    }
    for name, text in sources.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert circle(imports(files(tmp_path))) is None
    (tmp_path / "scpo/two.py").write_text("from scpo.one import x")
    found = circle(imports(files(tmp_path)))
    assert set(found) == {"scpo.one", "scpo.one.low", "scpo.two"}
    assert all(later in imports(files(tmp_path))[earlier] for earlier, later in itertools.pairwise(found))


def test_the_longest_chain_is_found_along_imports_only():
    graph = {"a": {"b", "c"}, "b": {"c"}, "c": set(), "d": {"c"}}
    assert longest_chain(graph) == ["a", "b", "c"]
