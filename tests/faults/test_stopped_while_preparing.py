"""SIGTERM to a run's process group before its first step, as ``timeout`` and ``scancel`` send it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from scpo.records.run_folders import RunFolder
from tests.support import fake_runs as fake

pytest.importorskip("alfworld", reason="needs alfworld: make setup")
pytest.importorskip("torch", reason="needs torch: make setup")

ROOT = Path(__file__).parents[2]
WORDS = ["env=alfworld", "model=tiny", "scale=mini", "method=grpo", "wandb.mode=disabled"]
LIMIT_S = 10.0  # on a machine of its own


def load():
    """How many processes share a core, at least 1."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def running(folder, _):
    return folder.status.exists() and folder.read_status().state == "RUNNING"


def demonstrating(_, log):
    return "demonstrations for the warm start" in log.read_text()


@pytest.mark.parametrize("reached", [running, demonstrating], ids=["while it loads games", "demonstrations"])
def test_it_ends_interrupted_within_seconds_without_a_traceback(tmp_path, reached):
    words = [*WORDS, f"machine.runs_dir={tmp_path / 'runs'}", f"machine.cache_dir={tmp_path / 'cache'}"]
    prepared = subprocess.run(
        [sys.executable, ROOT / "train.py", "--prepare", *words], capture_output=True, text=True, check=True
    )
    folder, log = RunFolder(Path(prepared.stdout.strip())), tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [sys.executable, ROOT / "train.py", str(folder.path)],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        fake.wait_until(lambda: process.poll() is not None or reached(folder, log), seconds=240)
        asked, before = time.monotonic(), load()
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=240)
        took = time.monotonic() - asked
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    said = log.read_text()
    assert (folder.read_status().state, process.returncode) == ("INTERRUPTED", 130), said
    assert "Traceback" not in said
    assert took < LIMIT_S * max(before, load())
