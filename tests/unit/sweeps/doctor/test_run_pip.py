"""pip as its user sees it: a script stands in for it, and says what the real one would."""

import sys

import pytest

from sweeps.doctor import run_pip as pip
from sweeps.doctor.run_pip import InstallationError
from tests.support.fake_commands import fake_python


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "WARNING: Retrying (Retry(total=4, connect=None)) after connection broken by 'NewConnectionError(': Failed "
            "to establish a new connection: [Errno 111] Connection refused')': /simple/torch/\n"
            "ERROR: Could not find a version that satisfies the requirement torch (from versions: none)\n"
            "ERROR: No matching distribution found for torch\n",
            "no package index can be reached",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n",
            "the disk is full. Make room there",
        ),
        (
            "ERROR: No matching distribution found for torch==2.13.0\n",
            "the package index has no build of a package for Python 3",
        ),
        ("error: [Errno 13] Permission denied: '/opt/venv/lib'\n", "a folder cannot be written"),
        (
            "  error: subprocess-exited-with-error\n  Building wheel for jericho did not run successfully.\n",
            "a package could not be compiled",
        ),
        ("Segmentation fault\n", "pip ended with exit status 3; the lines above say why"),
    ],
)
def test_the_cause_of_a_failure_is_one_line_that_says_what_to_do(tmp_path, capfd, said, told):
    script = tmp_path / "pip.py"
    script.write_text(f"import sys; sys.stderr.write({said!r}); sys.exit(3)")
    with pytest.raises(InstallationError) as error:
        pip.run([sys.executable, str(script)])
    assert str(error.value).startswith(told)
    assert "\n" not in str(error.value)
    assert said in capfd.readouterr().err  # pip's own words are never kept back


def test_in_a_silence_a_line_says_that_pip_is_still_at_work(tmp_path, capfd, monkeypatch):
    monkeypatch.setattr(pip, "SILENCE_S", 0.2)
    script = tmp_path / "pip.py"
    script.write_text("import time; print('Building wheel for jericho: started'); time.sleep(0.7)")
    pip.run([sys.executable, str(script)])
    lines = capfd.readouterr().err.splitlines()
    assert "Building wheel for jericho: started" in lines
    assert any(line.endswith("s since: Building wheel for jericho: started") for line in lines)


def test_the_build_of_a_package_finds_a_python(tmp_path, capfd, monkeypatch):
    fake_python(tmp_path / "bin" / "python", "command -v python")
    monkeypatch.setenv("PATH", "/nowhere")
    pip.run([str(tmp_path / "bin" / "python")])
    assert capfd.readouterr().err == f"{tmp_path}/bin/python\n"
