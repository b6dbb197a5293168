import sys
from importlib.metadata import EntryPoint, PathDistribution

import pytest

from scpo.installed import REPOSITORY
from scpo.records import code_files
from scpo.records.code_files import (
    REGISTRIES,
    _parts,
    imported_files,
    installed_files,
    used_files,
    without_entries,
)
from scpo.shaping.matcher import MATCHERS
from sweeps.compose.configuration import compose_run

ROLLOUT = {"scpo/rollout.py", "scpo/policies/loss.py", "scpo/trainers/local/trainer.py", "scpo/steps.py"}


@pytest.mark.parametrize(
    ("method", "used", "unused"),
    [
        ("gigpo", {"gigpo", "groups", "registry"}, {"crbc", "graphgpo", "hgpo"}),
        ("crbc", {"crbc", "groups", "registry"}, {"gigpo", "hgpo"}),
        ("scpo", {"gigpo"}, {"crbc"}),
    ],
)
def test_a_run_uses_its_own_estimator_and_no_other(method, used, unused):
    files = used_files(compose_run([f"method={method}"]), REPOSITORY)
    assert files >= {f"scpo/advantages/{name}.py" for name in used} | ROLLOUT
    assert not files & {f"scpo/advantages/{name}.py" for name in unused}


def test_a_run_uses_its_trainer_its_environment_and_its_identity_of_states():
    files = used_files(compose_run(["method=crbc", "method.estimator.states=closure"]), REPOSITORY)
    assert {"scpo/states/closure.py", "scpo/envs/alfworld/environment.py"} <= files
    assert not files & {"scpo/states/tfidf.py", "scpo/trainers/verl/trainer.py", "scpo/new.py", "scpo/preflight.py"}


def test_a_run_uses_its_matcher_and_no_other_that_has_a_file_of_its_own(monkeypatch):
    def mine(rule, m, order): ...

    mine.__module__ = "scpo.shaping.order"  # some file of the package
    monkeypatch.setitem(MATCHERS, "kmp", mine)
    assert "scpo/shaping/order.py" in list(_parts(compose_run(["method=scpo"])))
    assert "scpo/shaping/order.py" not in list(_parts(compose_run(["method=scpo", "method.shaper.matcher=forward"])))


@pytest.mark.parametrize("name", REGISTRIES)
def test_a_registry_without_its_entries_keeps_its_code(name):
    text = (REPOSITORY / name).read_text()
    kept = without_entries(text)
    assert "OURS = ()" in kept
    assert "GIGPO" not in kept
    assert kept.count("\ndef ") == text.count("\ndef ")


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package of three modules that its entry point reaches, one that it does not, and a module beside it."""
    texts = {
        "mine/__init__.py": "",
        "mine/tide/__init__.py": "",
        "mine/tide/entry.py": "from ..formula import pull\nimport numpy\nimport beside\nimport other\n",
        "mine/formula.py": "def pull():\n    from mine import late\n",
        "mine/late.py": "broken = (",
        "mine/unused.py": "",
        "beside.py": "",
        "other.py": "",
        "mine-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n",
        "mine-1.0.dist-info/top_level.txt": "beside\nmine\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    module = type(sys)("mine.tide.entry")
    module.__file__ = str(tmp_path / "mine/tide/entry.py")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    point = EntryPoint("tide", "mine.tide.entry:TIDE", "scpo.estimators")
    vars(point).update(dist=PathDistribution(tmp_path / "mine-1.0.dist-info"))
    monkeypatch.setattr(code_files, "PACKAGES", {("scpo.estimators", "tide"): point})
    return tmp_path


def test_the_files_of_a_package_are_those_that_its_entry_point_imports_of_the_package(package):
    reached = {"mine/__init__.py", "mine/tide/__init__.py", "mine/tide/entry.py", "mine/formula.py", "mine/late.py"}
    assert installed_files() == {name: package / name for name in {*reached, "beside.py"}}


def test_an_imported_module_of_ones_own_is_recorded_without_a_package(package, monkeypatch, tmp_path_factory):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "my_helpers.py").write_text("import json, numpy, scpo, my_constants\n")
    (elsewhere / "my_constants.py").write_text("K = 1.0\n")
    (elsewhere / "my_unused.py").write_text("")
    (package / "mine/late.py").write_text("import my_helpers, no_such_module_of_anyone\n")
    monkeypatch.syspath_prepend(elsewhere)
    code_files._own_folder.cache_clear()
    found = installed_files()
    own = {name: path for name, path in found.items() if name.startswith("my_")}
    assert own == {name: elsewhere / name for name in ("my_helpers.py", "my_constants.py")}
    assert all(name.startswith(("my_", "mine/", "beside")) for name in found)
    # Without a folder of its own on the path, it cannot be imported by a run, either.
    code_files._own_folder.cache_clear()


def test_without_an_installed_part_there_are_none(monkeypatch):
    monkeypatch.setattr(code_files, "PACKAGES", {})
    assert installed_files() == {}


def test_relative_imports_are_those_of_the_package():
    text = "from . import a\nfrom .b import c\nfrom .. import d\nimport numpy"
    found = imported_files(text, "mine/tide/entry.py", frozenset({"mine"}))
    assert {"mine/tide/a.py", "mine/tide/b.py", "mine/d.py", "mine/__init__.py"} <= set(found)
    assert all(name.startswith("mine") for name in found)
