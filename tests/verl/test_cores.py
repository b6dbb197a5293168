"""As many of Ray's CPUs as we reserve for a run on one GPU: TransferQueue and verl's workers take all of them."""

import json
import os
import subprocess
import sys

import pytest

from scpo.verl_config import STORAGE_UNITS, cores_needed
from sweeps.compose.configuration import compose_run

pytest.importorskip("ray", reason="needs verl: make test-verl")

RUN = """
import json, sys, ray

cpus, units = map(int, sys.argv[1:])
ray.init(num_cpus=cpus, num_gpus=1, include_dashboard=False, object_store_memory=80_000_000, logging_level="error")
# What verl does then: TransferQueue, three CPUs with the GPU of each rank, agent loops.
import transfer_queue as tq
from omegaconf import OmegaConf

@ray.remote
class Runner:
    def start(self):
        tq.init(OmegaConf.create({"backend": {"SimpleStorage": {"num_data_storage_units": units}}}))
        return True

@ray.remote
class AgentLoop:
    def ready(self):
        return True

runner = Runner.remote()
queue = ray.get(runner.start.remote(), timeout=120)
workers = ray.util.placement_group([{"CPU": 3, "GPU": 1}], strategy="STRICT_PACK").wait(120)
free = ray.available_resources().get("CPU", 0)
print(json.dumps([queue, workers, free, ray.get(AgentLoop.remote().ready.remote(), timeout=120)]))
"""


@pytest.mark.timeout(600)
def test_the_cores_that_we_ask_for_are_enough_and_none_is_left():
    needed = cores_needed(compose_run(["scale=paper", "trainer=verl_1gpu"]).trainer)
    command = [sys.executable, "-c", RUN, str(needed), str(STORAGE_UNITS)]
    environment = {**os.environ, "RAY_worker_niceness": "0"}  # else a busy machine lets workers wait
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=500, check=False)
    assert done.stdout.splitlines()[-1:] == [json.dumps([True, True, 0, True])], done.stderr
