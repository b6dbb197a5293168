"""Files of packages that register estimators, in the record of the code."""

import sys
from importlib.metadata import EntryPoint, PathDistribution

import pytest

from scpo.records import installed_code
from scpo.records.installed_code import imported_files, installed_files


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
    monkeypatch.setattr(installed_code, "PACKAGES", {"tide": point})
    return tmp_path


def test_the_files_of_a_package_are_those_that_its_entry_point_imports_of_the_package(package):
    reached = {"mine/__init__.py", "mine/tide/__init__.py", "mine/tide/entry.py", "mine/formula.py", "mine/late.py"}
    assert installed_files() == {name: package / name for name in {*reached, "beside.py"}}


def test_without_an_installed_estimator_there_are_none(monkeypatch):
    monkeypatch.setattr(installed_code, "PACKAGES", {})
    assert installed_files() == {}


def test_relative_imports_are_those_of_the_package():
    text = "from . import a\nfrom .b import c\nfrom .. import d\nimport numpy"
    found = imported_files(text, "mine/tide/entry.py", frozenset({"mine"}))
    assert {"mine/tide/a.py", "mine/tide/b.py", "mine/d.py", "mine/__init__.py"} <= set(found)
    assert all(name.startswith("mine") for name in found)
