"""What a run needs of a GPU's memory, estimated from its configuration before anything is loaded.

Estimates, none of them measured: arithmetic over the sizes of a model, with the constants below. What they decide is
refused before Ray, a download or sbatch; a run that only just fits may still be short of memory.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scpo.benchmarks import BENCHMARKS
from scpo.schema import (
    ApiModel,
    ChoiceModel,
    CrossEncoderScorer,
    ModelConfig,
    RunConfig,
    TinyModel,
    VerlTrainer,
    required,
)

GIB = 1 << 30
UPDATE_BYTES = 16  # of a parameter: weights, gradient and Adam's two moments in float32
ROLLOUT_BYTES = 12  # the same without the gradient, which is freed before the rollout
BF16 = 2
LOGIT_BYTES = 7  # of a logit in an update: bfloat16 forward and backward, and the softmax's float32 part by part
CHECKPOINT_BYTES = 2  # of an activation that gradient checkpointing keeps: the input of each layer
CONTEXT_GIB = 1.5  # CUDA contexts and NCCL's buffers of the processes that share a GPU
SCORER_GIB = 3.0  # a reranker of 0.6 billion parameters in float16, its context and a pass of 512 tokens
BATCH_TOKENS = 8192  # of a micro-batch of trainer=local with a language model: as many rows as have those, at least one
FUSED_GIB = 1.0  # fused kernels take the logits in pieces
MEAN_RESPONSE = 150  # tokens, as verl-agent's runs have them


@dataclass(frozen=True)
class Shape:
    """A language model's sizes."""

    parameters: float
    layers: int
    hidden: int
    vocabulary: int


KNOWN = (  # config.json of Qwen2.5's releases
    Shape(0.494e9, 24, 896, 151_936),
    Shape(1.544e9, 28, 1536, 151_936),
    Shape(3.086e9, 36, 2048, 151_936),
    Shape(7.616e9, 28, 3584, 152_064),
    Shape(14.77e9, 48, 5120, 152_064),
    Shape(32.76e9, 64, 5120, 152_064),
)


def parameters(model: ModelConfig) -> float | None:
    """How many parameters a model has: from its shape, its files or its name; None if nothing tells."""
    if isinstance(model, ApiModel):
        return 0
    if isinstance(model, ChoiceModel):
        return model.table_rows * (model.width + 1) + (model.width + 2) * model.hidden_size + model.width + 1
    if isinstance(model, TinyModel):
        per_layer = 4 * model.hidden_size**2 + 3 * model.hidden_size * model.intermediate_size
        return model.layers * per_layer
    sizes = [path.stat().st_size for path in Path(model.path).glob("*.safetensors")]
    if sizes:
        return sum(sizes) / 2  # released in bfloat16
    named = re.search(r"(\d+(?:\.\d+)?)B\b", f"{model.path} {model.name}")
    return float(named.group(1)) * 1e9 if named else None


def shape(model: ModelConfig) -> Shape | None:
    """The sizes of a Hugging Face model: its own config.json, or those of the Qwen2.5 that is nearest in size."""
    count = parameters(model)
    if model.kind != "huggingface" or not count:
        return None
    nearest = min(KNOWN, key=lambda one: abs(one.parameters / count - 1))
    path = Path(model.path) / "config.json"
    if not path.is_file():
        return Shape(max(count, nearest.parameters), nearest.layers, nearest.hidden, nearest.vocabulary)
    read = json.loads(path.read_text())
    return Shape(
        count,
        int(read.get("num_hidden_layers") or nearest.layers),
        int(read.get("hidden_size") or nearest.hidden),
        int(read.get("vocab_size") or nearest.vocabulary),
    )


@dataclass(frozen=True)
class Part:
    """GiB of one GPU that something takes while the policy is updated, and while it plays."""

    name: str
    update_gib: float
    rollout_gib: float


def gpu_table(config: RunConfig, gpu_gib: float) -> list[Part]:
    """What lies on the fullest GPU of a run, the one that the scorer shares; empty where nothing tells.

    Args:
        config: The run.
        gpu_gib: Memory of one GPU, of which the rollout engine is given a share.
    """
    size = shape(config.model)
    if size is None:
        return []
    if isinstance(config.trainer, VerlTrainer) and config.method.kind == "trained":
        parts = list(_verl(config, config.trainer, size, gpu_gib))
    elif config.method.kind == "trained":
        parts = list(_local(config, size))
    else:
        parts = [
            Part("weights", 0.0, BF16 * size.parameters / GIB),
            Part("keys and values", 0.0, _cache_gib(config, size)),
        ]
    if isinstance(config.scorer, CrossEncoderScorer) and config.method.kind == "trained" and config.method.shaper:
        parts.append(Part("scorer", SCORER_GIB, SCORER_GIB))
    return [*parts, Part("CUDA contexts", CONTEXT_GIB, CONTEXT_GIB)]


def needed_gib(parts: list[Part]) -> float:
    """The larger of the two sums."""
    return max(sum(part.update_gib for part in parts), sum(part.rollout_gib for part in parts)) if parts else 0.0


def shortage(config: RunConfig, gpu_gib: float) -> str | None:
    """Why a run does not fit onto its GPUs, what would make it fit included; None: by this estimate it does."""
    parts = gpu_table(config, gpu_gib)
    needed = needed_gib(parts)
    if needed <= gpu_gib:
        return None
    phase = "update" if sum(one.update_gib for one in parts) == needed else "rollout"
    listed = ", ".join(f"{one.name} {_of(one, phase):.1f}" for one in parts if _of(one, phase) >= 0.05)
    return (
        f"{config.model.name} with trainer={config.trainer.name} needs about {needed:.0f} GiB of each GPU in the "
        f"{phase} ({listed}; estimates), a GPU has {gpu_gib:.0f}. {_remedy(config, phase)}"
    )


def engine_memory(config: RunConfig, trainer: VerlTrainer) -> tuple[float, str]:
    """The share of each GPU that the rollout engine may fill, and where it comes from.

    A critic's weights and optimizer stay beside the policy's: the engine then has two thirds of its share.
    """
    if "value" in required(config.method):
        return round(trainer.verl.engine_memory * 2 / 3, 3), "two thirds of trainer.verl.engine_memory, beside a critic"
    return trainer.verl.engine_memory, "trainer.verl.engine_memory"


def _remedy(config: RunConfig, phase: str) -> str:
    if config.method.kind == "prompted":
        return "Fewer rows at once: trainer.rollout_batch=64; or a smaller model"
    if not isinstance(config.trainer, VerlTrainer):
        return "A smaller model, or trainer=verl over several GPUs"
    if phase == "rollout":
        return "A smaller trainer.verl.engine_memory, more trainer.verl.gpus or trainer.verl.offload_training=true"
    if not config.trainer.verl.free_cache:
        return "trainer.verl.free_cache=true lets the engine sleep through the update"
    return (
        "A smaller trainer.micro_batch_rows, more trainer.verl.gpus, or trainer.verl.offload_training=true "
        "(weights and optimizer wait in the host's memory: slower)"
    )


def _of(part: Part, phase: str) -> float:
    return part.update_gib if phase == "update" else part.rollout_gib


def _verl(config: RunConfig, trainer: VerlTrainer, size: Shape, gpu_gib: float) -> Iterator[Part]:
    verl, ranks = trainer.verl, trainer.verl.gpus * trainer.verl.nodes
    models = 2 if "value" in required(config.method) else 1  # the critic is trained beside the policy
    share = models * size.parameters / ranks / GIB
    played = 0.0 if verl.offload_training else ROLLOUT_BYTES * share
    yield Part("weights, gradients, optimizer", UPDATE_BYTES * share, played)
    if trainer.loss.kl_coefficient > 0 and not verl.offload_reference:
        reference = BF16 * size.parameters / ranks / GIB
        yield Part("reference", reference, reference)
    tokens = trainer.micro_batch_rows * _row_tokens(config)
    yield Part("activations", CHECKPOINT_BYTES * tokens * size.hidden * (size.layers + 17) / GIB, 0.0)
    logits = LOGIT_BYTES * tokens * size.vocabulary / GIB
    yield Part("logits", min(logits, FUSED_GIB) if verl.attention == "sdpa" else logits, 0.0)
    engine = engine_memory(config, trainer)[0] * gpu_gib
    yield Part("rollout engine", 0.0 if verl.free_cache else engine, engine)


def _local(config: RunConfig, size: Shape) -> Iterator[Part]:
    """One process: float32 weights under autocast, the reference too, no engine."""
    count = size.parameters / GIB
    yield Part("weights, gradients, optimizer", UPDATE_BYTES * count, ROLLOUT_BYTES * count)
    if config.trainer.loss.kl_coefficient > 0:
        yield Part("reference", 2 * BF16 * count, 2 * BF16 * count)
    tokens = max(_longest(config), BATCH_TOKENS)
    yield Part("activations", CHECKPOINT_BYTES * tokens * size.hidden * (size.layers + 17) / GIB, 0.0)
    yield Part("logits", LOGIT_BYTES * tokens * size.vocabulary / GIB, 0.0)
    yield Part("keys and values", 0.0, _cache_gib(config, size))


def _row_tokens(config: RunConfig) -> int:
    longest = _longest(config)
    return min(longest, BENCHMARKS[config.env.benchmark].mean_prompt_tokens + MEAN_RESPONSE)


def _longest(config: RunConfig) -> int:
    return config.trainer.max_prompt_tokens + config.trainer.max_response_tokens


def _cache_gib(config: RunConfig, size: Shape) -> float:
    """Keys and values of the rows that are sampled at once, at their longest; grouped heads keep about a seventh."""
    per_token = 2 * BF16 * size.layers * max(128, size.hidden // 7)
    rows = config.trainer.rollout_batch
    return rows * (_row_tokens(config) + config.trainer.max_response_tokens) * per_token / GIB
