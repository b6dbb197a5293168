"""The update guard in a process that imports what a worker of verl imports, in its order."""

import os
import subprocess
import sys

import pytest

from scpo.trainers.verl.update_guard import BLIND, environment
from tests.support.verl_runs import ROOT

pytest.importorskip("ray", reason="needs verl: make test-verl")

WORKER = """
import sys
{first}
from verl.utils.import_utils import import_external_libs
import_external_libs("scpo.trainers.verl.update_guard")
print("verl.workers.engine.fsdp.transformer_impl" in sys.modules)
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead, FSDPEngineWithValueHead
print(FSDPEngineWithLMHead.train_batch.__module__)
print(FSDPEngineWithValueHead.train_batch.__module__)
"""


def worker_output(first):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", WORKER.format(first=first)],
        cwd=ROOT, env=os.environ | environment(True), capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.split()[-3:]


@pytest.mark.timeout(400)
def test_a_worker_gets_the_guard_before_its_engine_is_loaded_and_its_critic_stays_verls():
    """verl loads the engine after the model's configuration, which imports the guard."""
    loaded, policy, critic = worker_output("import verl.workers.engine_workers")
    assert loaded == "True"
    assert policy == "scpo.trainers.verl.update_guard"
    assert critic == "verl.workers.engine.base"


@pytest.mark.timeout(400)
def test_a_process_that_only_plays_does_not_load_the_engine():
    loaded, policy, _ = worker_output("import verl")
    assert loaded == "False"
    assert policy == "verl.workers.engine.base"


def test_verl_reports_the_mean_of_the_mini_batches():
    """It takes the minimum where a name contains "min": all mini-batches counted as updates then."""
    from verl.utils.metric import reduce_metrics

    assert reduce_metrics({f"actor/{BLIND}": [1.0, 0.0, 0.0, 1.0]}) == {f"actor/{BLIND}": 0.5}
