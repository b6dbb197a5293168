"""Two nodes, each a raylet of its own on this machine with a GPU of Ray's account; a run of HCAPO spreads over them."""

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import yaml

from scpo.trainers.verl.cpu.cpu_settings import cpu_environment
from tests.support.verl_runs import ROOT, lines, only_run, run_command, shards, warm_start_of

ray = pytest.importorskip("ray", reason="needs verl: make test-verl")
pytest.importorskip("alfworld", reason="needs alfworld: make setup")

TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}  # of this cluster; none is read or written
CPUS = 16  # logical ones of each node: verl places agent loops, TransferQueue and the workers
AGENTS = ("dashboard-agent-grpc", "dashboard-agent-listen", "metrics-export", "runtime-env-agent")
TRIES = 3
WORDS = [
    "method=hcapo", "trainer.verl.nodes=2", "trainer.verl.gpus=1", "trainer.steps=1", "trainer.groups=12",
    "trainer.group_size=2", "trainer.mini_batch_rows=32", "trainer.validation.every=1", "trainer.checkpoint_every=1",
    "env.validation_panels.train_games.games=1", "env.validation_panels.train_games.repeats=1",
    "env.validation_panels.valid_seen.games=1", "env.validation_panels.valid_unseen.games=1",
]  # fmt: skip


@pytest.fixture(scope="module")
def nodes():
    """Two raylets; gives the address of their cluster."""
    with tempfile.TemporaryDirectory(prefix="scpo_ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        address = f"{ray.util.get_node_ip_address()}:{free_port()}"
        started = []
        try:
            port = address.partition(":")[2]
            started.append(start("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}"))
            started.append(start(f"--address={address}"))
            yield address
        finally:
            for one in reversed(started):
                one.terminate()
            for one in started:
                one.wait(timeout=60)


def start(*words):
    """``ray start`` in the foreground, once it has started: it ends with its children on a stop signal.

    Its agents get ports of ours, and it more than one try: a raylet that has to learn the ports from them gives up
    after 15 s (ray-project/ray 65983), and an agent takes longer to start where other work keeps the cores busy.
    """
    command = [str(Path(sys.executable).with_name("ray")), "start", "--block", "--disable-usage-stats", *words]
    command += [f"--num-cpus={CPUS}", "--num-gpus=1", "--object-store-memory=200000000"]
    environment = {**os.environ, **cpu_environment("hf"), **TOKEN, "PYTHONUNBUFFERED": "1"}
    for _ in range(TRIES):
        ports = [f"--{agent}-port={free_port()}" for agent in AGENTS]
        one = subprocess.Popen(
            [*command, *ports], env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        lines = []
        for line in one.stdout:
            if "Ray runtime started" in line:
                return one
            lines.append(line)
        one.wait(timeout=60)
    raise AssertionError(f"{TRIES} times: {''.join(lines)[-3000:]}")


def free_port():
    with socket.socket() as one:
        one.bind(("", 0))
        return one.getsockname()[1]


WAITING = """
from scpo.errors import ConfigError
from scpo.trainers.verl.launch import wait_for_nodes

def result_or_error(*asked, **how):
    try:
        return wait_for_nodes(*asked, **how)
    except ConfigError as error:
        return error

print("=", result_or_error(2, 1))
print("=", result_or_error(2, 4, deadline_s=1))
print("=", result_or_error(3, 1, should_stop=lambda: True))
"""


@pytest.mark.timeout(700)
def test_a_run_of_several_nodes_names_what_is_missing_before_verl_starts(nodes):
    environment = {**os.environ, **TOKEN, "RAY_ADDRESS": nodes}
    command = [sys.executable, "-c", WAITING]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-6000:]
    there, few, stopped = (line[2:] for line in done.stdout.splitlines() if line.startswith("= "))
    assert (there, stopped) == ("True", "False")
    assert few.startswith(
        "trainer.verl.nodes=2: 0 with 4 GPUs joined Ray within 1 s (none). Start it: ray start --head"
    )


def test_without_a_ray_to_join_a_run_of_several_nodes_explains_how_to_start_one(monkeypatch):
    import ray

    from scpo.errors import ConfigError
    from scpo.trainers.verl.launch import wait_for_nodes

    def refuse(**_):
        raise ConnectionError("Could not find any running Ray instance.\nMore words.")

    monkeypatch.setattr(ray, "init", refuse)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(
        ConfigError, match=r"nodes=2: no Ray to join here \(Could not .*instance\.\)\. Start it: ray"
    ) as no:
        wait_for_nodes(2, 1)
    assert "\n" not in str(no.value)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.fixture(scope="module")
def hcapo_on_two_nodes(nodes, tmp_path_factory):
    """The folder of a run that has ended."""
    runs = tmp_path_factory.mktemp("two_nodes")
    environment = {**os.environ, **TOKEN, "RAY_ADDRESS": nodes}
    with (runs / "output.log").open("w") as output:
        done = subprocess.run(
            run_command(runs, warm_start_of(tmp_path_factory), *WORDS),
            cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT, timeout=1100, check=False,
        )  # fmt: skip
    assert done.returncode == 0, (runs / "output.log").read_text()[-6000:]
    return only_run(runs)


@pytest.mark.timeout(1300)
def test_a_run_trains_on_two_nodes_and_writes_a_shard_from_each(hcapo_on_two_nodes):
    """Each node has one GPU, so each holds one of the two ranks."""
    folder = hcapo_on_two_nodes
    assert json.loads((folder / "status.json").read_text())["state"] == "DONE"
    assert [path.name for path in shards(folder, 1)] == [f"model_world_size_2_rank_{rank}.pt" for rank in range(2)]
    config = yaml.safe_load((folder / "verl_config.yaml").read_text())
    assert (config["trainer"]["nnodes"], config["trainer"]["n_gpus_per_node"]) == (2, 1)
    assert config["ray_kwargs"]["ray_init"]["address"] == "auto"
    (step,) = [line for line in lines(folder) if line["step"] == 1]
    assert step["train/episodes"] == 24
    assert step["training/rollout_probs_diff_max"] < 1e-4
    assert step["actor/grad_norm"] > 0


@pytest.mark.timeout(1300)
def test_the_successes_hindsight_is_scored_by_the_ranks_of_both_nodes(hcapo_on_two_nodes):
    """The estimator refuses a success without a finite log-probability: whoever has successes has scored them."""
    (step,) = [line for line in lines(hcapo_on_two_nodes) if line["step"] == 1]
    (took,) = [line for line in lines(hcapo_on_two_nodes, "timing.jsonl") if line["step"] == 1]
    if not step["train/success_rate"]:
        pytest.skip("needs a sibling that wins: none of 24 did, run it again")
    assert took["timing_s/hindsight"] > 0
