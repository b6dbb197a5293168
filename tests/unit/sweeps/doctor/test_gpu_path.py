"""The doctor against planted defects, one test each: it must see it, say the right level, and name the fix."""

import re
import tempfile
from pathlib import Path

import pytest

from scpo.findings import Level
from sweeps.compose.configuration import compose_run
from sweeps.doctor import gpu_path, machine
from sweeps.doctor.examination import read_subject
from sweeps.doctor.subject import Subject, distinct
from sweeps.estimates import hours
from tests.support.doctor_findings import assert_finds


def test_a_gpu_too_small_for_the_model(subject, commands):
    commands("nvidia-smi", "echo 'Tiny GPU, 8192'")
    found = gpu_path.check_gpu_memory(subject("scale=paper", "model=qwen2_5_7b"))
    assert_finds(
        found, "error", "of 8 GiB (update/rollout: weights, gradients, optimizer 28.4/21.3", "More trainer.verl.gpus"
    )


def test_a_gpu_of_unknown_size(subject, commands):
    """One warning for runs that need its memory, none for the tiny policy."""
    commands("nvidia-smi", "echo 'NVIDIA GB10, [N/A]'")
    large = subject("scale=paper", "trainer=verl_1gpu")
    found = gpu_path.check_gpu_memory(large)
    assert_finds(found, "warning", "nvidia-smi gives no size for NVIDIA GB10", "launcher.gpu_gb=<its size>")
    assert [one.text for one in machine.check_gpus(large)] == ["NVIDIA GB10 of unknown size"]
    assert list(gpu_path.check_gpu_memory(subject("scale=study"))) == []


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


def test_of_many_methods_the_one_with_a_scorer_has_its_own_memory():
    words = ("scale=paper", "launcher=slurm_a800x4")
    runs = [compose_run([*words, f"method={name}"]) for name in ("rloo", "gigpo", "scpo")]
    (found,) = gpu_path.check_gpu_memory(Subject(tuple(distinct(runs)), len(runs)))
    assert found.check == "gpu memory"
    assert found.text.startswith("2 kinds of run, 68 to 71 GiB; largest: scpo 1.5B alfworld, about 71 of 80 GiB (")


def test_the_hours_of_many_kinds_of_run_are_one_line_for_each_number_of_gpus():
    subject = read_subject(["+experiment=main_table", "scale=paper", "launcher=slurm_a800x4"])
    trained, *others = sorted(gpu_path.check_hours(subject), key=lambda one: "on 4 GPUs" not in one.text)
    assert trained.check == "hours"
    assert re.match(r"\d+ kinds of run, 8\.\d to 3\d\.\d h a run on 4 GPUs \(hours: the paper's", trained.text)
    assert len(others) < 3


def test_a_driver_too_old_for_torch(subject, commands, monkeypatch):
    commands("nvidia-smi", "echo 550.54.15")
    monkeypatch.setattr(gpu_path, "installed_version", lambda _: "2.11.0")
    found = gpu_path.check_driver(subject("scale=paper"))
    assert_finds(found, "error", "550.54.15; torch 2.11.0 is built for CUDA 13, which needs 580", "a driver of 580")


@pytest.mark.parametrize(("release", "cuda"), [("2.10.0", "12"), ("2.12.0", "13"), ("2.13.0+cu126", "12")])
def test_the_cuda_that_a_release_of_torch_is_built_for(release, cuda, subject, commands, monkeypatch):
    """2.10 was taken for a build of CUDA 13, and 2.12 for one of an unknown CUDA."""
    commands("nvidia-smi", "echo 550.54.15")
    monkeypatch.setattr(gpu_path, "installed_version", lambda _: release)
    (found,) = gpu_path.check_driver(subject("scale=paper"))
    assert found.level is (Level.OK if cuda == "12" else Level.ERROR)


def test_flash_attn_that_is_asked_for_and_missing(subject):
    found = gpu_path.check_attention(subject("scale=paper", "trainer.verl.attention=flash"))
    assert_finds(found, "error", "it is not installed", "docker/install.sh")
    (found,) = gpu_path.check_attention(subject("scale=paper"))
    assert "a run goes without" in found.text


def test_too_few_cores_for_ray(subject):
    found = gpu_path.check_ray_cores(subject("scale=paper", "launcher=slurm_a800x4", "launcher.cpus=8"))
    assert_finds(found, "error", "8; verl on 4 GPUs needs 15", "launcher.cpus=15")


def test_the_sockets_of_another_run_are_looked_for_where_verl_makes_them(subject, tmp_path, monkeypatch):
    """verl names /tmp itself: with another TMPDIR the check looked in the wrong folder."""
    assert Path("/tmp") == gpu_path.VERL_SOCKETS  # noqa: S108
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "elsewhere"))
    monkeypatch.setattr(gpu_path, "VERL_SOCKETS", tmp_path)
    (found,) = gpu_path.check_sockets(subject("scale=paper"))
    assert found.level is Level.OK
    (tmp_path / "rl-colocate-zmq-01000000-replica-0-rank-0.sock").touch()
    assert_finds(gpu_path.check_sockets(subject("scale=paper")), "warning", "rl-colocate-zmq-01000000")


def test_a_ray_that_is_recorded_on_the_node(subject, tmp_path, monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.delenv("RAY_TMPDIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    record = tmp_path / "ray" / "ray_current_cluster"
    record.parent.mkdir()
    record.write_text("10.0.0.1:6379")
    texts = [found.text for found in gpu_path.check_ray(subject("scale=paper"))]
    assert f"a Ray is recorded in {record}; runs on one node start their own" in texts[0]
    monkeypatch.setattr(tempfile, "tempdir", "/tmp")  # noqa: S108
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))  # Ray's own name of the folder, which it asks for first
    assert f"a Ray is recorded in {record}" in next(gpu_path.check_ray(subject("scale=paper"))).text
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    found = gpu_path.check_ray(subject("scale=paper"))
    assert_finds(found, "warning", "RAY_ADDRESS=10.0.0.1:6379: runs join", "unset RAY_ADDRESS")


def test_a_tmpdir_that_is_too_long_for_sockets(subject, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", "/scratch/" + "t" * 71)
    texts = [found.text for found in gpu_path.check_ray(subject("scale=paper"))]
    assert any("TMPDIR has 80 characters, too many for sockets: runs use /tmp" in text for text in texts)


def test_an_older_driver_with_cudas_forward_compatibility(subject, commands, monkeypatch, tmp_path):
    commands("nvidia-smi", "echo 550.54.15")
    monkeypatch.setattr(gpu_path, "installed_version", lambda _: "2.11.0")
    library = tmp_path / "cuda-13.0" / "compat" / "libcuda.so.1"
    library.parent.mkdir(parents=True)
    library.touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/usr/lib:{library.parent}")
    found = gpu_path.check_driver(subject("scale=paper"))
    assert_finds(found, "warning", f"{library} may stand in for it", "torch.zeros(1).cuda()")


def test_a_run_that_nearly_fills_its_gpu(subject, commands):
    commands("nvidia-smi", "echo 'Card, 75776'")  # 74 GiB
    found = gpu_path.check_gpu_memory(subject("scale=paper"))
    assert_finds(found, "warning", "over 90% of it", "micro_batch_rows")


def test_the_fix_for_a_nearly_full_gpu_is_of_the_phase_that_fills_it(subject, commands):
    """A smaller micro-batch was advised, too, where the rollout needs more than the update."""
    commands("nvidia-smi", "echo 'Card, 24166'")  # 23.6 GiB
    words = ("scale=paper", "trainer=verl_1gpu", "model=qwen2_5_0_5b", "trainer.micro_batch_rows=4")
    (full,) = gpu_path.check_gpu_memory(subject(*words))
    assert full.level is Level.WARNING
    assert full.text.startswith("about 23 of 24 GiB")
    assert full.fix.startswith("A smaller trainer.verl.engine_memory or more trainer.verl.gpus")
    assert "micro_batch_rows" not in full.fix
    (fits,) = gpu_path.check_gpu_memory(subject(*words, "trainer.verl.engine_memory=0.4"))
    assert fits.level is Level.OK


def test_webshops_reward_without_spacy(subject, monkeypatch):
    """The stop list stood in without a word: its warning lands in the log of a Ray worker."""
    monkeypatch.setattr(gpu_path, "installed_version", lambda _: None)
    found = gpu_path.check_noun_rule(subject("scale=paper", "env=webshop"))
    assert_finds(found, "error", "a stop list would give the rewards", "spacy download en_core_web_sm")
    assert_finds(gpu_path.check_noun_rule(subject("env=webshop")), "warning", "a stop list")
    assert list(gpu_path.check_noun_rule(subject("scale=paper", "env=webshop", "env.nouns=stop_list"))) == []
    monkeypatch.setattr(gpu_path, "installed_version", lambda _: "3.8.0")
    (found,) = gpu_path.check_noun_rule(subject("scale=paper", "env=webshop"))
    assert found.level is Level.OK


def test_the_hours_of_a_run_are_those_of_the_dry_run(subject):
    paper = subject("scale=paper")
    (found,) = gpu_path.check_hours(paper)
    assert f"{hours(paper.first):.1f} h a run on 4 GPUs" in found.text
