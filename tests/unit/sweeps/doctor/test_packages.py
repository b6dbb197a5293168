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


def test_the_projects_own_root_has_what_the_doctor_reads():
    assert (REPOSITORY / "pyproject.toml").is_file()
    assert (REPOSITORY / "constraints.txt").is_file()
