"""Two runs on one node: both of their Ray clusters call their job 01000000, and their sockets have different names."""

import json
import os
import subprocess
import sys

import pytest

from scpo.trainers.verl import sockets

pytest.importorskip("ray", reason="needs verl: make test-verl")

RUN = """
import json, ray
ray.init(num_cpus=1, include_dashboard=False, object_store_memory=80_000_000, logging_level="error")

@ray.remote
def named():
    import verl  # which imports our module
    return ray.get_runtime_context().get_job_id()

print(json.dumps([ray.get_runtime_context().job_id.hex(), ray.get(named.remote())]), flush=True)
input()  # both clusters are up at one time
"""


@pytest.mark.timeout(240)
def test_two_local_clusters_at_a_time_have_sockets_of_different_names(tmp_path):
    given = [sockets.environment(tmp_path / name, os.environ[sockets.MODULES]) for name in ("a", "b")]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RUN], text=True,
            env={**os.environ, **variables, "RAY_worker_niceness": "0"},  # else a busy machine lets workers wait
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        )
        for variables in given
    ]  # fmt: skip
    try:
        printed = [json.loads(next(line for line in one.stdout if line.startswith("["))) for one in processes]
    finally:
        for one in processes:
            one.communicate("\n", timeout=60)
    assert [job for job, _ in printed] == ["01000000", "01000000"]  # what verl would have named both by
    assert [name for _, name in printed] == [variables[sockets.VARIABLE] for variables in given]
    assert printed[0][1] != printed[1][1]
