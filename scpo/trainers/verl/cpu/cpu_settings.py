"""verl settings for runs on the CPU."""

from __future__ import annotations

from collections.abc import Iterator

from scpo.verl_config import Setting

PLATFORM = "scpo.trainers.verl.cpu.platform"
HF_ROLLOUT = "scpo.trainers.verl.cpu.hf_rollout"
VLLM_WORKER = "scpo.trainers.verl.cpu.vllm_worker.CpuWorkerExtension"
LOGICAL_CPUS = 16
"""Number of cores that Ray assumes: verl reserves more than a laptop has."""
STORE_BYTES = 200_000_000


def cpu_environment(engine: str) -> dict[str, str]:
    """Environment variables of all processes; verl and vLLM read them when they are imported."""
    verl = {
        "VERL_USE_EXTERNAL_MODULES": PLATFORM,
        "VERL_PLATFORM": "cpu",
        # verl registers its FSDP engine only for "cuda" and "npu"; the code is the same.
        "VERL_ENGINE_DEVICE": "cuda",
    }
    if engine != "vllm":
        return verl
    return {
        **verl,
        # GiB of cache for keys and values.
        "VLLM_CPU_KVCACHE_SPACE": "1",
        # A container may not own the core that a thread would be bound to.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }


def cpu_settings(engine: str, ranks: int | None = 1) -> list[Setting]:
    """Settings of verl that are added after those of the run.

    Args:
        engine: The rollout engine, ``vllm`` or ``hf``.
        ranks: Number of data-parallel ranks, each on a logical GPU; None to join a running Ray,
            which has resources of its own.
    """
    return [
        Setting("trainer.device", "cpu", "no GPU"),
        *(() if ranks is None else _ray(ranks)),
        Setting(
            "transfer_queue.backend.SimpleStorage.num_data_storage_units",
            1,
            "one process is enough",
        ),
        *_model(),
        *_rollout(engine),
    ]


def _ray(ranks: int) -> Iterator[Setting]:
    """A Ray of the run's own, with logical cores and GPUs that the machine need not have."""
    yield Setting("ray_kwargs.ray_init.num_cpus", LOGICAL_CPUS + 3 * ranks, "logical cores")
    yield Setting(
        "ray_kwargs.ray_init.num_gpus",
        ranks,
        "logical GPUs: verl places each worker on one",
        added=True,
    )
    yield Setting("ray_kwargs.ray_init.include_dashboard", False, "nobody looks at it", added=True)
    yield Setting(
        "ray_kwargs.ray_init.object_store_memory", STORE_BYTES, "a laptop's memory", added=True
    )


def _model() -> Iterator[Setting]:
    """Attention, precision and compilation of policy, reference and critic."""
    for part in ("actor_rollout_ref.model", "critic.model"):
        yield Setting(f"{part}.use_remove_padding", False, "needs flash attention")
        yield Setting(
            f"{part}.override_config.attn_implementation",
            "sdpa",
            "flash attention needs a GPU",
            added=True,
        )

    yield Setting(
        "actor_rollout_ref.actor.use_torch_compile",
        False,
        "compiling takes longer than a short run",
    )
    for part in (
        "actor_rollout_ref.actor.fsdp_config",
        "actor_rollout_ref.ref.fsdp_config",
        "critic.fsdp",
    ):
        yield Setting(f"{part}.use_torch_compile", False, "as above")
        yield Setting(f"{part}.dtype", "float32", "bfloat16 is slow on most CPUs")
        yield Setting(f"{part}.mixed_precision.param_dtype", "fp32", "as above", added=True)


def _rollout(engine: str) -> Iterator[Setting]:
    """The rollout engine ``vllm`` or ``hf``, at the size of a small model."""
    model, rollout = "actor_rollout_ref.model", "actor_rollout_ref.rollout"
    yield Setting(f"{rollout}.dtype", "float32", "as the update")
    yield Setting(f"{rollout}.enforce_eager", True, "CUDA graphs need a GPU")
    yield Setting(
        f"{rollout}.enable_sleep_mode",
        False,
        "memory is not shared with an update on a GPU",
        added=True,
    )
    yield Setting(f"{rollout}.max_num_seqs", 64, "a laptop's memory")
    yield Setting(
        f"{rollout}.checkpoint_engine.update_weights_bucket_megabytes", 16, "a small model"
    )
    if engine == "vllm":
        extension = f"{rollout}.engine_kwargs.vllm.worker_extension_cls"
        yield Setting(extension, VLLM_WORKER, "takes the update's weights", added=True)
    else:
        yield Setting(
            f"{model}.external_lib", HF_ROLLOUT, "registers the engine hf where verl looks for it"
        )
