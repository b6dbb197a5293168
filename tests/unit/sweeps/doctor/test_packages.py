"""The doctor against planted defects, one test each: it must see it, say the right level, and name the fix."""

import pytest

from scpo.installed import REPOSITORY
from sweeps.doctor import packages
from tests.support.doctor_findings import assert_finds

PYPROJECT = """
[project]
requires-python = "{python}"
dependencies = ["{core}"]
[project.optional-dependencies]
alfworld = ["numpy>=1"]
local = []
track = []
"""


@pytest.fixture
def project(tmp_path):
    """A project file with the given demands, and the constraints beside it."""

    def make(python=">=3.11", core="numpy", pins="numpy>=1"):
        (tmp_path / "pyproject.toml").write_text(PYPROJECT.format(python=python, core=core))
        (tmp_path / "constraints.txt").write_text(f"# pins\n{pins}\n")
        return tmp_path

    return make


def test_an_old_python(subject, project):
    found = packages.check_packages(subject(), project(python=">=3.99"))
    assert_finds(found, "error", "allowed: >=3.99", "make setup PYTHON=")


def test_a_missing_package(subject, project):
    found = packages.check_packages(subject(), project(core="no-such-package-at-all"))
    assert_finds(found, "error", "no-such-package-at-all is not installed", "make setup")


def test_a_package_that_is_too_old(subject, project):
    found = packages.check_packages(subject(), project(core="numpy>=99"))
    assert_finds(found, "error", "allowed: >=99")


def test_another_version_than_the_tested_one(subject, project):
    found = packages.check_packages(subject(), project(pins="numpy==1.0"))
    assert_finds(found, "warning", "(tested: 1.0)", "constraints.txt")


def test_a_trainer_without_packages_of_its_own(subject, project):
    found = packages.check_packages(subject("trainer=verl_agent", "scale=paper", "scorer=exact"), project())
    assert "all there for: core, alfworld, track" in [finding.text for finding in found]


@pytest.mark.parametrize(
    ("trainer", "command"),
    [
        ("verl", "in a virtual environment of its own: pip install -e '.[alfworld,track,verl]' (docs/verl.md)"),
        (
            "verl_cpu",
            "in a virtual environment of its own: pip install -c constraints-verl.txt "
            "-e '.[alfworld,track,verl-cpu]' (docs/verl.md)",
        ),
        ("local", "pip install -c constraints.txt -e '.[alfworld,local,track]'"),
    ],
)
def test_a_missing_package_of_a_trainer_is_installed_with_all_that_the_run_needs(subject, project, trainer, command):
    """One command for each extra: that of verl, into this environment, would have replaced its torch."""
    root = project()
    pyproject = root / "pyproject.toml"
    demands = "[no-such-package-at-all]".replace("[", '["').replace("]", '"]')
    pyproject.write_text(pyproject.read_text().replace("local = []", f"local = {demands}"))
    pyproject.write_text(pyproject.read_text() + f"verl = {demands}\nverl-cpu = {demands}\n")
    found = packages.check_packages(subject("method=gigpo", f"trainer={trainer}", "wandb.mode=offline"), root)
    (missing,) = [finding for finding in found if "no-such-package-at-all" in finding.text]
    assert missing.fix == command


def test_the_projects_own_root_has_what_the_doctor_reads():
    assert (REPOSITORY / "pyproject.toml").is_file()
    assert (REPOSITORY / "constraints.txt").is_file()
