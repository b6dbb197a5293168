"""What the system refuses is one line, and what a terminal cannot print does not end a command."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scpo.errors import ConfigError
from sweeps.terminal import complaint
from tests.support import fake_runs as fake

ROOT = Path(__file__).parents[3]


def call(*command, **variables):
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        timeout=100,
        check=False,
    )
    return done.returncode, done.stdout, done.stderr.decode(errors="replace")


def test_a_full_disk_is_not_told_of_as_of_permissions():
    said = complaint(OSError(errno.ENOSPC, "No space left on device"))
    assert said.startswith("No space left on device. Make room on the disk of the run folders")
    assert "`ulimit -f`" in complaint(OSError(errno.EFBIG, "File too large"))
    assert "Check the path" in complaint(PermissionError(errno.EACCES, "Permission denied", "runs"))


def test_an_ascii_terminal_gets_question_marks_and_the_command_goes_on(tmp_path):
    folder = fake.make_run(tmp_path)
    folder.update_status(reason="näh — nicht möglich")
    code, out, err = call("-m", "sweeps", "status", "--runs-dir", str(tmp_path), PYTHONIOENCODING="ascii")
    assert (code, err) == (0, "")
    assert b"n?h ? nicht m?glich" in out


PLACES = {
    "a file": lambda top: (top / "file").touch() or top / "file",
    "in a file": lambda top: (top / "file").touch() or top / "file" / "runs",
    "too long a name": lambda top: top / ("x" * 300),
}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
@pytest.mark.parametrize("script", ["sweep.py", "train.py"])
def test_a_runs_dir_that_cannot_be_is_one_line(script, place, tmp_path):
    words = ["+experiment=ablation_order", "seeds=[0]"] if script == "sweep.py" else ["method=scpo"]
    code, _, err = call(script, *words, *fake.QUICK, f"machine.runs_dir={place(tmp_path)}")
    assert code == 2
    assert "Traceback" not in err
    assert len(err.strip().splitlines()) == 1


def test_a_key_that_an_error_quotes_is_not_shown():
    key = "sk-planted-0123456789abcdef0123"
    assert complaint(ConfigError(f"model.key_variable: got '{key}'")) == "model.key_variable: got '[redacted]'"
