"""Resources of a run (GPUs, cores, memory, disk) and the slots of this machine.

Resources are derived from method, model and trainer; ``scpo.memory`` estimates the memory of one
GPU in detail.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from scpo.errors import ConfigError
from scpo.installed import is_vllm_for_cpu
from scpo.memory import (
    BF16,
    FLOAT32,
    GIB,
    PAPER_GPU_GIB,
    ROLLOUT_BYTES,
    lora_rank,
    parameters,
    shape,
    shortage,
)
from scpo.progress import counted
from scpo.records.memory import installed_gpus, smallest_gib, usable_cores, visible_gpus
from scpo.schema.method import required
from scpo.schema.model import HuggingFaceModel, ModelConfig
from scpo.schema.run import LocalLauncher, RunConfig, SlurmLauncher
from scpo.schema.scorer import CrossEncoderScorer
from scpo.schema.trainer import VerlTrainer
from scpo.verl_config import cores_needed

GB = 10**9

# Appendix A.2: 32 cores for 4 GPUs.
CPUS_PER_GPU = 8

# verl's TransferQueue, agent loops, scorer and engine each occupy some cores.
LEAST_CPUS_OF_VERL = 16

# Our estimates of main memory: a constant for Ray, environments and engine, and a part per billion
# parameters for the reference policy, loading and checkpoints. The second is not divided by the
# number of nodes, because every process loads the whole model if its embeddings are tied (1.5B);
# for other models, only the first process does.
VERL_GB, VERL_GB_PER_BILLION = 80, 32

# The same for trainer=local with a Hugging Face model, which is one process.
LOCAL_GB, LOCAL_GB_PER_BILLION = 16, 8

# A process with a small policy takes 1.3 GiB at its peak, measured at scale=mini.
SMALL_GB = 4

# A large reranker in float32 in a process of its own.
RERANKER_GB = 4


@dataclass(frozen=True)
class Resources:
    """Resources of one run; ``gpus``, ``cpus`` and ``memory_gb`` are per node."""

    nodes: int
    gpus: int
    cpus: int
    memory_gb: int

    @property
    def all_gpus(self) -> int:
        """Number of GPUs on all nodes."""
        return self.nodes * self.gpus


def resources(config: RunConfig) -> Resources:
    """Resources that a run needs.

    They do not depend on the machine, except for the launcher's own settings.

    A model behind an API needs no GPU. An evaluation and trainer=local need one, unless the policy
    is small and trains on the CPU. verl needs ``trainer.verl.gpus`` on each node, and none with its
    CPU engine.
    """
    derived = _derived(config)
    launcher = config.launcher
    if not isinstance(launcher, SlurmLauncher):
        return derived
    gpus = derived.gpus if launcher.gpus is None else launcher.gpus
    cpus = launcher.cpus or max(derived.cpus, CPUS_PER_GPU * gpus)
    return Resources(derived.nodes, gpus, cpus, derived.memory_gb)


def _derived(config: RunConfig) -> Resources:
    """Resources that a run needs, without the launcher's settings."""
    billions = (parameters(config.model) or 0.0) / 1e9
    if config.model.kind == "api":
        # Only the episodes run here; the model runs at the endpoint.
        return Resources(1, 0, 2, 2 * SMALL_GB)
    trainer = verl_trainer(config)
    if trainer is not None:
        gpus = 0 if trainer.verl.engine == "hf" else trainer.verl.gpus
        cpus = max(LEAST_CPUS_OF_VERL, CPUS_PER_GPU * gpus)
        offloaded_gb = _offloaded_gib(config, trainer, billions * 1e9) * GIB / GB
        memory_gb = _rounded(VERL_GB + VERL_GB_PER_BILLION * billions + offloaded_gb)
        return Resources(trainer.verl.nodes, gpus, cpus, memory_gb)
    if isinstance(config.model, HuggingFaceModel):
        return Resources(1, 1, CPUS_PER_GPU, _rounded(LOCAL_GB + LOCAL_GB_PER_BILLION * billions))
    reranker = RERANKER_GB if isinstance(config.scorer, CrossEncoderScorer) else 0
    on_gpu = config.machine.device == "cuda"
    return Resources(1, int(on_gpu), max(2, config.machine.threads), SMALL_GB + reranker)


def trains_in_verl(config: RunConfig) -> bool:
    """True if verl trains the run; prompting methods are evaluated without it."""
    return verl_trainer(config) is not None


def verl_trainer(config: RunConfig) -> VerlTrainer | None:
    """Settings of the trainer of a run that verl trains; None for other runs."""
    trainer = config.trainer
    if isinstance(trainer, VerlTrainer) and config.method.kind == "trained":
        return trainer
    return None


def check_fits(config: RunConfig, gpu_gb: float) -> None:
    """Reject a run that needs more GPUs, GPU memory or cores than its job has.

    Raises:
        ConfigError: The message lists the parts of the memory, or the missing GPUs or cores, and
            what would fit (see :mod:`scpo.memory`).
    """
    trainer = verl_trainer(config)
    if trainer is not None:
        given = resources(config)
        needed = _derived(config).gpus
        if given.gpus < needed:
            raise ConfigError(
                f"launcher.gpus={given.gpus}, the run takes {needed} of each node "
                f"(trainer.verl.gpus); allowed: null, or {needed} and more. For one GPU: "
                "trainer=verl_1gpu"
            )
        cores = cores_needed(trainer)
        if needed and given.cpus < cores:
            raise ConfigError(
                f"launcher.cpus={given.cpus}, verl on {needed} GPUs needs {cores} CPU cores: with "
                f"fewer it waits for ever; allowed: null, or {cores} and more"
            )
    if resources(config).gpus and (reason := shortage(config, gpu_gb)):
        raise ConfigError(str(reason))


def idle_gpus(configs: Iterable[RunConfig]) -> Iterator[str]:
    """Name runs that use fewer GPUs than ``launcher.gpus`` requests for each node of their jobs."""
    runs: Counter[tuple[int, int]] = Counter()
    for config in configs:
        requested, used = resources(config).gpus, _derived(config).gpus
        if requested > used:
            runs[requested, used] += 1
    for (requested, used), count in runs.items():
        uses = "uses" if count == 1 else "use"
        what = f"{used} of them on each node: the others" if used else "no GPU: they"
        yield (
            f"launcher.gpus={requested}, and {counted(count, 'run')} {uses} {what} "
            "would be idle and count as GPU-hours; without launcher.gpus, each run gets as many as "
            "it uses"
        )


def _rounded(gb: float) -> int:
    # Rounded up to multiples of 8 GB, so that more runs have equal requests and share an array.
    return 8 * math.ceil(gb / 8)


# A mini run writes 16 MB of logs, diagnostics and checkpoints.
LOGS_GIB = 0.05
BYTES = {"float32": 4, "bfloat16": 2}


def training_gib(config: RunConfig) -> float | None:
    """GiB of weights, gradients, Adam's two moments and, with a KL term, the reference policy.

    A prompting method has weights only. The total is over all GPUs; None if the model's size is
    unknown.
    """
    count = _weights(config.model)
    if count is None:
        return None
    if config.method.kind == "prompted":
        return count * _width(config) / GIB
    # Weights, gradients and two moments; the reference policy of a KL term is one more.
    copies = 4 + (config.trainer.loss.kl_coefficient > 0)
    return count * copies * _width(config) / GIB


def disk_gib(config: RunConfig) -> float | None:
    """GiB on disk of one run: the kept checkpoints, one that is being written, and logs.

    None if the model's size is unknown.
    """
    if config.method.kind == "prompted":
        return LOGS_GIB
    count = _weights(config.model)
    if count is None:
        return None
    # Weights and Adam's two moments; those of a critic, which has the policy's size, as well.
    copies = 3 * (1 + ("value" in required(config.method)))
    checkpoint_gib = count * copies * _width(config) / GIB
    return LOGS_GIB + checkpoint_gib * (config.trainer.keep_checkpoints + 1)


def held_by_host_gib(config: RunConfig) -> float:
    """GiB of weights and optimizer that wait in the memory of a node while its GPUs do other work.

    A lower bound of the memory that a run on GPUs needs; 0 if the model's size is unknown.
    """
    count = _weights(config.model)
    trainer = verl_trainer(config)
    if trainer is None or count is None:
        return 0.0
    held = _offloaded_gib(config, trainer, count)
    if trainer.verl.offload_reference and trainer.loss.kl_coefficient > 0:
        held += BF16 * count / trainer.verl.nodes / GIB
    return held


def _offloaded_gib(config: RunConfig, trainer: VerlTrainer, count: float) -> float:
    """GiB on each node of a model of ``count`` weights, and of a critic, that wait in its memory.

    With LoRA, the frozen weights only: the adapters and their optimizer are small.
    """
    if not trainer.verl.offload_training:
        return 0.0
    per_weight = FLOAT32 if lora_rank(trainer) else ROLLOUT_BYTES
    if "value" in required(config.method):
        per_weight += ROLLOUT_BYTES
    return per_weight * count / trainer.verl.nodes / GIB


def _weights(model: ModelConfig) -> float | None:
    """Number of a model's weights, not less than there are; None if unknown.

    A name rounds: Qwen2.5-7B has 7.6 billion.
    """
    size = shape(model)
    return size.parameters if size is not None else parameters(model)


def all_disk_gib(configs: Iterable[RunConfig]) -> tuple[float, int]:
    """GiB on disk of these runs together, and the number of runs whose model's size is unknown."""
    each = [disk_gib(config) for config in configs]
    known = [gib for gib in each if gib is not None]
    return sum(known), len(each) - len(known)


def _width(config: RunConfig) -> int:
    """Bytes per weight: float32 in training, independent of the type on disk."""
    trains = config.method.kind == "trained"
    if trains or config.trainer.name == "verl" or not isinstance(config.model, HuggingFaceModel):
        return BYTES["float32"]
    return BYTES[config.model.dtype]


def slots_for(configs: Sequence[RunConfig]) -> list[str | None]:
    """Slots of this machine, each as the CUDA_VISIBLE_DEVICES of its runs (see ``Pool``).

    One slot per ``gpus_per_run`` visible GPUs (None: as many as the largest run needs) or, without
    GPUs, per ``machine.threads`` cores. ``launcher.slots``, if given, replaces the number of slots;
    with more slots than GPUs, the slots share them in turn.

    Raises:
        ConfigError: A run needs more GPUs than this machine shows.
    """
    machine = configs[0].machine
    launcher = configs[0].launcher
    if not isinstance(launcher, LocalLauncher):
        raise ConfigError(
            f"launcher.name={launcher.name}: the pool of this machine is launcher=local"
        )
    gpus = visible_gpus() if machine.device != "cpu" else []
    by_size = sorted(configs, key=lambda config: resources(config).all_gpus, reverse=True)
    # Each run is checked: of those that want equally many GPUs, only verl's cannot do without.
    for config in by_size:
        _check_gpus(config, gpus, launcher.gpus_per_run)
    # All slots have the size of the largest run, because any run may get any slot.
    size = launcher.gpus_per_run or max(1, resources(by_size[0]).all_gpus)
    shares = [",".join(gpus[at : at + size]) for at in range(0, len(gpus) - size + 1, size)]
    cores = usable_cores()
    # Without GPUs, the cores limit the number of slots.
    number = min(len(configs), launcher.slots or len(shares) or max(1, cores // machine.threads))
    if not shares:
        return [None] * number
    return [shares[index % len(shares)] for index in range(number)]


def refused_here(configs: Sequence[RunConfig]) -> str | None:
    """Reason why this machine cannot run these configurations; None if it can."""
    try:
        slots_for(configs)
    except ConfigError as error:
        return str(error)
    return None


def too_large(configs: Mapping[str, RunConfig]) -> dict[str, str]:
    """Why runs do not fit the GPUs of this machine, by id; runs that fit are left out.

    If this machine has no GPUs, runs that train in verl are meant for another one, and the paper's
    GPUs are assumed; other runs use the CPU. GPUs of unknown size are not checked.
    """
    gpus = installed_gpus()
    gib = smallest_gib(gpus) if gpus else PAPER_GPU_GIB
    if gib is None:
        return {}
    reasons = {}
    for run_id, config in configs.items():
        on_cpu = not gpus or config.machine.device == "cpu"
        if not resources(config).gpus or (on_cpu and not trains_in_verl(config)):
            continue
        if reason := shortage(config, gib):
            reasons[run_id] = str(reason)
    return reasons


def refused_runs(configs: Mapping[str, RunConfig]) -> set[str]:
    """Ids of the runs that the local launcher, or the runs themselves, would refuse here."""
    if not all(isinstance(config.launcher, LocalLauncher) for config in configs.values()):
        return set()
    if configs and refused_here(list(configs.values())):
        return set(configs)
    return set(too_large(configs))


def gpus_are_assumed(configs: Iterable[RunConfig]) -> bool:
    """True if runs train on GPUs in verl and this machine has none (see ``too_large``)."""
    on_gpus = (trains_in_verl(config) and resources(config).gpus for config in configs)
    return any(on_gpus) and not installed_gpus()


def unchecked_gpus(configs: Iterable[RunConfig]) -> list[str]:
    """Names of the GPUs here of unknown size, if a run asks for a GPU and needs much of it."""
    if not any(_fills_gpu(config) for config in configs):
        return []
    return list(dict.fromkeys(name for name, gib in installed_gpus() if gib is None))


def _fills_gpu(config: RunConfig) -> bool:
    on_cpu = config.machine.device == "cpu" and not trains_in_verl(config)
    large = isinstance(config.model, HuggingFaceModel)
    return large and not on_cpu and resources(config).gpus > 0


def lacks_gpus(config: RunConfig, shown: int) -> bool:
    """True if verl trains the run, and on more GPUs than this machine shows."""
    # vLLM's build for the CPU takes the place of one GPU.
    here = max(shown, int(is_vllm_for_cpu()))
    return trains_in_verl(config) and resources(config).all_gpus > here


def _check_gpus(config: RunConfig, gpus: Sequence[str], given: int | None) -> None:
    """Refuse, before anything starts, a run that would not get all its GPUs."""
    needed = resources(config).all_gpus
    shown = f"this machine shows {counted(len(gpus), 'GPU')} ({', '.join(gpus)})"
    if given is not None and given > len(gpus) > 0:
        raise ConfigError(f"launcher.gpus_per_run={given}: {shown}")
    if not trains_in_verl(config):
        return
    if gpus and given is not None and given < needed:
        raise ConfigError(
            f"launcher.gpus_per_run={given}, and a run with trainer.verl.gpus={needed} needs "
            f"{needed}: leave launcher.gpus_per_run out, or trainer=verl_1gpu"
        )
    if lacks_gpus(config, len(gpus)):
        fitting = "trainer=verl_1gpu (one 80 GB card), " if gpus else ""
        raise ConfigError(
            f"{config.model.name} with method={config.method.name} wants {counted(needed, 'GPU')} "
            f"(trainer.verl.gpus x nodes), {shown if gpus else 'this machine shows none'}; "
            f"here: {fitting}trainer=verl_cpu (for tests); on a cluster: launcher=slurm_a800x4"
        )
