"""The doctor against planted defects, one test each: it must see it, say the right level, and name the fix."""

import math
import os
import shutil

from scpo.findings import Level
from scpo.memory import GIB
from scpo.records.memory import usable_cores
from sweeps.compose.matrix import expand
from sweeps.doctor import machine
from sweeps.doctor.examination import read_subject
from sweeps.records import file_systems
from sweeps.resources import all_disk_gib, disk_gib
from tests.support.doctor_findings import assert_finds


def test_more_runs_at_a_time_than_cores(subject):
    cores = usable_cores()
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


def test_memory_of_the_host_that_gpus_leave_their_weights_in(subject, tmp_path, monkeypatch):
    """It was "ok, at least 1.4 GiB" for each run on GPUs."""
    monkeypatch.setattr(machine, "installed_gpus", lambda: [("A800", 79.15)] * 4)
    monkeypatch.setattr("sweeps.resources.visible_gpus", lambda: list("0123"))
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "meminfo")
    words = ("scale=paper", "model=qwen2_5_7b")
    offloaded = (*words, "trainer.verl.offload_training=true")

    def check(gib, *words):
        (tmp_path / "meminfo").write_text(f"MemAvailable: {gib << 20} kB\n")
        return list(machine.check_memory(subject(*words)))

    # Reference policy in bfloat16: 14.2 GiB; weights and optimizer, 12 bytes a parameter: 85.1 GiB.
    assert_finds(check(90, *offloaded), "error", "1 at a time need at least 101 GiB", "larger machine")
    assert_finds(check(110, *offloaded), "warning", "by estimate 366 GiB", "watch the first run")
    assert_finds(check(15, *words), "error", "1 at a time need at least 16 GiB", "larger machine")
    assert_finds(check(110, *words), "warning", "by estimate 284 GiB")
    (enough,) = check(300, *words)
    assert enough.level == "ok"


def test_a_system_without_proc_has_no_count_of_free_memory_and_no_names_of_file_systems(subject, tmp_path, monkeypatch):
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(file_systems, "MOUNTS", tmp_path / "mounts")
    (memory,) = machine.check_memory(subject())
    assert (memory.level, memory.text) == (
        "ok",
        "1 at a time need at least 1.4 GiB; what is free is read on Linux only",
    )
    (folder,) = machine.check_run_folder(subject())
    assert folder.text.endswith("(unknown): writable, renames and locks work")


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


def test_the_disk_of_an_experiment_is_the_sum_of_its_runs_and_not_the_largest_for_each():
    """Of 168 runs, the prompted ones write logs only and those of 1.5B a fifth of those of 7B."""
    words = ["+experiment=main_table", "scale=paper", "launcher=slurm_a800x4"]
    subject = read_subject(words)
    needed, unknown = all_disk_gib(expand("main_table", words[1:]).runs.values())
    (disk, *_) = machine.check_disk(subject)
    assert f"runs: {subject.runs}, writing up to {math.ceil(needed)} GiB" in disk.text
    assert unknown == 0
    assert needed < 0.7 * subject.runs * max(disk_gib(config) for config in subject.configs)


def test_the_disk_of_a_model_is_that_of_its_weights_and_not_of_its_name():
    """Qwen2.5-7B has 7.616 billion; three checkpoints of 12 bytes each."""
    (config,) = expand("one", ["method=scpo", "scale=paper", "model=qwen2_5_7b", "seeds=[0]"]).runs.values()
    assert 3 * 12 * 7.616e9 / GIB < disk_gib(config) < 3 * 12 * 7.616e9 / GIB + 0.1


def test_a_disk_without_inodes(subject, monkeypatch):
    few = os.statvfs_result((4096, 4096, 1 << 30, 1 << 30, 1 << 30, 1000, 5, 5, 0, 255))
    monkeypatch.setattr(machine.os, "statvfs", lambda _: few)
    assert_finds(machine.check_disk(subject()), "error", "5 inodes are left")


def test_a_run_folder_that_cannot_be_written():
    assert_finds(machine.check_run_folder(read_subject(["machine.runs_dir=/proc/runs"])), "error", "/proc (proc)")


def mounted(tmp_path, monkeypatch, kind):
    (tmp_path / "mounts").write_text(f"disk / ext4 rw 0 0\nother {tmp_path} {kind} rw 0 0\n")
    monkeypatch.setattr(file_systems, "MOUNTS", tmp_path / "mounts")


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


def test_without_a_gpu_only_runs_that_train_on_one_are_an_error(subject, commands):
    """`trainer=verl_cpu` and a prompting method, which start, had the error of training with verl."""
    paper = ("scale=paper", "trainer=verl_1gpu")
    for words in (("trainer=verl_cpu",), (*paper, "method=plain")):
        (found,) = machine.check_gpus(subject(*words))
        assert found.level is not Level.ERROR
    table = ("+experiment=main_table", *paper, "rows=[plain,scpo]", "env=[alfworld]", "seeds=[0]")
    for words in ((*paper, "method=scpo"), table):
        assert_finds(machine.check_gpus(subject(*words)), "error", "training with verl wants GPUs", "slurm_a800x4")


def test_a_machine_with_fewer_gpus_than_a_run_needs(subject, commands, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    commands("nvidia-smi", "echo 'Large GPU, 81920'")
    assert_finds(machine.check_gpus(subject("scale=paper")), "error", "wants 4 GPUs", "what it says")
