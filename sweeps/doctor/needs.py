"""What a run needs of a machine, estimated from its configuration. Lower bounds: activations come on top."""

import math

from scpo.memory import GIB, parameters
from scpo.schema import HuggingFaceModel, RunConfig

PROCESS_GIB = 1.4  # peak of a mini run: 0.95 GiB on ALFWorld, 1.3 GiB on WebShop, measured with scale=mini
LOGS_GIB = 0.05  # logs and diagnostics of a mini run: 16 MB with its checkpoints
BYTES = {"float32": 4, "bfloat16": 2}


def training_gib(config: RunConfig) -> float | None:
    """Weights, gradients, Adam's two moments and, with a KL term, the reference: on one device, or over verl's GPUs."""
    count = parameters(config.model)
    if count is None:
        return None
    if config.method.kind == "prompted":
        return count * _width(config) / GIB
    copies = 4 + (config.trainer.loss.kl_coefficient > 0)
    return count * copies * _width(config) / GIB


def checkpoint_gib(config: RunConfig) -> float | None:
    """Weights and Adam's moments."""
    count = parameters(config.model)
    return None if count is None else count * 3 * _width(config) / GIB


def disk_gib(config: RunConfig) -> float | None:
    """Of one run: its checkpoints, one more while it is written, and its logs."""
    if config.method.kind == "prompted":
        return LOGS_GIB
    each = checkpoint_gib(config)
    return None if each is None else LOGS_GIB + each * (config.trainer.keep_checkpoints + 1)


def rounded(gib: float) -> str:
    """For people: 0.3 GiB, 12 GiB."""
    return f"{gib:.1f} GiB" if gib < 10 else f"{math.ceil(gib)} GiB"


def _width(config: RunConfig) -> int:
    """Bytes of a number; verl trains in float32 whatever the weights on disk are."""
    if config.trainer.name == "verl" or not isinstance(config.model, HuggingFaceModel):
        return BYTES["float32"]
    return BYTES[config.model.dtype]
