import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scpo.errors import ConfigError
from scpo.new import CHECKOUT, new_estimator, new_identity


@pytest.fixture
def checkout(tmp_path):
    """What the tests of an estimator need of the checkout."""
    for name in ("scpo", "conf"):
        shutil.copytree(CHECKOUT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("tests/support", "tests/contract", "tests/unit/advantages", "tests/unit/states"):
        keep = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / name, tmp_path / name, ignore=keep)
    for path in ("tests/__init__.py", "tests/unit/__init__.py", "tests/conftest.py", "pyproject.toml"):
        shutil.copy(CHECKOUT / path, tmp_path / path)
    return tmp_path


def test_a_new_estimator_passes_its_own_test_and_the_laws(checkout):
    files = new_estimator("my_method", checkout)
    assert [path.name for path in files] == ["my_method.py", "my_method.yaml", "my_method.yaml", "test_my_method.py"]
    tests = ["tests/unit/advantages/test_my_method.py", "tests/contract/test_estimators.py", "-k", "my_method"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    env = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    said = subprocess.run(
        [sys.executable, "-c", "import scpo; print(scpo.load_method('my_method').estimator.name, scpo.__file__)"],
        cwd=checkout, env=env, capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert said.startswith("my_method")
    assert Path(said.split()[1]).is_relative_to(checkout)


def test_a_new_identity_passes_its_own_test_and_the_laws(checkout):
    files = new_identity("my_states", checkout)
    assert [path.name for path in files] == ["my_states.py", "test_my_states.py"]
    tests = ["tests/unit/states/test_my_states.py", "tests/unit/states/test_registry.py", "-k", "my_states"]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
    env = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "." * 7 in done.stdout  # its own test and six cases of the laws


def test_an_identity_that_exists_is_not_overwritten(checkout):
    with pytest.raises(ConfigError, match="the name 'entities' is taken"):
        new_identity("entities", checkout)


@pytest.mark.parametrize(
    ("name", "message"), [("gigpo", "is taken"), ("MyMethod", "no name of an estimator"), ("1x", "no name")]
)
def test_names_that_cannot_be_are_refused_before_anything_is_written(tmp_path, name, message):
    with pytest.raises(ConfigError, match=message):
        new_estimator(name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_another_folder_is_no_checkout(tmp_path):
    with pytest.raises(ConfigError, match="is no checkout"):
        new_estimator("mine", tmp_path)
