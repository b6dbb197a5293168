"""A run's Ray on a node with a foreign cluster, and with a TMPDIR that is too long for sockets."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from scpo.verl_config import ray_temp_folder
from tests.support.verl_runs import ROOT

pytest.importorskip("ray", reason="needs verl: make test-verl")

# The words of a run for Ray, composed by verl and given to Ray as verl's run_ppo gives them.
START = """
import json, sys
from pathlib import Path
import ray
from omegaconf import OmegaConf
from scpo.trainers.verl.cpu.cpu_settings import cpu_settings
from scpo.trainers.verl.launch import compose_verl
from scpo.trainers.verl.readiness import own_ray

run_folder, own = Path(sys.argv[1]), sys.argv[2] == "own"
chosen = cpu_settings("hf", 1) + (list(own_ray(run_folder)) if own else [])
words = [one.override for one in chosen if one.key.startswith("ray_kwargs")]
init = OmegaConf.to_container(compose_verl(words).ray_kwargs.ray_init, resolve=True)
ray.init(**init)
print(json.dumps([ray.cluster_resources()["CPU"], ray.get_runtime_context().get_temp_dir()]))
"""
CPUS_OF_THE_FOREIGN_ONE = 2
TRIES, UP_S = 3, 90


def start(run_folder, how, **variables):
    return subprocess.run(
        [sys.executable, "-c", START, str(run_folder), how],
        cwd=ROOT, env={**os.environ, **variables}, capture_output=True, text=True, timeout=200, check=False,
    )  # fmt: skip


def printed_result(done):
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def node():
    """A folder where Ray records its clusters, as /tmp is on a node; short, for its sockets."""
    with tempfile.TemporaryDirectory(prefix="n", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


@pytest.fixture
def foreign_ray(node):
    """``ray start --head`` of someone else, once it is recorded on the node.

    More than one try: Ray gives its agents 15 s to start, which a busy machine exceeds
    (ray-project/ray 65983).
    """
    for _ in range(TRIES):
        process = start_foreign(node)
        if recorded(process, node):
            break
        process.terminate()
        process.wait(timeout=60)
    else:
        raise AssertionError(f"{TRIES} times: ray start did not come up")
    yield node
    process.terminate()
    process.wait(timeout=60)


def start_foreign(node):
    command = [str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--port=0"]
    command += ["--include-dashboard=false", "--disable-usage-stats"]
    command += ["--object-store-memory=80000000", f"--num-cpus={CPUS_OF_THE_FOREIGN_ONE}"]
    variables = {**os.environ, "TMPDIR": node}
    with (Path(node) / "ray_start.log").open("w") as output:
        return subprocess.Popen(command, env=variables, stdout=output, stderr=subprocess.STDOUT)


def recorded(process, node):
    """Wait until the cluster runs and is recorded; False: it ended, or took too long."""
    end = time.monotonic() + UP_S
    while process.poll() is None and time.monotonic() < end:
        log = (Path(node) / "ray_start.log").read_text()
        if "Ray runtime started" in log and (Path(node) / "ray" / "ray_current_cluster").is_file():
            return True
        time.sleep(0.2)
    return False


@pytest.mark.timeout(600)
def test_a_run_starts_its_own_ray_where_a_foreign_one_is_recorded(foreign_ray, tmp_path):
    joined = start(tmp_path, "as before", TMPDIR=foreign_ray)
    assert "When connecting to an existing cluster, num_cpus" in joined.stderr
    cpus, folder = printed_result(start(tmp_path, "own", TMPDIR=foreign_ray))
    assert cpus > CPUS_OF_THE_FOREIGN_ONE
    assert Path(folder).name == ray_temp_folder(tmp_path).name


@pytest.mark.timeout(400)
def test_a_run_starts_where_tmpdir_has_80_characters(node, tmp_path):
    long = node + "/" + "t" * (79 - len(node))
    assert len(long) == 80
    Path(long).mkdir()
    refused = start(tmp_path, "as before", TMPDIR=long)
    assert "AF_UNIX path length cannot exceed 107 bytes" in refused.stderr
    _, folder = printed_result(start(tmp_path, "own", TMPDIR=long))
    assert folder == f"/tmp/{ray_temp_folder(tmp_path).name}"  # noqa: S108
    shutil.rmtree(folder)  # a run deletes its own (scpo.trainers.verl.launch.train)
