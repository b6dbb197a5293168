"""The Makefile's part of an installation: which Python it takes, and difficult paths."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.fake_commands import fake_python

ROOT = Path(__file__).parents[4]
MAKE = shutil.which("make")


def make(folder, *words, path=None):
    variables = {"PATH": str(path), "LC_ALL": "C"}
    done = subprocess.run([MAKE, *words], cwd=folder, env=variables, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def checkout(tmp_path):
    """The Makefile in a folder with a difficult name, with an environment whose Python says what it was asked."""
    folder = tmp_path / "Pfad mit Ümlaut" / "scpo"
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    fake_python(folder / ".venv" / "bin" / "python", 'case "$*" in *--check) exit 0;; esac; echo "asked: $*"')
    return folder


def test_the_demo_trains_and_draws_also_in_a_path_with_spaces_and_umlauts(checkout, tmp_path):
    status, said = make(checkout, "--silent", "demo", "DEMO=+experiment=ablation", path=tmp_path / "nothing")
    assert status == 0
    assert said.splitlines()[1:] == ["asked: sweep.py +experiment=ablation", "asked: -m analysis figures"]


def test_an_environment_may_lie_in_a_path_with_spaces_too(checkout, tmp_path):
    (checkout / ".venv").rename(tmp_path / "my venv")
    path = tmp_path / "nothing"
    assert make(checkout, "--silent", "figures", f"VENV={tmp_path}/my venv", path=path) == (
        0,
        "asked: -m analysis figures\n",
    )


@pytest.mark.parametrize(
    ("python", "found"),
    [('case "$1" in --version) echo Python 3.9.18;; *) exit 1;; esac', "Python 3.9.18"), (None, "not there")],
)
def test_a_python_that_is_too_old_or_missing_is_told_with_how_to_name_another(checkout, tmp_path, python, found):
    shutil.rmtree(checkout / ".venv")
    path = tmp_path / "path"
    path.mkdir()
    if python is not None:
        fake_python(path / "python3", python)
    status, said = make(checkout, "--silent", "demo", path=path)
    assert status != 0
    (line,) = [line for line in said.splitlines() if line.startswith("error: ")]
    assert line.startswith(f"error: Python 3.11 or newer is needed, python3 is {found}. Install one, or name it: ")
    assert line.endswith("make demo PYTHON=/path/to/python3.11")


def test_a_newer_python_of_another_name_is_taken(checkout, tmp_path):
    shutil.rmtree(checkout / ".venv")
    path = tmp_path / "path"
    fake_python(path / "python3", "exit 1")
    fake_python(path / "python3.12", 'case "$1" in -c) exit 0;; esac; echo "3.12 asked: $1 $2 $3"')
    assert make(checkout, "--silent", "setup", path=path) == (0, "3.12 asked: -m sweeps.doctor.installation .venv\n")


def test_a_make_that_is_too_old_is_told(checkout, tmp_path):
    status, said = make(checkout, "MAKE_VERSION=3.80", "demo", path=tmp_path)
    assert status != 0
    assert "GNU make 3.81 or newer is needed, this is 3.80" in said
