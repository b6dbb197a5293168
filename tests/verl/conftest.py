import os

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
