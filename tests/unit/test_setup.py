"""`make setup`: setup.sh in a shell without other commands, with a script in the place of Python.

Nothing is installed here; the script makes the files that venv would make, and pip's messages.
"""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.fake_commands import fake_python

ROOT = Path(__file__).parents[2]
TOOLS = (
    *("sh", "cat", "cksum", "head", "tail", "grep", "ls", "df", "awk"),
    *("sed", "mkdir", "find", "rm", "mv", "sleep", "cp", "chmod", "touch"),
)
COMPILERS = ("make", "gcc", "g++")
STAMP = "scpo-environment.txt"
# Answers like Python 3.12, in the environment too. What pip is asked for is kept in `pip-calls` of
# the checkout; a file `pip-fails` there is its message, or its way to be killed.
PYTHON = r"""
case "$*" in
  "--version") echo Python 3.12.1;;
  "-m venv "*) mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && touch "$3/pyvenv.cfg";;
  "-m pip --log "*)
    echo "$*" | grep -o 'install .*' >>pip-calls
    if [ -e pip-fails ]; then cat pip-fails >&2; cp pip-fails "$4"; exit 3; fi
    if [ -e pip-is-killed ]; then kill -9 $PPID; fi;;
  "-m pip "*) cat pip-report 2>/dev/null;;
  *"print("*) echo "${FAKE_VERSION:-3.12}";;
esac
"""


@pytest.fixture
def checkout(tmp_path):
    """What setup reads, in a folder with a difficult name, beside a folder with a fake Python."""
    folder = tmp_path / "Pfad mit Ümlaut" / "scpo"
    folder.mkdir(parents=True)
    for name in ("Makefile", "setup.sh", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    commands = tmp_path / "commands"
    for tool in TOOLS:
        commands.mkdir(exist_ok=True)
        (commands / tool).symlink_to(shutil.which(tool))
    for tool in COMPILERS:
        fake_python(commands / tool, "exit 0")
    fake_python(commands / "python3", PYTHON)
    return folder


def setup(checkout, *words, disk=1, **variables):
    """Run setup.sh; returns the exit status and what it printed."""
    commands = checkout.parents[1] / "commands"
    environment = {"PATH": str(commands), "LC_ALL": "C.UTF-8", **variables}
    folder, pins, extras = words or (".venv", "constraints.txt", "alfworld,local")
    command = ["sh", "setup.sh", folder, pins, extras, "1", str(disk)]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def calls(checkout):
    """The arguments of pip's installations so far."""
    path = checkout / "pip-calls"
    return path.read_text().splitlines() if path.exists() else []


def error_of(result):
    """The one line of an unsuccessful setup that says what to do."""
    status, output = result
    assert status == 1
    line = output.splitlines()[-1]
    assert line.startswith("error: ")
    return line


# A whole installation


def test_an_installation_is_complete_when_pip_has_ended_and_the_next_call_does_nothing(checkout):
    status, output = setup(checkout)
    assert status == 0, output
    assert "making .venv with Python 3.12.1: there was none" in output
    (call,) = calls(checkout)
    assert call.endswith("-c constraints.txt -e .[alfworld,local]")
    assert setup(checkout) == (0, "")
    assert len(calls(checkout)) == 1


def test_another_build_of_torch_is_installed_first_and_only_from_its_index(checkout):
    setup(checkout, TORCH_INDEX="file:///builds")
    first, second = calls(checkout)
    assert first.endswith("--index-url file:///builds torch")
    assert "--index-url" not in second
    assert setup(checkout) == (0, "")  # the index need not be named again


def test_a_torch_with_cuda_is_announced_before_it_is_downloaded(checkout):
    (checkout / "pip-report").write_text('{"install": [{"metadata": {"name": "nvidia-cublas"}}]}')
    fake_python(checkout.parents[1] / "commands" / "pause", "exit 0").replace(
        checkout.parents[1] / "commands" / "sleep"
    )
    _, output = setup(checkout)
    assert "NOTE: this torch comes with CUDA, a download of about 3 GB." in output


def test_new_pins_bring_an_environment_up_to_date_without_making_it_anew(checkout):
    setup(checkout)
    (checkout / ".venv" / "installed-by-hand").touch()
    (checkout / "constraints.txt").write_text("torch==1\n")
    status, output = setup(checkout)
    assert (status, len(calls(checkout))) == (0, 2)
    assert "making" not in output
    assert (checkout / ".venv" / "installed-by-hand").exists()
    assert setup(checkout) == (0, "")


@pytest.mark.parametrize("during", ["the first installation", "an update"])
def test_an_installation_that_was_killed_begins_anew(checkout, during):
    if during == "an update":
        setup(checkout)
        (checkout / "constraints.txt").write_text("torch==1\n")
    (checkout / "pip-is-killed").touch()
    assert setup(checkout)[0] != 0
    (checkout / "pip-is-killed").unlink()
    status, output = setup(checkout)
    assert status == 0
    assert "its installation was interrupted" in output
    assert setup(checkout) == (0, "")


def test_an_environment_that_was_half_made_when_its_maker_was_killed_is_made_anew(checkout):
    text = PYTHON.replace('&& cp "$0"', "&& touch $3/pyvenv.cfg && kill -9 $PPID && cp")
    fake_python(checkout.parents[1] / "commands" / "python3", text)
    assert setup(checkout)[0] != 0
    fake_python(checkout.parents[1] / "commands" / "python3", PYTHON)
    status, output = setup(checkout)
    assert (status, "its installation was interrupted" in output) == (0, True)


# An environment that is there


def test_a_checkout_that_was_moved_makes_its_environment_anew(checkout):
    setup(checkout)
    moved = checkout.rename(checkout.with_name("moved"))
    status, output = setup(moved)
    assert (status, "it was moved, or has another Python now" in output) == (0, True)


@pytest.mark.parametrize("python", ["echo 3.9", "exit 1", None])
def test_an_environment_with_another_python_or_none_is_made_anew(checkout, python):
    setup(checkout)
    (checkout / ".venv" / "bin" / "python").unlink()
    if python is not None:
        fake_python(checkout / ".venv" / "bin" / "python", python)
    status, output = setup(checkout)
    assert (status, "it was moved, or has another Python now" in output) == (0, True)
    assert setup(checkout) == (0, "")


def test_an_environment_of_someone_else_is_used_and_never_deleted(checkout):
    fake_python(checkout / ".venv" / "bin" / "python", PYTHON)
    (checkout / ".venv" / "pyvenv.cfg").touch()
    status, output = setup(checkout)
    assert (status, "making" in output) == (0, False)
    assert not (checkout / ".venv" / STAMP).exists()
    fake_python(checkout / ".venv" / "bin" / "python", "exit 1")
    assert error_of(setup(checkout)).startswith("error: .venv cannot be used")
    assert (checkout / ".venv" / "pyvenv.cfg").exists()


def test_an_environment_that_another_checkout_uses_is_refused_until_that_one_is_gone(checkout):
    shared = checkout.parent / "shared environment"
    words = (str(shared), "constraints.txt", "local")
    setup(checkout, *words)
    (shared / "installed-by-hand").touch()
    other = checkout.with_name("other")
    shutil.copytree(checkout, other)
    told = error_of(setup(other, *words))
    assert f"{shared} is the environment of the checkout {checkout}. Name another" in told
    assert (shared / "installed-by-hand").exists()
    shutil.rmtree(checkout)
    status, output = setup(other, *words)
    assert status == 0
    assert "it was moved" in output


def test_a_copy_of_a_checkout_makes_the_copied_environment_anew(checkout):
    setup(checkout)
    other = checkout.with_name("other")
    shutil.copytree(checkout, other)
    status, output = setup(other)
    assert status == 0
    assert "it was moved" in output


@pytest.mark.parametrize("content", ["thesis.tex", "data/results.csv"])
def test_a_folder_that_is_no_environment_is_left_alone(checkout, content):
    path = checkout / ".venv" / content
    path.parent.mkdir(parents=True)
    path.write_text("years of work")
    error = error_of(setup(checkout))
    assert error == "error: .venv is no virtual environment. Name another: make setup VENV=<folder>"
    assert path.read_text() == "years of work"
    assert calls(checkout) == []


# The machine


@pytest.mark.parametrize(
    ("python", "version"),
    [('case "$1" in --version) echo Python 3.9.18;; *) exit 1;; esac', "Python 3.9.18"), (None, "not there")],
)
def test_a_python_that_is_too_old_or_missing_is_named_with_how_to_name_another(checkout, python, version):
    commands = checkout.parents[1] / "commands"
    (commands / "python3").unlink()
    if python is not None:
        fake_python(commands / "python3", python)
    assert error_of(setup(checkout)) == (
        f"error: Python 3.11 or newer is needed, python3 is {version}. Install one, or name it: "
        "make setup PYTHON=/path/to/python3.11"
    )


def test_a_named_python_that_is_missing_is_refused_and_no_other_is_taken(checkout):
    assert error_of(setup(checkout, PYTHON="python3.99")) == (
        "error: Python 3.11 or newer is needed, python3.99 is not there. Install one, or name it: "
        "make setup PYTHON=/path/to/python3.11"
    )


def test_a_newer_python_of_another_name_is_taken(checkout):
    commands = checkout.parents[1] / "commands"
    (commands / "python3").rename(commands / "python3.12")
    fake_python(commands / "python3", "exit 1")
    assert setup(checkout)[0] == 0


def test_a_python_that_cannot_make_environments_is_named_with_debians_package(checkout):
    text = PYTHON.replace('case "$*" in', 'case "$*" in *ensurepip*) exit 1;;')
    fake_python(checkout.parents[1] / "commands" / "python3", text)
    error = error_of(setup(checkout))
    assert error.endswith("apt-get install python3.12-venv, then give the same command again")
    assert not list((checkout / ".venv").iterdir())


def test_a_folder_that_this_locale_cannot_express_is_named_with_a_locale_that_can(checkout):
    commands = checkout.parents[1] / "commands"
    # In UTF-8 mode, which LC_ALL=C turns on, Python still reads .pth files in the locale's encoding.
    fake_python(commands / "python3", f'exec "{sys.executable}" "$@"')
    error = error_of(setup(checkout, LC_ALL="C"))
    assert "Either export LC_ALL=C.UTF-8" in error


@pytest.mark.parametrize(
    ("there", "missing"),
    [
        (["make", "gcc"], "a C++ compiler"),
        (["gcc", "g++"], "make"),
        ([], "make, a C compiler, a C++ compiler"),
        (["make", "gcc", "clang++"], None),
    ],
)
def test_missing_compilers_are_named_with_what_needs_them(checkout, there, missing):
    commands = checkout.parents[1] / "commands"
    for tool in COMPILERS:
        (commands / tool).unlink()
    for tool in there:
        fake_python(commands / tool, "exit 0")
    result = setup(checkout)
    if missing is None:
        assert result[0] == 0
        return
    error = error_of(result)
    assert error.startswith(f"error: missing: {missing}. jericho and fast-downward-textworld")
    assert "apt-get install build-essential" in error
    # Nothing of TextWorld's is compiled for WebShop.
    assert setup(checkout, ".venv", "constraints.txt", "webshop,local")[0] == 0


def test_a_disk_without_room_is_named_before_anything_is_downloaded(checkout):
    error = error_of(setup(checkout, disk=10**12))
    assert error.startswith("error: the disk of .venv has ")
    assert error.endswith("MB are needed. Make room, then give the same command again")
    assert calls(checkout) == []


@pytest.mark.parametrize(
    ("message", "cause"),
    [
        (
            "WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by "
            "'NewConnectionError(': Failed to establish a new connection: [Errno 111] "
            "Connection refused')': /simple/torch/\n"
            "ERROR: No matching distribution found for torch\n",
            "no package index can be reached",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
            "the disk is full. Make room there",
        ),
        (
            "ERROR: No matching distribution found for torch==2.13.0\n",
            "the package index has no build of a package for this Python",
        ),
        ("error: [Errno 13] Permission denied: '/opt/venv/lib'\n", "a folder cannot be written"),
        (
            "  error: subprocess-exited-with-error\n  Building wheel for jericho did not run successfully.\n",
            "a package could not be compiled",
        ),
        ("Segmentation fault\n", "pip failed; the lines above say why"),
    ],
)
def test_a_failure_of_pip_ends_with_one_line_and_a_remedy(checkout, message, cause):
    (checkout / "pip-fails").write_text(message)
    result = setup(checkout)
    assert error_of(result).startswith(f"error: {cause}")
    assert message in result[1]


# The Makefile


def make(folder, *words, path):
    variables = {"PATH": str(path), "LC_ALL": "C.UTF-8"}
    command = [shutil.which("make"), *words]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def installed(checkout):
    """A checkout whose environment is complete; its Python says what it is asked to run."""
    text = PYTHON.replace("esac", '*.py*|"-m analysis"*) echo "asked: $*";;\nesac')
    fake_python(checkout.parents[1] / "commands" / "python3", text)
    extras = "alfworld,webshop,local,agents,track,analysis,search,slurm,dev"
    assert setup(checkout, ".venv", "constraints.txt", extras)[0] == 0
    return checkout


def test_the_demo_trains_and_draws_also_in_a_path_with_spaces_and_umlauts(installed):
    commands = installed.parents[1] / "commands"
    status, output = make(installed, "--silent", "demo", "DEMO=+experiment=ablation", path=commands)
    assert status == 0
    asked = ["asked: sweep.py +experiment=ablation", "asked: -m analysis figures"]
    assert output.splitlines()[1:] == asked


def test_an_environment_may_lie_in_a_path_with_spaces_too(installed):
    commands = installed.parents[1] / "commands"
    venv = f"{installed.parents[1]}/my venv"
    assert make(installed, "--silent", "setup", f"VENV={venv}", path=commands)[0] == 0
    assert make(installed, "--silent", "figures", f"VENV={venv}", path=commands) == (
        0,
        "asked: -m analysis figures\n",
    )


def test_a_make_that_is_too_old_is_named(checkout, tmp_path):
    status, output = make(checkout, "MAKE_VERSION=3.80", "demo", path=tmp_path)
    assert status != 0
    assert "GNU make 3.81 or newer is needed, this is 3.80" in output


@pytest.mark.parametrize(("target", "hint"), [("reprot", "; did you mean make report?"), ("xyzzy", "")])
def test_an_unknown_target_is_answered_with_the_nearest_one(target, hint):
    command = [shutil.which("make"), "--silent", "-C", str(ROOT), target]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert f"error: there is no target {target}{hint}{'' if hint else ';'} `make help` lists them" in done.stderr


def test_clean_removes_what_figures_wrote_and_keeps_the_published_numbers(checkout):
    built, published = (checkout / "paper_figures" / name for name in ("tab_main.csv", "published/main.csv"))
    published.parent.mkdir(parents=True)
    for path in (built, published):
        path.write_text("a,b\n")
    assert subprocess.run([shutil.which("make"), "--silent", "-C", str(checkout), "clean"], check=False).returncode == 0
    assert (built.exists(), published.exists()) == (False, True)
