"""What stops a run of a language model on GPUs: memory, driver, flash-attn, cores, the sockets of another run."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scpo.findings import Finding, error, ok, warning
from scpo.installed import installed_version
from scpo.memory import gpu_table, needed_gib, shortage
from scpo.records.memory import driver_version, installed_gpus
from scpo.schema import HuggingFaceModel, LocalLauncher, RunConfig, SlurmLauncher, VerlTrainer
from scpo.verl_config import cores_needed
from sweeps.compose.resources import resources, trains_in_verl
from sweeps.doctor.subject import Subject

CUDA_OF_TORCH: dict[tuple[int, ...], str] = {(2, 10): "13", (2, 11): "13", (2, 13): "13"}  # PyPI's default builds
DRIVER_OF_CUDA = {"12": 525, "13": 580}  # NVIDIA's release notes: the oldest driver of each major version
SOCKETS = "rl-colocate-zmq-*.sock"


def check_gpu_memory(subject: Subject) -> Iterator[Finding]:
    """A table of what lies on the fullest GPU, for each kind of run that needs one; all of it estimates."""
    gib = _gpu_gib(subject)
    if gib is None:
        return
    for config in subject.configs:
        if not isinstance(config.model, HuggingFaceModel) or not resources(config).gpus:
            continue
        parts = gpu_table(config, gib)
        check = f"gpu memory {config.method.name} {config.model.name} {config.env.benchmark}"
        if not parts:
            yield warning(check, "unknown size", "see that it fits")
            continue
        listed = ", ".join(f"{one.name} {one.update_gib:.1f}/{one.rollout_gib:.1f}" for one in parts)
        text = f"about {needed_gib(parts):.0f} of {gib:.0f} GiB (update/rollout: {listed}; estimates)"
        reason = shortage(config, gib)
        if reason:
            yield error(check, text, reason.rpartition("a GPU has ")[2].partition(". ")[2])
        else:
            yield ok(check, text)


def check_attention(subject: Subject) -> Iterator[Finding]:
    """Which attention verl's update will use, as far as this environment tells."""
    for config in subject.configs:
        if isinstance(config.trainer, VerlTrainer) and config.trainer.name == "verl" and _on_gpus(config):
            installed, wanted = installed_version("flash-attn"), config.trainer.verl.attention
            if installed is None and wanted == "flash":
                fix = "pip install -c constraints-verl-gpu.txt 'scpo[verl-gpu]', or trainer.verl.attention=sdpa"
                yield error("flash-attn", "trainer.verl.attention=flash, and it is not installed", fix)
            elif installed is None or wanted == "sdpa":
                text = "goes without: torch's attention, fused kernels, micro-batches of at most 8 rows"
                yield ok("flash-attn", text if installed else f"not installed here: a run {text}")
            else:
                yield ok("flash-attn", installed)
            return


def check_driver(subject: Subject) -> Iterator[Finding]:
    """The driver against the CUDA that torch was built for."""
    driver, torch = driver_version(), installed_version("torch")
    if driver is None or torch is None or not any(map(_on_gpus, subject.configs)):
        return
    release = tuple(int(part) for part in torch.split("+")[0].split(".")[:2])
    build = torch.partition("+cu")[2]
    cuda = build[:2] if build else CUDA_OF_TORCH.get(release)
    oldest = DRIVER_OF_CUDA.get(cuda or "")
    if oldest is not None and int(driver.split(".")[0]) < oldest:
        fix = f"a driver of {oldest} or newer, or torch built for an older CUDA (pytorch.org, --index-url)"
        yield error("driver", f"{driver}; torch {torch} is built for CUDA {cuda}, which needs {oldest}", fix)
    else:
        yield ok("driver", f"{driver}, torch {torch}")


def check_ray_cores(subject: Subject) -> Iterator[Finding]:
    """Verl waits for ever where Ray cannot place its processes; on Slurm, the job's cores count."""
    for config in subject.configs:
        if not (trains_in_verl(config) and isinstance(config.trainer, VerlTrainer) and _on_gpus(config)):
            continue
        needed = cores_needed(config.trainer)
        local = isinstance(config.launcher, LocalLauncher)
        there = len(os.sched_getaffinity(0)) if local else resources(config).cpus
        if there < needed:
            fix = "a machine with more, or trainer=verl_1gpu" if local else f"launcher.cpus={needed}"
            yield error("cores for Ray", f"{there}; verl on {config.trainer.verl.gpus} GPUs needs {needed}", fix)
        else:
            yield ok("cores for Ray", f"{there} of at least {needed}")
        return


def check_sockets(subject: Subject) -> Iterator[Finding]:
    """Sockets of other runs on this node. Ours have names of their own; another program's verl has not."""
    if not isinstance(subject.first.launcher, LocalLauncher) or not any(map(trains_in_verl, subject.configs)):
        return
    found = sorted(path.name for path in Path(tempfile.gettempdir()).glob(SOCKETS))
    if found:
        text = f"{len(found)} in {tempfile.gettempdir()}, for example {found[0]}: of a run under way, or left behind"
        yield warning("sockets", text, "nothing if that run is known; names of our runs never meet")
    else:
        yield ok("sockets", "no other verl run on this node")


def _gpu_gib(subject: Subject) -> float | None:
    launcher = subject.first.launcher
    if isinstance(launcher, SlurmLauncher):
        return launcher.gpu_gb
    return min((gib for _, gib in installed_gpus()), default=None)


def _on_gpus(config: RunConfig) -> bool:
    return resources(config).gpus > 0
