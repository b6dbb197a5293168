import os
import sys

import pytest


@pytest.fixture(scope="session", autouse=True)
def on_the_cpu():
    """What verl reads when it is imported, in this process and in those that tests start."""
    from scpo.trainers.verl.cpu.cpu_settings import cpu_environment

    os.environ.update(cpu_environment("hf"))
    os.environ.pop("RAY_ADDRESS", None)  # a cluster of Ray of its own
    os.environ.update(
        {
            "RAY_USAGE_STATS_ENABLED": "0",
            "RAY_worker_niceness": "0",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
        }
    )


@pytest.fixture(scope="module", autouse=True)
def no_ray_for_the_next_module():
    """Ray starts itself where it is first asked for something, and would stay with its dashboard till the end."""
    yield
    ray = sys.modules.get("ray")
    if ray is not None and ray.is_initialized():
        ray.shutdown()
