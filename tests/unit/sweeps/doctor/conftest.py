import stat

import pytest

from sweeps.doctor.examination import read_subject


@pytest.fixture
def subject(tmp_path):
    """Reads a subject whose run folders would lie in a folder of the test's own."""

    def read(*words):
        return read_subject([f"machine.runs_dir={tmp_path / 'runs'}", *words])

    return read


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Shell scripts, the only commands on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def plant(name, script):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return plant
