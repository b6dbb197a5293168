"""The doctor against planted defects, one test each: it must see it, say the right level, and name the fix."""

from scpo.findings import Level
from sweeps.doctor import gpu_path
from tests.support.doctor_findings import assert_finds


def test_a_gpu_too_small_for_the_model(subject, commands):
    commands("nvidia-smi", "echo 'Tiny GPU, 8192'")
    found = gpu_path.check_gpu_memory(subject("scale=paper", "model=qwen2_5_7b"))
    assert_finds(
        found, "error", "of 8 GiB (update/rollout: weights, gradients, optimizer 28.4/21.3", "more trainer.verl"
    )


def test_the_memory_table_of_a_cluster_that_fits(subject, commands):
    (found,) = gpu_path.check_gpu_memory(subject("scale=paper", "launcher=slurm_a800x4"))
    assert found.level is Level.OK
    for part in (
        "weights, gradients, optimizer 5.8/",
        "logits 49.",
        "rollout engine 0.0/48.0",
        "NCCL 1.0/1.0",
        "scorer 3.0/3.0",
    ):
        assert part in found.text


def test_a_driver_too_old_for_torch(subject, commands, monkeypatch):
    commands("nvidia-smi", "echo 550.54.15")
    monkeypatch.setattr(gpu_path, "installed_version", lambda _: "2.11.0")
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
