"""What the launcher refuses before anything is prepared, and how a wish to stop reaches the process that trains."""

import os
import tempfile
import threading
import time
from importlib import metadata
from types import SimpleNamespace

import pytest

from scpo import verl_config
from scpo.envs.base import Panel, Task
from scpo.errors import ConfigError
from scpo.records import RunFolder
from scpo.trainers.verl import launch, readiness, sockets
from scpo.trainers.verl.data import training_rows
from scpo.trainers.verl.launch import _stop_file, prepare
from scpo.trainers.verl.readiness import check_engine
from scpo.trainers.verl.workplace import Workplace
from sweeps.compose.configuration import compose_run

torch = pytest.importorskip("torch", reason="needs torch: make setup")


def test_without_a_gpu_only_the_cpu_trainer_is_allowed(tmp_path):
    for words in (["scale=paper"], ["trainer=verl_cpu", "trainer.verl.engine=vllm"]):
        with pytest.raises(
            ConfigError,
            match="torch sees no CUDA device here; allowed without one: trainer=verl_cpu",
        ):
            prepare(compose_run([*words, "machine.device=cpu"]), RunFolder(tmp_path), lambda: False)
    assert not list(tmp_path.iterdir())


def test_the_cpu_build_of_vllm_is_allowed_and_no_other(monkeypatch):
    config = compose_run(["trainer=verl_cpu", "trainer.verl.engine=vllm"])
    monkeypatch.setattr(metadata, "version", lambda _: "0.31.0+cpu")
    check_engine(config, on_cpu=True)
    monkeypatch.setattr(metadata, "version", lambda _: "0.31.0")
    with pytest.raises(ConfigError, match="with the CPU build of vLLM also trainer=verl_cpu"):
        check_engine(config, on_cpu=True)


def test_on_a_gpu_the_engine_for_the_cpu_is_refused():
    with pytest.raises(ConfigError, match=r"engine=hf is Hugging Face generate, for the CPU only"):
        check_engine(compose_run(["trainer=verl_cpu"]), on_cpu=False)


PAPER = ("scale=paper",)


@pytest.fixture
def gpus(monkeypatch):
    """A machine as torch and the system tell it: so many GPUs of so many GiB, so many cores, such packages."""

    def make(count=4, gib=79.0, cores=32, packages=("vllm",)):
        monkeypatch.setattr(readiness, "pick_device", lambda _: torch.device("cuda"))
        monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
        card = SimpleNamespace(total_memory=int(gib * 2**30))
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: card)
        monkeypatch.setattr(readiness, "usable_cores", lambda: cores)
        find = lambda name: object() if name in packages else None  # noqa: E731
        monkeypatch.setattr(readiness.importlib.util, "find_spec", find)

    return make


def test_the_papers_node_is_enough(gpus):
    gpus()
    for words in (PAPER, (*PAPER, "model=qwen2_5_7b"), (*PAPER, "method=ppo", "model=qwen2_5_7b")):
        assert readiness.check_machine(compose_run(list(words))) is False


BAD = {
    "one GPU for four": (dict(count=1), [], r"gpus=4, torch sees 1 .*; here: trainer=verl_1gpu"),
    "small GPUs": (dict(gib=23.5), [], r"1\.5B with trainer=verl needs about \d+ GiB of each GPU"),
    "a 7B on one card": (dict(count=1), ["trainer=verl_1gpu", "model=qwen2_5_7b"], r"7B .* of each GPU"),
    "an engine that never sleeps": (
        {}, ["trainer.verl.free_cache=false", "model=qwen2_5_7b"], "free_cache=true lets",
    ),
    "few cores": (dict(cores=8), [], r"needs 15 CPU cores for 4 GPUs, this process may use 8.*launcher\.cpus=15"),
    "no flash-attn": (dict(), ["trainer.verl.attention=flash"], "attention=flash needs the package flash-attn"),
    "no engine": (dict(packages=()), [], r"vLLM, which is not installed: pip install -e '\.\[verl\]'"),
}  # fmt: skip


@pytest.mark.parametrize(("machine", "words", "message"), BAD.values(), ids=BAD)
def test_what_a_run_needs_and_the_machine_lacks_is_one_line_before_ray_starts(gpus, machine, words, message):
    gpus(**machine)
    with pytest.raises(ConfigError, match=message) as refused:
        readiness.check_machine(compose_run([*PAPER, *words]))
    assert "\n" not in str(refused.value)


def test_flash_attn_is_used_where_it_is_installed_and_gone_without_where_not(gpus):
    gpus(packages=("vllm", "flash_attn"))
    assert readiness.attention(compose_run(["scale=paper"])) == "flash"
    assert readiness.attention(compose_run(["scale=paper", "trainer.verl.attention=sdpa"])) == "sdpa"
    gpus()
    assert readiness.attention(compose_run(["scale=paper"])) == "sdpa"


def test_ray_counts_the_jobs_cores_and_another_cluster_its_own(gpus, monkeypatch, tmp_path):
    gpus(cores=20)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    variables = sockets.environment(tmp_path)
    found = told(compose_run(["scale=paper"]), variables, tmp_path)
    assert found["ray_kwargs.ray_init.num_cpus"] == 20
    assert found[f"{readiness.ENV_VARS}.SCPO_SOCKETS"] == variables["SCPO_SOCKETS"]
    two = told(compose_run(["scale=paper", "trainer.verl.nodes=2"]), variables, tmp_path)
    assert two["ray_kwargs.ray_init.address"] == "auto"
    assert "ray_kwargs.ray_init.num_cpus" not in two
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")  # a cluster that the user names
    named = told(compose_run(["scale=paper"]), variables, tmp_path)
    assert not [key for key in named if key.startswith("ray_kwargs.ray_init.") and "env_vars" not in key]


def test_a_run_on_one_node_never_joins_a_ray_that_is_recorded_there(gpus, monkeypatch, tmp_path):
    """Without an address Ray joins the cluster of any `ray start` on the node, and refuses num_cpus."""
    gpus()
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    found = told(compose_run(["scale=paper"]), {}, tmp_path / "run")
    assert found["ray_kwargs.ray_init.address"] == "local"
    other = told(compose_run(["scale=paper"]), {}, tmp_path / "other")
    key = "ray_kwargs.ray_init._temp_dir"
    assert found[key] != other[key]


def test_a_long_tmpdir_is_replaced_by_one_in_which_sockets_fit(monkeypatch, tmp_path):
    """Slurm sets such a TMPDIR on some clusters; a socket's path has 107 bytes at most."""
    monkeypatch.setattr(tempfile, "tempdir", "/scratch/" + 71 * "t")
    assert readiness.temp_variables() == {"TMPDIR": "/tmp"}  # noqa: S108
    folder = str(verl_config.ray_temp_folder(tmp_path))
    assert folder.startswith(f"/tmp/ray-{os.getuid()}-")  # noqa: S108
    assert len(folder + verl_config.RAY_SOCKET) <= 107
    monkeypatch.setattr(tempfile, "tempdir", "/local")
    assert readiness.temp_variables() == {}
    assert str(verl_config.ray_temp_folder(tmp_path)).startswith("/local/ray-")


def told(config, variables, run_folder):
    settings = [
        *readiness.gpu_settings(config, run_folder),
        *readiness.ray_settings(config, variables),
    ]
    return {one.key: one.value for one in settings}


def test_every_attempt_names_its_sockets_differently(tmp_path):
    names = {sockets.new_name(tmp_path / run) for run in ("a", "a", "b")}
    assert len(names) == 3
    assert sockets.environment(tmp_path, "verl.platform")[sockets.MODULES] == f"verl.platform,{sockets.MODULE}"


def test_a_wish_to_stop_becomes_a_file_while_the_process_waits_and_is_gone_after(tmp_path):
    path, asked = tmp_path / "stop", threading.Event()
    path.touch()  # left behind by a run that was killed
    with _stop_file(path, asked.is_set):
        assert not path.exists()
        asked.set()
        for _ in range(100):
            if path.exists():
                break
            time.sleep(0.05)
        assert path.exists()
    assert not path.exists()


def test_the_games_of_the_schedule_are_opened_before_training_until_a_stop_is_wished(tmp_path, monkeypatch):
    monkeypatch.setattr(launch, "CACHED_AT_ONCE", 4)

    class Environment:
        families, uncached_s = (), 0.0

        def __init__(self):
            self.filled = []

        def panel(self, name):
            return Panel(name, tuple(Task(f"game {number:02}", "look", "") for number in range(64)))

        def start(self, task, slot):
            raise AssertionError

        def fill_caches(self, tasks):
            self.filled.append([task.id for task in tasks])

    def filled(asked_after=99):
        place = Workplace(config, RunFolder(tmp_path))
        place.__dict__["environment"] = Environment()  # in place of the cached property
        looks = iter(range(100))
        launch._fill_caches(place, lambda: next(looks) >= asked_after)
        return place.environment.filled

    config = compose_run([*PAPER, "trainer.steps=1"])
    parts = filled()
    scheduled = {row["extra_info"]["task"] for row in training_rows(Environment(), config)}
    assert {name for part in parts for name in part} == scheduled
    assert filled(asked_after=1) == parts[:1]
