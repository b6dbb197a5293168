"""kill -9 of a process that makes demonstrations leaves none of its workers."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import fake_runs as fake

pytest.importorskip("alfworld", reason="needs alfworld: make setup")

SCRIPT = """
import os, sys, time
from scpo.envs.alfworld.demonstrations import _workers

def work(folder):
    open(os.path.join(folder, str(os.getpid())), "w").close()
    time.sleep(600)

if __name__ == "__main__":
    with _workers(2) as pool:
        list(pool.map(work, [sys.argv[1]] * 2))
"""


def alive(pid):
    try:
        return "(Z)" not in Path(f"/proc/{pid}/stat").read_text().replace(" Z ", "(Z)")
    except OSError:
        return False


def test_workers_end_with_a_parent_that_cannot_tell_them(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "pids").mkdir()
    variables = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen([sys.executable, tmp_path / "script.py", tmp_path / "pids"], env=variables)
    fake.wait_until(lambda: len(list((tmp_path / "pids").iterdir())) == 2, seconds=60)
    pids = [int(path.name) for path in (tmp_path / "pids").iterdir()]
    assert all(map(alive, pids))
    process.send_signal(signal.SIGKILL)
    process.wait()
    fake.wait_until(lambda: not any(map(alive, pids)))
