"""A whole search with real training on real games, minutes long: killed once, then the winner on fresh seeds."""

import json
import re
import subprocess
import sys
import time

import pytest

from tests.e2e.local_run import OVERRIDES, ROOT
from tests.support.fake_runs import wait_until

SEARCH = ["+search=scpo_theta_lambda", "search.trials=3", "search.sampler.name=tpe", "launcher.slots=2",
          "search.tuning.mini.tasks=6", "search.tuning.mini.repeats=1"]  # fmt: skip


def start(cwd, *words):
    command = [sys.executable, str(ROOT / "sweep.py"), *words]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_a_search_trains_survives_a_kill_and_its_winner_runs_on_fresh_seeds(tmp_path):
    words = [*SEARCH, *OVERRIDES, f"machine.cache_dir={tmp_path / 'cache'}"]
    killed = start(tmp_path, *words)
    wait_until(lambda: list(tmp_path.glob("runs/alfworld-*/metrics.jsonl")), seconds=600)
    time.sleep(2)
    killed.kill()
    killed.communicate()
    output, _ = (again := start(tmp_path, *words)).communicate(timeout=1200)
    assert again.returncode == 0, output
    (folder,) = (tmp_path / "runs" / "searches").iterdir()
    summary = (folder / "summary.md").read_text()
    assert re.search(r"Trials: 3 COMPLETE\.|Trials: 1 FAIL, 3 COMPLETE\.", summary), summary
    statuses = [json.loads(path.read_text()) for path in tmp_path.glob("runs/alfworld-*/status.json")]
    assert [status["state"] for status in statuses] == ["DONE"] * 6
    command = [word.strip("'") for word in re.search(r"python sweep\.py (.*)", summary).group(1).split()]
    output, _ = (winner := start(tmp_path, *command, "seeds=[10]")).communicate(timeout=600)
    assert winner.returncode == 0, output
    assert len(list(tmp_path.glob("runs/alfworld-*-s10-*/config.yaml"))) in (1, 2)
