"""The scorer's process dies in a real run at mini scale; slow: only the warm-started policy has groups to shape."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.e2e.local_run import ROOT, only_run

pytest.importorskip("alfworld", reason="needs alfworld: make setup")
pytest.importorskip("torch", reason="needs torch: make setup")

WORDS = (
    "scorer=exact", "machine.scorer.process=always", "wandb.mode=disabled", "trainer.steps=4", "trainer.groups=4",
    "trainer.checkpoint_every=100", "env.validation_panels.train_games.repeats=1",
    "env.validation_panels.valid_seen.games=6", "env.validation_panels.valid_unseen.games=6",
)  # fmt: skip


def start(runs, cache, *words):
    machine = (f"machine.runs_dir={runs}", f"machine.cache_dir={cache}")
    command = [sys.executable, str(ROOT / "train.py"), *WORDS, *words, *machine]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def finish(process):
    output, _ = process.communicate(timeout=1100)
    return process.returncode, output


def metrics(runs):
    return (only_run(runs) / "metrics.jsonl").read_bytes()


def kill_scorer(process, runs):
    """kill -9 the scorer's process once two steps are logged."""
    while not (list(runs.glob("*/metrics.jsonl")) and metrics(runs).count(b"\n") >= 3):
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.02)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    (scorer,) = (int(pid) for pid in children if "spawn_main" in Path(f"/proc/{pid}/cmdline").read_text())
    os.kill(scorer, signal.SIGKILL)


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory, cache):
    runs = tmp_path_factory.mktemp("runs")
    code, output = finish(start(runs, cache))
    assert code == 0, output
    assert any(json.loads(line).get("credit/aux_mean") for line in metrics(runs).splitlines())
    return metrics(runs)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_scorer_that_dies_once_changes_no_byte(cache, tmp_path, undisturbed):
    process = start(tmp_path, cache)
    kill_scorer(process, tmp_path)
    code, output = finish(process)
    assert code == 0, output
    assert "the process of scorer exact failed (1 of 3): it was killed by SIGKILL" in output
    assert metrics(tmp_path) == undisturbed


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_scorer_that_fails_for_good_stops_the_run_which_goes_on_where_it_was(cache, tmp_path, undisturbed):
    process = start(tmp_path, cache, "machine.scorer.crashes=1")
    kill_scorer(process, tmp_path)
    code, output = finish(process)
    assert code == 1, output
    assert "failed 1 times in a row" in json.loads((only_run(tmp_path) / "status.json").read_text())["reason"]
    done = metrics(tmp_path).count(b"\n") - 1
    assert (only_run(tmp_path) / "checkpoints" / f"step_{done:05d}" / "COMPLETE").exists()
    code, output = finish(start(tmp_path, cache))
    assert code == 0, output
    assert "resumed from" in output
    assert metrics(tmp_path) == undisturbed
