"""Checks that this machine can run verl, and the settings that depend on it; before Ray starts."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from scpo.errors import ConfigError
from scpo.installed import install_command, is_vllm_for_cpu
from scpo.memory import GIB, shortage
from scpo.policies.model import pick_device
from scpo.records.memory import usable_cores
from scpo.schema.run import RunConfig
from scpo.schema.trainer import VerlTrainer
from scpo.verl_config import STORAGE_UNITS, Setting, cores_needed, ray_temp_folder, temp_root

Attention = Literal["flash", "sdpa"]
ENV_VARS = "ray_kwargs.ray_init.runtime_env.env_vars"


def trainer_of(config: RunConfig) -> VerlTrainer:
    """The trainer's settings; the registry sends no other trainer here."""
    assert isinstance(config.trainer, VerlTrainer)  # noqa: S101
    return config.trainer


def check_machine(config: RunConfig) -> bool:
    """Check that this machine can run the configuration; return True if the run uses the CPU.

    Raises:
        ConfigError: A requirement is missing: GPUs, their memory, cores, or a package.
    """
    on_cpu = pick_device(config.machine.device).type == "cpu"
    check_engine(config, on_cpu=on_cpu)
    if not on_cpu:
        _check_gpus(config)
        _check_cores(config)
        attention(config)
    return on_cpu


def check_engine(config: RunConfig, *, on_cpu: bool) -> None:
    """Check that the rollout engine fits the device and is installed.

    Raises:
        ConfigError: The engine does not fit the device, or is not installed.
    """
    verl = trainer_of(config).verl
    if verl.engine == "hf" and not on_cpu:
        raise ConfigError(
            "trainer.verl.engine=hf is Hugging Face generate, for the CPU only; on a GPU use "
            "trainer=verl (trainer.verl.engine=vllm), or machine.device=cpu"
        )
    if on_cpu and verl.engine == "vllm" and (verl.gpus > 1 or not is_vllm_for_cpu()):
        raise ConfigError(
            f"trainer={config.trainer.name} with trainer.verl.gpus={verl.gpus} "
            f"trainer.verl.engine={verl.engine}, but torch sees no CUDA device here; allowed "
            "without one: trainer=verl_cpu, and with the CPU build of vLLM also trainer=verl_cpu "
            "trainer.verl.engine=vllm (make test-verl-vllm installs one)"
        )
    if not on_cpu and importlib.util.find_spec("vllm") is None:
        raise ConfigError(
            f"trainer=verl plays with vLLM, which is not installed: {install_command('verl')} "
            "(docs/verl.md)"
        )


def _check_gpus(config: RunConfig) -> None:
    """Compare number and memory of the GPUs with what the run needs.

    Raises:
        ConfigError: There are too few GPUs, or the estimated memory exceeds that of the smallest.
    """
    import torch

    verl = trainer_of(config).verl
    visible = torch.cuda.device_count()
    # With several nodes, this node has only some of the GPUs.
    if verl.gpus > visible and verl.nodes == 1:
        fitting = "trainer=verl_1gpu" if visible == 1 else f"trainer.verl.gpus={visible}"
        raise ConfigError(
            f"trainer.verl.gpus={verl.gpus}, torch sees {visible} (CUDA_VISIBLE_DEVICES="
            f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'not set')}); here: {fitting}"
        )

    sizes = [torch.cuda.get_device_properties(gpu).total_memory for gpu in range(visible)]

    # The smallest GPU decides, because all of them hold equal shards.
    reason = shortage(config, min(sizes) / GIB)
    if reason:
        raise ConfigError(str(reason))


def _check_cores(config: RunConfig) -> None:
    """Compare the cores of this process with what Ray's workers reserve.

    Raises:
        ConfigError: There are too few cores.
    """
    trainer = trainer_of(config)
    needed = cores_needed(trainer)
    # Ray reserves a core for each worker, and waits for missing cores without a message.
    if usable_cores() < needed and trainer.verl.nodes == 1:
        raise ConfigError(
            f"verl needs {needed} CPU cores for {trainer.verl.gpus} GPUs, this process may use "
            f"{usable_cores()}: with fewer it waits for ever. On Slurm: launcher.cpus={needed} or "
            "more"
        )


def attention(config: RunConfig) -> Attention:
    """Attention of the update: flash-attn, or torch's own with verl's fused kernels.

    Raises:
        ConfigError: flash is configured, but flash-attn is not installed.
    """
    wanted = trainer_of(config).verl.attention
    installed = importlib.util.find_spec("flash_attn") is not None
    if wanted == "flash" and not installed:
        raise ConfigError(
            "trainer.verl.attention=flash needs the package flash-attn, which is not installed: "
            "docker/install.sh (docs/verl.md), or trainer.verl.attention=sdpa"
        )
    return "flash" if installed and wanted != "sdpa" else "sdpa"


def gpu_settings(config: RunConfig, run_folder: Path) -> Iterator[Setting]:
    """Settings that depend on this machine: of the run's own Ray, and of its storage units."""
    # A running Ray at RAY_ADDRESS keeps its own settings.
    if trainer_of(config).verl.nodes == 1 and "RAY_ADDRESS" not in os.environ:
        source = "the cores of this process; Ray would count the node's"
        yield Setting("ray_kwargs.ray_init.num_cpus", usable_cores(), source)
        yield from own_ray(run_folder)
    yield Setting(
        "transfer_queue.backend.SimpleStorage.num_data_storage_units",
        STORAGE_UNITS,
        "each holds a CPU of Ray's",
    )


def own_ray(run_folder: Path) -> Iterator[Setting]:
    """Settings with which a run on one node starts a Ray of its own.

    Without an address, Ray joins any cluster that is recorded on the node, even another user's, and
    rejects ``num_cpus``; without a temporary folder it uses TMPDIR, which may be too long.
    """
    init = "ray_kwargs.ray_init"
    yield Setting(
        f"{init}.address", "local", "never a Ray that is recorded on this node", added=True
    )
    temp = str(ray_temp_folder(run_folder))
    yield Setting(f"{init}._temp_dir", temp, "short enough for Ray's sockets", added=True)


def temp_variables() -> dict[str, str]:
    """TMPDIR for all processes of a run, if the present one is too long for vLLM's sockets."""
    short = str(temp_root())
    if short == tempfile.gettempdir():
        return {}
    return {"TMPDIR": short}


def ray_settings(config: RunConfig, variables: dict[str, str]) -> Iterator[Setting]:
    """Address of a running multi-node Ray, and environment variables of all processes in Ray."""
    if trainer_of(config).verl.nodes > 1:
        yield Setting(
            "ray_kwargs.ray_init.address",
            "auto",
            "trainer.verl.nodes: Ray runs on each node",
            added=True,
        )
    for name, value in variables.items():
        yield Setting(
            f"{ENV_VARS}.{name}", value, "sockets named by this attempt; the platform", added=True
        )
