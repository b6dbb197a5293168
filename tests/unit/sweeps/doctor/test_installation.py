"""Nothing is installed here: what the real pip and the real machine would say is put in their place."""

import dataclasses
import json
import locale
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from sweeps.doctor import installation
from sweeps.doctor import run_pip as pip
from sweeps.doctor.installation import STATE, Environment, install, is_ready, main, must_be_made
from sweeps.doctor.run_pip import InstallationError
from tests.support.fake_commands import fake_python

ROOT = Path(__file__).parents[4]
MAKE = shutil.which("make")
THERE = f"{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture
def wanted(tmp_path):
    return Environment(
        tmp_path / "venv", ROOT / "constraints.txt", extras="webshop", torch_index="", download=10, disk=100
    )


@pytest.fixture
def calls(monkeypatch):
    """What pip was asked to install; environments are made as a fake."""
    asked = []
    monkeypatch.setattr(pip, "run", asked.append)
    monkeypatch.setattr(installation, "_make", lambda environment, why: fake_venv(environment.folder))
    monkeypatch.setattr(installation, "_warn_of_cuda", lambda words, report: None)
    monkeypatch.setattr(installation, "_pip_version", lambda python: (23, 1))
    return asked


def fake_venv(folder, version=THERE):
    fake_python(folder / "bin" / "python", f"echo {version}")
    (folder / "bin" / "activate").write_text(f"VIRTUAL_ENV={folder}\n")
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\n")


def changed(environment, **values):
    path = environment.folder / STATE
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


# A whole installation


def test_an_installation_is_ready_when_pip_has_ended_and_does_nothing_the_next_time(wanted, calls):
    assert not is_ready(wanted)
    install(wanted)
    assert [words[-2:] for words in calls] == [["-e", f"{ROOT}[webshop]"]]
    assert is_ready(wanted)
    assert must_be_made(wanted) is None


def test_another_build_of_torch_is_installed_first_from_its_index_alone(wanted, calls):
    install(dataclasses.replace(wanted, torch_index="file:///builds"))
    first, second = calls
    assert first[-3:] == ["--index-url", "file:///builds", "torch"]
    assert "--index-url" not in second
    assert is_ready(wanted)  # the index need not be named again


def test_new_pins_bring_an_environment_up_to_date_without_making_it_anew(wanted, calls, tmp_path, monkeypatch):
    install(wanted)
    pins = tmp_path / "constraints.txt"
    pins.write_text("torch==1\n")
    newer = dataclasses.replace(wanted, pins=pins)
    assert not is_ready(newer)
    monkeypatch.setattr(installation, "_make", lambda *_: pytest.fail("made anew"))
    install(newer)
    assert is_ready(newer)
    assert not is_ready(wanted)


def test_an_installation_that_was_interrupted_begins_anew(wanted, calls, monkeypatch):
    def interrupted(words):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(pip, "run", interrupted)
        with pytest.raises(KeyboardInterrupt):
            install(wanted)
    assert not is_ready(wanted)
    assert must_be_made(wanted) == "its installation was interrupted"
    install(wanted)
    assert is_ready(wanted)


def test_an_environment_that_was_half_made_when_its_maker_was_killed_is_made_anew(wanted, monkeypatch):
    def killed(words, **_):
        (wanted.folder / "pyvenv.cfg").write_text("home = /usr/bin\n")
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "run", killed)
    monkeypatch.setattr(installation, "check_room", lambda environment: None)
    with pytest.raises(KeyboardInterrupt):
        install(wanted)
    assert must_be_made(wanted) == "its installation was interrupted"


def test_the_command_says_in_one_line_how_it_was_stopped(wanted, calls, monkeypatch, capsys):
    def interrupted(words):
        raise KeyboardInterrupt

    words = [str(wanted.folder), "--pins", str(wanted.pins), "--extras", "webshop", "--download", "1", "--disk", "1"]
    monkeypatch.setattr(pip, "run", interrupted)
    assert main([*words, "--check"]) == 1
    assert main(words) == 130
    assert capsys.readouterr().err.splitlines()[-1].startswith("stopped. The same command starts again")


def test_a_pip_that_is_too_old_is_renewed_first(wanted, calls, monkeypatch):
    monkeypatch.setattr(installation, "_pip_version", lambda python: (23, 0))
    install(wanted)
    assert [words[-1] for words in calls] == ["pip", f"{ROOT}[webshop]"]


# An environment that is there


def test_an_environment_that_was_moved_is_made_anew(wanted, calls, tmp_path):
    install(wanted)
    shutil.copytree(wanted.folder, tmp_path / "elsewhere")
    moved = dataclasses.replace(wanted, folder=tmp_path / "elsewhere")
    assert not is_ready(moved)
    assert must_be_made(moved) == f"it was made in another place, {wanted.folder}"
    install(moved)
    assert is_ready(moved)


@pytest.mark.parametrize(
    ("python", "fault"),
    [
        ("echo 3.9", f"it was made by Python {THERE}, its Python is now 3.9 and yours {THERE}"),
        ("exit 1", "its Python does not start or has no pip"),
        (None, "its Python does not start (No such file or directory)"),
    ],
)
def test_an_environment_with_another_python_or_none_is_made_anew(wanted, calls, python, fault):
    install(wanted)
    wanted.python.unlink()
    if python is not None:
        fake_python(wanted.python, python)
    assert must_be_made(wanted) == fault


def test_an_environment_of_an_older_python_is_made_anew(wanted, calls):
    install(wanted)
    fake_python(wanted.python, "echo 3.8")
    changed(wanted, python="3.8")
    assert not is_ready(wanted)
    assert must_be_made(wanted) == f"it was made by Python 3.8, its Python is now 3.8 and yours {THERE}"


def test_an_environment_of_someone_else_is_used_and_never_deleted(wanted, calls, monkeypatch):
    fake_venv(wanted.folder)
    monkeypatch.setattr(installation, "_make", lambda *_: pytest.fail("deleted"))
    install(wanted)
    assert is_ready(wanted)
    changed(wanted, finished=False)
    with pytest.raises(InstallationError, match=r"venv cannot be used: its installation was interrupted. Delete it"):
        install(wanted)


@pytest.mark.parametrize("content", ["thesis.tex", "data/results.csv"])
def test_a_folder_that_is_no_environment_is_left_alone(wanted, calls, content):
    path = wanted.folder / content
    path.parent.mkdir(parents=True)
    path.write_text("years of work")
    with pytest.raises(InstallationError, match=r"is no virtual environment. Name another: make setup VENV="):
        install(wanted)
    assert path.read_text() == "years of work"
    assert calls == []


# The machine


def test_a_python_that_cannot_make_environments_is_told_with_debians_package(wanted, calls, monkeypatch):
    monkeypatch.setitem(sys.modules, "ensurepip", None)
    with pytest.raises(InstallationError, match=rf"apt-get install python{THERE}-venv, then give the same command"):
        install(wanted)
    assert not wanted.folder.exists()


def test_a_folder_that_this_locale_cannot_read_is_told_with_a_locale_that_can(tmp_path, monkeypatch):
    monkeypatch.setattr(installation, "ROOT", Path("/home/me/Müll"))
    monkeypatch.setattr(locale, "getencoding", lambda: "ANSI_X3.4-1968")
    with pytest.raises(InstallationError, match=r"in this locale \(ANSI_X3.4-1968\). Either export LC_ALL=C.UTF-8"):
        installation.check_locale(Path("/home/me/.venv"))
    monkeypatch.setattr(locale, "getencoding", lambda: "UTF-8")
    installation.check_locale(Path("/home/me/.venv"))
    monkeypatch.setattr(installation, "ROOT", Path("/home/me/scpo"))
    monkeypatch.setattr(locale, "getencoding", lambda: "ANSI_X3.4-1968")
    installation.check_locale(Path("/home/me/.venv"))


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        (["make", "gcc"], "a C++ compiler missing"),
        (["gcc", "g++"], "make missing"),
        ([], "make and a C compiler and a C++ compiler missing"),
        (["make", "gcc", "clang++"], None),
    ],
)
def test_missing_compilers_are_named_with_what_needs_them(tmp_path, monkeypatch, there, missing):
    for tool in there:
        fake_python(tmp_path / tool, "exit 0")
    monkeypatch.setenv("PATH", str(tmp_path))
    if missing is None:
        installation.check_compilers("alfworld,local", {})
        return
    with pytest.raises(InstallationError) as error:
        installation.check_compilers("alfworld,local", {})
    assert str(error.value).startswith(f"{missing}: jericho and fast-downward-textworld")
    assert "apt-get install build-essential" in str(error.value)
    installation.check_compilers("webshop,local", {})  # nothing of theirs is compiled


def test_a_disk_without_room_is_told_before_anything_is_downloaded(wanted, calls, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=80 * 10**6))
    with pytest.raises(InstallationError, match=r"has 80 MB free, 1[0-2]0 MB are needed. Make room, then give"):
        install(wanted)
    assert calls == []
