"""What one run asks of a machine.

Nodes, GPUs, cores and memory, derived from its method, model and trainer.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scpo.errors import ConfigError
from scpo.memory import parameters, shortage
from scpo.progress import counted
from scpo.schema import CrossEncoderScorer, HuggingFaceModel, RunConfig, SlurmLauncher, VerlTrainer
from scpo.verl_config import cores_needed
from sweeps.compose.gpu_hours import LEGEND, duration, gpu_hours

CPUS_A_GPU = 8  # appendix A.2: 32 cores for 4 GPUs
LEAST_CPUS_OF_VERL = 16  # TransferQueue, the agent loops, the scorer and the engine each hold some
VERL_GB, VERL_GB_PER_BILLION = (
    80,
    32,
)  # estimates: Ray, environments and engine; reference, loading and checkpoints
LOCAL_GB, LOCAL_GB_PER_BILLION = 16, 8  # estimates: one process with a Hugging Face model
SMALL_GB = 4  # a process with a small policy takes 1.3 GiB at its peak, measured at scale=mini
RERANKER_GB = 4  # a large reranker in float32 in a process of its own


@dataclass(frozen=True)
class Resources:
    """Of one run; ``gpus``, ``cpus`` and ``memory_gb`` are those of each node."""

    nodes: int
    gpus: int
    cpus: int
    memory_gb: int

    @property
    def all_gpus(self) -> int:
        """On all nodes."""
        return self.nodes * self.gpus


def resources(config: RunConfig) -> Resources:
    """What a run needs.

    None of it depends on where it runs, but for what the launcher's settings replace.

    A model behind an API needs no GPU; an evaluation and trainer=local one, unless its policy is a
    small one, which trains on the CPU; verl ``gpus`` on each of ``nodes``, and none with its engine
    for the CPU.
    """
    found = _derived(config)
    launcher = config.launcher
    if not isinstance(launcher, SlurmLauncher):
        return found
    gpus = found.gpus if launcher.gpus is None else launcher.gpus
    return Resources(found.nodes, gpus, launcher.cpus or found.cpus, found.memory_gb)


def _derived(config: RunConfig) -> Resources:
    billions = (parameters(config.model) or 0.0) / 1e9
    if config.model.kind == "api":
        return Resources(1, 0, 2, 2 * SMALL_GB)
    if trains_in_verl(config):
        verl = config.trainer.verl  # type: ignore[union-attr]  # as it says
        gpus = 0 if verl.engine == "hf" else verl.gpus
        memory = VERL_GB + VERL_GB_PER_BILLION * billions / verl.nodes
        return Resources(
            verl.nodes, gpus, max(LEAST_CPUS_OF_VERL, CPUS_A_GPU * gpus), _rounded(memory)
        )
    if isinstance(config.model, HuggingFaceModel):
        return Resources(1, 1, CPUS_A_GPU, _rounded(LOCAL_GB + LOCAL_GB_PER_BILLION * billions))
    reranker = RERANKER_GB if isinstance(config.scorer, CrossEncoderScorer) else 0
    on_gpu = config.machine.device == "cuda"
    return Resources(1, int(on_gpu), max(2, config.machine.threads), SMALL_GB + reranker)


def trains_in_verl(config: RunConfig) -> bool:
    """Whether verl runs it.

    A method that only prompts is played by our own evaluation, whatever the trainer.
    """
    return isinstance(config.trainer, VerlTrainer) and config.method.kind == "trained"


def cost_lines(configs: Sequence[RunConfig], todo: Sequence[RunConfig]) -> list[str]:
    """GPU-hours of all runs and of those to start, and what the figures rest on.

    Nothing where there are none.
    """
    total, unknown = gpu_hours(configs, [resources(config).all_gpus for config in configs])
    if not total:
        return []
    rest, _ = gpu_hours(todo, [resources(config).all_gpus for config in todo])
    without = f"; {counted(unknown, 'run')} without a figure" if unknown else ""
    bases = {known.basis for config in configs if (known := duration(config))}
    legend = "; ".join(text for basis, text in LEGEND.items() if basis in bases)
    return [f"about {total:,.0f} GPU-hours, of which {rest:,.0f} still to start{without}", legend]


def check_fits(config: RunConfig, gpu_gb: float) -> None:
    """Reject a run that needs more GPU memory or cores than its job has (:mod:`scpo.memory`).

    Raises:
        ConfigError: It says what takes the memory, or is too few, and what would fit.
    """
    if trains_in_verl(config) and isinstance(config.trainer, VerlTrainer):
        given, needed = resources(config), _derived(config).gpus
        if given.gpus < needed:
            raise ConfigError(
                f"launcher.gpus={given.gpus}, the run takes {needed} of each node "
                "(trainer.verl.gpus); allowed: null, "
                f"or {needed} and more. For one GPU: trainer=verl_1gpu"
            )
        if needed and given.cpus < (cores := cores_needed(config.trainer)):
            raise ConfigError(
                f"launcher.cpus={given.cpus}, verl on {needed} GPUs needs {cores} CPU cores: with "
                "fewer it waits for "
                f"ever; allowed: null, or {cores} and more"
            )
    if resources(config).gpus and (reason := shortage(config, gpu_gb)):
        raise ConfigError(reason)


def _rounded(gb: float) -> int:
    return 8 * math.ceil(gb / 8)
