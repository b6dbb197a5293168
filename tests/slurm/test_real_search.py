"""A search on a real Slurm: its driver is killed while the trials' jobs wait, and the next one goes on with them."""

import os
import shutil
import subprocess
import sys

import pytest

from scpo.records import run_folders
from tests.slurm import test_real_slurm as real
from tests.support.fake_runs import FAULTS, starts, steps

pytestmark = real.pytestmark
checkout = real.checkout
WORDS = ("+search=scpo_theta_lambda", "search.trials=3", "seeds=[0]", "trainer.steps=4", "trainer.checkpoint_every=2",
         "wandb.mode=disabled", "launcher.gpus=4", "launcher.time_h=0.05", "launcher.warn_s=60")  # fmt: skip


@pytest.mark.timeout(300)
def test_a_search_whose_driver_is_killed_goes_on_with_its_jobs(tmp_path, checkout):
    shutil.copy(FAULTS / "fake_objective.py", checkout / "train.py")
    cluster = real.Cluster(tmp_path, checkout, *WORDS)
    machine = [f"machine.runs_dir={cluster.runs}", "launcher=slurm_a800x4", f"launcher.site={tmp_path / 'site.yaml'}"]
    command = [sys.executable, "sweep.py", *WORDS, *machine]
    driver = subprocess.Popen(command, cwd=checkout, env={**os.environ, "PYTHONPATH": ""}, stdout=subprocess.DEVNULL)
    real.wait_until(
        lambda: len(run_folders.list_runs(cluster.runs)) == 3 and real.slurm("squeue", "--noheader").strip()
    )
    driver.kill()
    driver.wait()
    output = cluster.sweep()
    assert "so far: " in output
    assert "3 COMPLETE" in output
    assert set(cluster.states().values()) == {"DONE"}
    for folder in run_folders.list_runs(cluster.runs):
        assert (steps(folder), starts(folder)) == ([0, 1, 2, 3, 4], 1)
    assert (next((cluster.runs / "searches").iterdir()) / "best.yaml").is_file()
