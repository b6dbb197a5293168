"""The doctor against planted defects, one test each: it must see it, say the right level, and name the fix."""

import json
import os
import shutil
import socket
import stat

import pytest

from scpo.findings import Level
from scpo.schema import SlurmLauncher
from sweeps import __main__ as cli
from sweeps.doctor import cluster as cluster_checks
from sweeps.doctor import deep, gpu_path, machine, model_files, packages, services
from sweeps.doctor.examination import QUICK, examine
from sweeps.doctor.subject import Subject, read_subject
from sweeps.records.provenance import REPOSITORY
from tests.support.doctor_findings import assert_finds, only

PYPROJECT = """
[project]
requires-python = "{python}"
dependencies = ["{core}"]
[project.optional-dependencies]
alfworld = ["numpy>=1"]
local = []
track = []
"""


@pytest.fixture
def project(tmp_path):
    """A project file with the given demands, and the constraints beside it."""

    def make(python=">=3.11", core="numpy", pins="numpy>=1"):
        (tmp_path / "pyproject.toml").write_text(PYPROJECT.format(python=python, core=core))
        (tmp_path / "constraints.txt").write_text(f"# pins\n{pins}\n")
        return tmp_path

    return make


@pytest.fixture
def commands(tmp_path, monkeypatch):
    """Shell scripts, the only commands on the PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def plant(name, script):
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    return plant


def test_this_machine_and_the_defaults_have_no_error(subject):
    assert not [one for one in examine(subject(), slow=False) if one.level is Level.ERROR]


def test_an_old_python(subject, project):
    found = packages.check_packages(subject(), project(python=">=3.99"))
    assert_finds(found, "error", "allowed: >=3.99", "make setup PYTHON=")


def test_a_missing_package(subject, project):
    found = packages.check_packages(subject(), project(core="no-such-package-at-all"))
    assert_finds(found, "error", "no-such-package-at-all is not installed", "make setup")


def test_a_package_that_is_too_old(subject, project):
    found = packages.check_packages(subject(), project(core="numpy>=99"))
    assert_finds(found, "error", "allowed: >=99")


def test_another_version_than_the_tested_one(subject, project):
    found = packages.check_packages(subject(), project(pins="numpy==1.0"))
    assert_finds(found, "warning", "(tested: 1.0)", "constraints.txt")


def test_more_runs_at_a_time_than_cores(subject):
    cores = len(os.sched_getaffinity(0))
    found = machine.check_cpus(subject("+search=scpo", f"launcher.slots={cores + 1}"))
    assert_finds(found, "warning", f"on {cores} cores: they will wait", f"launcher.slots={cores}")


def test_a_container_whose_quota_is_below_its_cores(subject, tmp_path, monkeypatch):
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    assert_finds(machine.check_cpus(subject()), "warning", "on 0.5 cores (of ", "launcher.slots=1")


def test_a_machine_with_too_little_memory(subject, tmp_path, monkeypatch):
    (tmp_path / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable: 4194304 kB\n")
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "meminfo")
    found = machine.check_memory(subject("+search=scpo", "launcher.slots=4"))
    assert_finds(found, "error", "4.0 GiB free; 4 at a time need at least 5.6 GiB", "launcher.slots=2")


def test_a_container_with_too_little_memory(subject, tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text(f"{1 << 30}\n")
    (tmp_path / "memory.current").write_text(f"{1 << 29}\n")
    monkeypatch.setattr(machine, "CGROUP", tmp_path)
    assert_finds(machine.check_memory(subject()), "error", "0.5 GiB free", "larger machine")


def test_a_disk_without_room_for_the_checkpoints(subject, monkeypatch):
    usage = shutil.disk_usage("/")._replace(free=1 << 30)
    monkeypatch.setattr(machine.shutil, "disk_usage", lambda _: usage)
    found = machine.check_disk(subject("model=qwen2_5_1_5b", "env.prompt=verl_agent"))
    assert_finds(found, "error", "1.0 GiB free", "machine.runs_dir")


def test_a_disk_without_inodes(subject, monkeypatch):
    few = os.statvfs_result((4096, 4096, 1 << 30, 1 << 30, 1 << 30, 1000, 5, 5, 0, 255))
    monkeypatch.setattr(machine.os, "statvfs", lambda _: few)
    assert_finds(machine.check_disk(subject()), "error", "5 inodes are left")


def test_a_run_folder_that_cannot_be_written():
    assert_finds(machine.check_run_folder(read_subject(["machine.runs_dir=/proc/runs"])), "error", "/proc (proc)")


def mounted(tmp_path, monkeypatch, kind):
    (tmp_path / "mounts").write_text(f"disk / ext4 rw 0 0\nother {tmp_path} {kind} rw 0 0\n")
    monkeypatch.setattr(machine, "MOUNTS", tmp_path / "mounts")


def test_a_run_folder_that_a_restart_empties(subject, tmp_path, monkeypatch):
    mounted(tmp_path, monkeypatch, "tmpfs")
    assert_finds(machine.check_run_folder(subject()), "warning", "is tmpfs: gone when the machine restarts")


def test_a_sqlite_study_on_a_network_file_system(subject, tmp_path, monkeypatch):
    mounted(tmp_path, monkeypatch, "nfs4")
    found = machine.check_run_folder(subject("+search=scpo", "search.storage=sqlite"))
    assert_finds(found, "error", "sqlite on nfs4", "search.storage=journal")


def test_a_gpu_that_is_not_there(subject, commands):
    assert_finds(machine.check_gpus(subject("machine.device=cuda")), "error", "shows no GPU", "machine.device=auto")


def test_a_large_model_without_a_gpu(subject, commands):
    found = machine.check_gpus(subject("model=qwen2_5_7b", "env.prompt=verl_agent"))
    assert_finds(found, "warning", "days a step on a CPU")


def test_a_gpu_too_small_for_the_model(subject, commands):
    commands("nvidia-smi", "echo 'Tiny GPU, 8192'")
    found = gpu_path.check_gpu_memory(subject("scale=paper", "model=qwen2_5_7b"))
    assert_finds(
        found, "error", "of 8 GiB (update/rollout: weights, gradients, optimizer 28.4/21.3", "more trainer.verl"
    )


def test_the_memory_table_of_a_cluster_that_fits(subject, commands):
    (found,) = gpu_path.check_gpu_memory(subject("scale=paper", "launcher=slurm_a800x4"))
    assert found.level is Level.OK
    for part in ("weights, gradients, optimizer 5.8/", "logits 19.", "rollout engine 0.0/48.0", "scorer 3.0/3.0"):
        assert part in found.text


def test_a_driver_too_old_for_torch(subject, commands, monkeypatch):
    commands("nvidia-smi", "echo 550.54.15")
    monkeypatch.setattr(gpu_path, "_version", lambda _: "2.11.0")
    found = gpu_path.check_driver(subject("scale=paper"))
    assert_finds(found, "error", "550.54.15; torch 2.11.0 is built for CUDA 13, which needs 580", "a driver of 580")


def test_flash_attn_that_is_asked_for_and_missing(subject):
    found = gpu_path.check_attention(subject("scale=paper", "trainer.verl.attention=flash"))
    assert_finds(found, "error", "it is not installed", "constraints-verl-gpu.txt")
    (found,) = gpu_path.check_attention(subject("scale=paper"))
    assert "a run goes without" in found.text


def test_too_few_cores_for_ray(subject):
    found = gpu_path.check_ray_cores(subject("scale=paper", "launcher=slurm_a800x4", "launcher.cpus=8"))
    assert_finds(found, "error", "8; verl on 4 GPUs needs 15", "launcher.cpus=15")


def test_the_sockets_of_another_run(subject, tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_path.tempfile, "gettempdir", lambda: str(tmp_path))
    (found,) = gpu_path.check_sockets(subject("scale=paper"))
    assert found.level is Level.OK
    (tmp_path / "rl-colocate-zmq-01000000-replica-0-rank-0.sock").touch()
    assert_finds(gpu_path.check_sockets(subject("scale=paper")), "warning", "rl-colocate-zmq-01000000")


def test_a_machine_with_fewer_gpus_than_a_run_needs(subject, commands, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    commands("nvidia-smi", "echo 'Large GPU, 81920'")
    assert_finds(machine.check_gpus(subject("scale=paper")), "error", "wants 4 GPUs", "what it says")


SITE = "partition: a800\n"


@pytest.fixture
def cluster(subject, tmp_path, commands):
    """A subject on Slurm: commands that answer, and a site with the partition `a800`."""

    def make(row="a800|up|2-00:00:00|64|gpu:a800:4(S:0-1)", sacct="exit 0", without=(), site=SITE, time_h=24):
        for name in set(cluster_checks.COMMANDS) - set(without):
            commands(name, {"sinfo": f"echo '{row}'", "sacct": sacct}.get(name, "exit 0"))
        path = tmp_path / "site.yaml"
        if site is not None:
            path.write_text(site)
        launcher = SlurmLauncher(
            name="slurm", gpus=4, cpus=32, gpu_gb=80.0, parallelism=8, time_h=time_h, warn_s=1800, max_timeouts=3,
            max_failures=3, site=str(path),
        )  # fmt: skip
        config = subject().first.model_copy(update={"launcher": launcher})
        return Subject((config,), 1)

    return make


def test_a_cluster_that_fits(cluster):
    assert {one.level for one in cluster_checks.check_slurm(cluster())} == {Level.OK}


def test_without_a_partition_of_the_sites_the_default_one_is_looked_at(cluster):
    rows = "large|up|2-00:00:00|64|gpu:4\ndefault*|up|2-00:00:00|8|gpu:4"
    found = cluster_checks.check_slurm(cluster(row=rows, site=""))
    assert_finds(found, "error", "nodes have 8 cores")


def test_a_machine_without_slurm(cluster):
    assert_finds(cluster_checks.check_slurm(cluster(without=("sbatch", "sacct"))), "error", "not found: sbatch, sacct")


def test_a_cluster_without_accounting(cluster):
    found = cluster_checks.check_slurm(cluster(sacct="echo 'Slurm accounting storage is disabled' >&2; exit 1"))
    assert_finds(found, "warning", "accounting storage is disabled", "slurmdbd")


def test_a_site_file_that_is_not_there(cluster):
    assert_finds(cluster_checks.check_slurm(cluster(site=None)), "error", "No such file", "launcher.site=")


def test_a_job_whose_time_limit_nobody_knows(cluster):
    found = cluster_checks.check_slurm(cluster(time_h=None))
    assert_finds(found, "error", "say how long a job may run", "launcher.time_h=")


def test_a_partition_that_the_cluster_lacks(cluster):
    assert_finds(cluster_checks.check_slurm(cluster(row="")), "error", "has no such partition")


BAD_PARTITIONS = {
    "down": ("a800|down|2-00:00:00|64|gpu:4", "error", "is down"),
    "few cores": ("a800|up|2-00:00:00|16|gpu:4", "error", "nodes have 16 cores, a job asks for 32"),
    "few GPUs": ("a800|up|2-00:00:00|64|gpu:a800:2", "error", "nodes have 2 GPUs, a job asks for 4"),
    "no GPUs": ("a800|up|2-00:00:00|64|(null)", "error", "nodes have 0 GPUs"),
    "short limit": ("a800|up|12:00:00|64|gpu:a800:4", "warning", "allows 12 h, a job asks for 24 h"),
}


@pytest.mark.parametrize(("row", "level", "text"), BAD_PARTITIONS.values(), ids=BAD_PARTITIONS)
def test_a_partition_that_does_not_fit(cluster, row, level, text):
    assert_finds(cluster_checks.check_slurm(cluster(row=row)), level, text)


OFFICIAL = ("env.games=official", "machine.data.alfworld=null")


def test_data_that_the_environment_says_is_missing(subject):
    found = deep.check_data(subject(*OFFICIAL))
    assert_finds(found, "error", "ALFWORLD_DATA is not set", "alfworld-download")


def model_folder(tmp_path, files):
    folder = tmp_path / "model"
    folder.mkdir()
    for name, text in files.items():
        (folder / name).write_text(text)
    return f"model.path={folder}"


SHARDS = json.dumps({"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}})
WHOLE = {"config.json": "{}", "tokenizer.json": "{}", "model.safetensors": "w"}
BROKEN_MODELS = {
    "no weights": ({"config.json": "{}", "tokenizer.json": "{}"}, "lacks model.safetensors"),
    "empty weights": ({**WHOLE, "model.safetensors": ""}, "lacks model.safetensors"),
    "no tokenizer": ({**WHOLE, "tokenizer.json": ""}, "lacks a tokenizer"),
    "no configuration": ({**WHOLE, "config.json": ""}, "lacks config.json"),
    "lost shard": (
        {**WHOLE, "model.safetensors.index.json": SHARDS, "model-1.safetensors": "w"},
        "lacks model-2.safetensors",
    ),
    "damaged index": ({**WHOLE, "model.safetensors.index.json": "{"}, "a readable model.safetensors.index.json"),
}
LARGE = ("model=qwen2_5_1_5b", "env.prompt=verl_agent")


@pytest.mark.parametrize(("files", "text"), BROKEN_MODELS.values(), ids=BROKEN_MODELS)
def test_a_model_folder_that_lacks_a_part(subject, tmp_path, files, text):
    assert_finds(model_files.check_models(subject(*LARGE, model_folder(tmp_path, files))), "error", text, "model.path=")


def test_a_whole_model_folder(subject, tmp_path):
    assert [one.level for one in model_files.check_models(subject(*LARGE, model_folder(tmp_path, WHOLE)))] == [Level.OK]


def test_a_model_path_that_is_not_there(subject):
    found = model_files.check_models(subject(*LARGE, "model.path=/no/such/model"))
    assert_finds(found, "error", "there is no folder /no/such/model")


def test_a_model_that_is_still_to_be_downloaded(subject, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    assert_finds(
        model_files.check_models(subject(*LARGE)), "warning", "the first run downloads it", "hf download Qwen/"
    )
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert_finds(model_files.check_models(subject(*LARGE)), "error", "HF_HUB_OFFLINE is set")


def test_a_scorer_whose_package_is_missing(subject):
    found = model_files.check_scorers(subject("scorer.path=package:no_such_scorer"))
    assert_finds(found, "error", "package no_such_scorer is not installed", "pip install no-such-scorer")


API = ("method=plain", "model=gpt_4o", "env.prompt=verl_agent")


@pytest.fixture
def listening():
    """The address of a server that takes connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def closed():
    """An address where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return f"http://127.0.0.1:{server.getsockname()[1]}"


def test_an_endpoint_without_its_key(subject, monkeypatch, listening):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    found = services.check_endpoints(subject(*API, f"model.base_url={listening}"))
    assert_finds(found, "error", "OPENAI_API_KEY is not set", "export OPENAI_API_KEY")


def test_an_endpoint_that_does_not_answer_and_a_key_that_is_not_shown(subject, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    found = list(services.check_endpoints(subject(*API, f"model.base_url={closed()}")))
    assert_finds(found, "error", "does not answer: Connection refused", "model.base_url=")
    assert "sk-secret" not in str(found)


def test_wandb_online_without_a_key(subject, monkeypatch, tmp_path, listening):
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("WANDB_BASE_URL", listening)
    found = services.check_wandb(subject("wandb.mode=online"))
    assert_finds(found, "warning", "no key for", "wandb login")


def test_wandb_online_and_unreachable(subject, monkeypatch):
    monkeypatch.setenv("WANDB_API_KEY", "x" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", closed())
    found = services.check_wandb(subject("wandb.mode=online"))
    assert_finds(found, "warning", "does not answer", "wandb.mode=offline")


def test_a_check_that_breaks_is_a_finding_and_stops_no_other(subject, monkeypatch):
    monkeypatch.setitem(QUICK, "cpus", lambda _: (_ for _ in ()).throw(OSError("no such counter")))
    found = list(examine(subject(), slow=False))
    assert only(found).text == "the check itself failed: OSError: no such counter"
    assert {"packages", "disk", "wandb"} <= {one.check for one in found}


def test_the_exit_status_and_json_are_for_scripts(tmp_path, capsys):
    runs = f"machine.runs_dir={tmp_path}"
    assert cli.main(["doctor", runs, "--json"]) == 0
    records = json.loads(capsys.readouterr().out)
    assert {"check", "level", "text", "fix"} == set(records[0])
    assert cli.main(["doctor", runs, *OFFICIAL]) == 1
    assert "fix: alfworld-download" in capsys.readouterr().out
    assert cli.main(["doctor", "method.shaper.thet=1"]) == 2
    assert not (tmp_path / "runs").exists()


def test_an_experiment_is_looked_at_once_for_each_environment_and_model():
    subject = read_subject(["+experiment=prompting", "scale=paper", "env=webshop", "model=qwen2_5_1_5b"])
    assert len({(one.env.name, one.model.name) for one in subject.configs}) == len(subject.configs)
    assert subject.runs > len(subject.configs)
    assert {"agents", "track", "webshop"} <= set(packages.needed_extras(subject))


def test_the_projects_own_root_has_what_the_doctor_reads():
    assert (REPOSITORY / "pyproject.toml").is_file()
    assert (REPOSITORY / "constraints.txt").is_file()


def test_a_language_model_with_the_tiny_policys_tokens_is_warned_of(subject):
    assert_finds(model_files.check_tokens(subject(*LARGE)), "warning", "256 + 8 tokens", "scale=paper trainer=local")
    assert not list(model_files.check_tokens(subject()))
