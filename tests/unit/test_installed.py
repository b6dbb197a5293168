import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from scpo.installed import CONSTRAINTS, CORE, install_command

ROOT = Path(__file__).parents[2]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
COMMAND = re.compile(r"pip install (?:-c (?P<pins>\S+) )?-e '\.\[(?P<extras>[^\]]+)\]'")


def texts():
    """Pages and code that users read commands in."""
    for folder in ("docs", "scpo", "sweeps", "analysis", "conf", "docker"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".md", ".py", ".yaml", ".ipynb", ".sh"):
                yield path
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "train.py", "sweep.py"))


def test_the_command_has_the_tested_versions():
    assert install_command("search") == "pip install -c constraints.txt -e '.[search]'"
    assert install_command("alfworld", "verl-cpu") == "pip install -c constraints-verl.txt -e '.[alfworld,verl-cpu]'"
    assert install_command("alfworld", "verl") == "pip install -e '.[alfworld,verl]'"


@pytest.mark.parametrize("pins", ["constraints.txt", *filter(None, CONSTRAINTS.values())])
def test_files_of_tested_versions_are_in_the_checkout(pins):
    assert (ROOT / pins).exists()
    assert set(CONSTRAINTS) <= set(EXTRAS)


def test_every_installation_command_of_code_and_pages_is_the_one_that_is_printed():
    found = 0
    for path in texts():
        for command in COMMAND.finditer(path.read_text()):
            if "{" in command["extras"]:  # in install_command itself
                continue
            extras = [extra for extra in command["extras"].split(",") if extra != "..."]
            assert set(extras) <= set(EXTRAS), f"{path}: {command[0]}"
            assert command[0] == install_command(*extras), path
            found += 1
    assert found >= 3


def test_nothing_is_said_to_be_on_a_package_index():
    """scpo is on none: ``pip install 'scpo[...]'`` has no matching distribution."""
    advised = [path for path in texts() if re.search(r"pip install[^\n]*['\"]scpo\[", path.read_text())]
    assert advised == [ROOT / "scpo" / "installed.py"]


@pytest.mark.parametrize(
    "command",
    [["sweep.py"], ["train.py", "method=scpo"], ["-m", "sweeps", "status"], ["-m", "analysis", "figures"]],
)
def test_a_python_without_the_packages_is_told_where_they_are_in_one_line(command):
    """Without site-packages this interpreter is the shell's own Python of somebody who forgot to activate."""
    done = subprocess.run([sys.executable, "-S", *command], check=False, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: {sys.executable} has no numpy, pydantic, hydra, rich; ")
    assert "source .venv/bin/activate" in line


def test_tables_and_figures_without_their_extra_name_its_installation_in_one_line(tmp_path):
    """``None`` in ``sys.modules`` is how Python marks a module as not to be found."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.modules['pandas'] = sys.modules['scipy'] = None")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    said = f"tables and figures need pandas, scipy: {install_command('analysis')}"
    for command in (["-m", "analysis", "figures"], ["-c", "import scpo; scpo.load_runs('runs')"]):
        done = subprocess.run(
            [sys.executable, *command], check=False, cwd=ROOT, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 1
        assert done.stderr.splitlines()[-1].endswith(said)
        assert (done.stderr == f"error: {said}\n") == (command[0] == "-m")


def test_the_core_modules_are_those_of_the_core_dependencies():
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = {"hydra-core": "hydra"}
    packages = [re.match(r"[\w-]+", dependency).group() for dependency in dependencies]
    assert [names.get(package, package) for package in packages] == list(CORE)
