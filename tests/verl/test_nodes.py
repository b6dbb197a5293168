"""Two nodes, each a raylet of its own on this machine."""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from scpo.trainers.verl.cpu.cpu_settings import cpu_environment

ray = pytest.importorskip("ray", reason="needs verl: make test-verl")
pytest.importorskip("alfworld", reason="needs alfworld: make setup")

ROOT = Path(__file__).parents[2]
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # of this cluster; none is read or written
CPUS = 16  # logical ones of each node: verl places agent loops, TransferQueue and the workers


@pytest.fixture(scope="module")
def nodes():
    """Two raylets; gives the address of their cluster."""
    with tempfile.TemporaryDirectory(prefix="scpo_ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        address = f"{ray.util.get_node_ip_address()}:{free_port()}"
        port = address.partition(":")[2]
        started = [start("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}")]
        try:
            wait_until_listening(address, started[0])
            started.append(start(f"--address={address}"))
            yield address
        finally:
            for one in reversed(started):
                one.terminate()
            for one in started:
                one.wait(timeout=60)


def start(*words):
    """``ray start`` in the foreground: it ends with its children when it is told to."""
    command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats", *words]
    command += [f"--num-cpus={CPUS}", "--num-gpus=1", "--object-store-memory=200000000"]
    return subprocess.Popen(
        command,
        env={**os.environ, **cpu_environment("hf"), **TOKEN},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def free_port():
    with socket.socket() as one:
        one.bind(("", 0))
        return one.getsockname()[1]


def wait_until_listening(address, process):
    host, _, port = address.partition(":")
    for _ in range(120):
        assert process.poll() is None, "ray start ended"
        with socket.socket() as one:
            one.settimeout(1)
            if one.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.5)
    raise AssertionError("ray start did not listen")


WAITING = """
from scpo.errors import ConfigError
from scpo.trainers.verl.nodes import wait_for_nodes

def told(*asked, **how):
    try:
        return wait_for_nodes(*asked, **how)
    except ConfigError as error:
        return error

print("=", told(2, 1))
print("=", told(2, 4, deadline_s=1))
print("=", told(3, 1, should_stop=lambda: True))
"""


@pytest.mark.timeout(700)
def test_a_run_of_several_nodes_says_what_is_missing_before_verl_starts(nodes):
    environment = {**os.environ, **TOKEN, "RAY_ADDRESS": nodes}
    command = [sys.executable, "-c", WAITING]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    there, few, stopped = (line[2:] for line in done.stdout.splitlines() if line.startswith("= "))
    assert (there, stopped) == ("True", "False")
    assert few.startswith(
        "trainer.verl.nodes=2: 0 with 4 GPUs joined Ray within 1 s (none). Start it: ray start --head"
    )


def test_without_a_ray_to_join_a_run_of_several_nodes_says_how_to_start_one(monkeypatch):
    from scpo.errors import ConfigError
    from scpo.trainers.verl import nodes

    def refuse(**_):
        raise ConnectionError("Could not find any running Ray instance.\nMore words.")

    monkeypatch.setattr(nodes.ray, "init", refuse)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(
        ConfigError, match=r"nodes=2: no Ray to join here \(Could not .*instance\.\)\. Start it: ray"
    ) as no:
        nodes.wait_for_nodes(2, 1)
    assert "\n" not in str(no.value)
    assert signal.getsignal(signal.SIGTERM) is before
