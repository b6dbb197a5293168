"""GPU memory that a run needs, estimated from its configuration before anything is loaded.

These are estimates, not measurements: arithmetic over the sizes of a model, with the constants
below. Runs that do not fit are rejected before Ray, a download or sbatch; a run that only just fits
may still run out of memory.
"""

import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scpo.benchmarks import BENCHMARKS
from scpo.schema.method import required
from scpo.schema.model import ApiModel, ChoiceModel, ModelConfig, TinyModel
from scpo.schema.run import RunConfig
from scpo.schema.scorer import CrossEncoderScorer
from scpo.schema.trainer import VerlTrainer

GIB = 1 << 30

# Bytes of a parameter: weight, gradient and Adam's two moments in float32, also under bfloat16
# autocast.
UPDATE_BYTES = 16

# Bytes of a parameter without its gradient, which is freed before the rollout.
ROLLOUT_BYTES = 12

# Bytes of a number in bfloat16: frozen weights, gathered weights, keys and values.
BF16 = 2
FLOAT32 = 4

# Bytes per logit in an update: bfloat16 forward and backward, and parts of the softmax in float32.
LOGIT_BYTES = 7

# Bytes of an activation that gradient checkpointing keeps: the input of each layer, in bfloat16.
CHECKPOINT_BYTES = 2

# CUDA contexts of the processes that share a GPU.
CONTEXT_GIB = 1.5

# Buffers of NCCL's communicators: FSDP's ranks, the engine's, the weight sync's.
NCCL_GIB = 1.0

# The buckets in which the engine receives the new weights.
SYNC_GIB = 1.0

# A reranker of 0.6 billion parameters in float16, its context and its passes.
SCORER_GIB = 3.0

# Tokens of a micro-batch of trainer=local; a longer row is a micro-batch by itself.
BATCH_TOKENS = 8192

# Fused kernels take the logits in pieces, so their peak does not grow with the micro-batch.
FUSED_GIB = 1.0

# Blocks that fit no later request, which PyTorch's allocator keeps: share of the memory that an
# update allocates and frees again (gathered weights, activations, logits).
FRAGMENT_SHARE = 0.05

# Tokens of a mean response (thought and action), as verl-agent's runs have them.
MEAN_RESPONSE = 150

# Memory of an A800 of 80 GB (appendix A.2), as CUDA reports it.
PAPER_GPU_GIB = 79.15

# A run should stay below this share of a GPU: all of these figures are estimates.
FULL_SHARE = 0.9

# Share of engine_memory that is left if a critic shares the GPU with the policy.
CRITIC_SHARE = 0.75


@dataclass(frozen=True)
class Shape:
    """A language model's sizes, as far as memory depends on them.

    Attributes:
        parameters: Number of all weights, embeddings included.
        layers: Number of transformer layers.
        hidden: Width of the residual stream.
        vocabulary: Rows of the output layer, padding of the vocabulary included.
    """

    parameters: float
    layers: int
    hidden: int
    vocabulary: int


# From config.json of Qwen2.5's releases.
KNOWN = (
    Shape(0.494e9, 24, 896, 151_936),
    Shape(1.544e9, 28, 1536, 151_936),
    Shape(3.086e9, 36, 2048, 151_936),
    Shape(7.616e9, 28, 3584, 152_064),
    Shape(14.77e9, 48, 5120, 152_064),
    Shape(32.76e9, 64, 5120, 152_064),
)


def parameters(model: ModelConfig) -> float | None:
    """Number of parameters of a model, from its shape, files or name; None if unknown.

    Nothing is loaded or downloaded: the doctor and the launchers call this for models that are not
    on this machine. A tiny model is counted without its embeddings, whose number of rows is known
    only after the tokenizer has been trained.
    """
    if isinstance(model, ApiModel):
        return 0
    if isinstance(model, ChoiceModel):
        # ScoreNet of scpo.policies.choice.policy: embedding and weight of each feature, two layers.
        return (
            model.table_rows * (model.width + 1)
            + (model.width + 2) * model.hidden_size
            + model.width
            + 1
        )
    if isinstance(model, TinyModel):
        # Four projections of the attention, three of Qwen2's gated feed-forward layer.
        per_layer = 4 * model.hidden_size**2 + 3 * model.hidden_size * model.intermediate_size
        return model.layers * per_layer

    sizes = [path.stat().st_size for path in Path(model.path).glob("*.safetensors")]
    if sizes:
        # Models are released in bfloat16.
        return sum(sizes) / 2
    named = re.search(r"(\d+(?:\.\d+)?)B\b", f"{model.path} {model.name}")
    return float(named.group(1)) * 1e9 if named else None


def shape(model: ModelConfig) -> Shape | None:
    """Sizes of a Hugging Face model: from its config.json, or of the Qwen2.5 nearest in size.

    None for models without a GPU estimate (API, choice, tiny) and for names without a size.
    """
    count = parameters(model)
    if model.kind != "huggingface" or not count:
        return None

    # By ratio, so that a difference of 10 % counts the same at 0.5B and at 32B.
    nearest = min(KNOWN, key=lambda known: abs(known.parameters / count - 1))
    path = Path(model.path) / "config.json"
    if not path.is_file():
        # A name rounds (Qwen2.5-7B has 7.6e9), and an estimate must not be too small.
        return Shape(
            max(count, nearest.parameters), nearest.layers, nearest.hidden, nearest.vocabulary
        )
    read = json.loads(path.read_text())
    return Shape(
        count,
        int(read.get("num_hidden_layers") or nearest.layers),
        int(read.get("hidden_size") or nearest.hidden),
        int(read.get("vocab_size") or nearest.vocabulary),
    )


@dataclass(frozen=True)
class Part:
    """Memory that one use takes on a GPU during the update of the policy and during the rollout.

    The two phases never overlap, and each frees what the other does not need: a GPU must hold the
    larger of the two sums, not their total.
    """

    name: str
    update_gib: float
    rollout_gib: float


def gpu_table(config: RunConfig, gpu_gib: float) -> list[Part]:
    """Memory of the fullest GPU of a run, which the scorer shares; empty if the size is unknown.

    Args:
        config: The run.
        gpu_gib: Memory of one GPU, of which the rollout engine fills a share.
    """
    size = shape(config.model)
    if size is None:
        return []
    if isinstance(config.trainer, VerlTrainer) and config.method.kind == "trained":
        rows = micro_batch(config, config.trainer)[0]
        return _verl_table(config, config.trainer, size, rows=rows, gpu_gib=gpu_gib)

    # One process: it trains, or it only prompts a frozen model, which needs no optimizer.
    if config.method.kind == "trained":
        parts = list(_local(config, size))
    else:
        parts = [
            Part("weights", 0.0, BF16 * size.parameters / GIB),
            Part("keys and values", 0.0, _cache_gib(config, size)),
        ]
    return [*parts, *_scorer(config), Part("CUDA contexts", CONTEXT_GIB, CONTEXT_GIB)]


def needed_gib(parts: list[Part]) -> float:
    """GiB that one GPU must hold: the larger of the sums of the two phases; 0 without parts."""
    if not parts:
        return 0.0
    return max(sum(part.update_gib for part in parts), sum(part.rollout_gib for part in parts))


@dataclass(frozen=True)
class Shortage:
    """What does not fit onto the GPUs of a run, and what would fit; ``str`` has both sentences."""

    what: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.what}. {self.remedy}"


def shortage(config: RunConfig, gpu_gib: float) -> Shortage | None:
    """Explain why a run does not fit onto its GPUs and what would fit; None if it should fit."""
    parts = gpu_table(config, gpu_gib)
    needed = needed_gib(parts)
    if needed <= gpu_gib:
        return None
    phase = _larger_phase(parts)
    # Parts below 0.05 GiB would read as 0.0.
    listed = ", ".join(
        f"{part.name} {_phase_gib(part, phase):.1f}"
        for part in parts
        if _phase_gib(part, phase) >= 0.05
    )
    what = (
        f"{config.model.name} with trainer={config.trainer.name} needs about {needed:.0f} GiB of "
        f"each GPU in the {phase} ({listed}; estimates), a GPU has {gpu_gib:.0f}"
    )
    return Shortage(what, _remedy(config, phase, parts, gpu_gib))


def remedy(config: RunConfig, parts: list[Part], gpu_gib: float) -> str:
    """Settings that lower the need of the phase that decides (see ``needed_gib``).

    Args:
        config: The run.
        parts: Its memory.
        gpu_gib: GiB below which the need should be.
    """
    return _remedy(config, _larger_phase(parts), parts, gpu_gib)


def _larger_phase(parts: list[Part]) -> str:
    update = sum(part.update_gib for part in parts)
    return "update" if update == needed_gib(parts) else "rollout"


def engine_memory(config: RunConfig, trainer: VerlTrainer) -> tuple[float, str]:
    """Share of each GPU that the rollout engine may fill, and the setting that it comes from.

    A critic's weights and optimizer are on the GPU, too: then the share is three quarters of the
    configured one.
    """
    share = trainer.verl.engine_memory
    if "value" in required(config.method):
        return (
            round(CRITIC_SHARE * share, 3),
            "three quarters of trainer.verl.engine_memory, with a critic",
        )
    return share, "trainer.verl.engine_memory"


def micro_batch(config: RunConfig, trainer: VerlTrainer) -> tuple[int, str]:
    """Rows of a micro-batch on one GPU, and the source of the number.

    The greatest common divisor of ``trainer.micro_batch_rows`` and a rank's share of the
    mini-batch. With verl it is halved until a micro-batch of the longest rows takes at most
    ``FULL_SHARE`` of one of the paper's GPUs, which changes no result: verl's loss is the token
    mean over the mini-batch. verl-agent averages over micro-batches, so it is not halved there.
    """
    # The configuration is refused if the ranks cannot share a mini-batch evenly.
    share = trainer.mini_batch_rows // (trainer.verl.gpus * trainer.verl.nodes)

    # verl asserts that the micro-batch divides a rank's share of the mini-batch.
    rows = math.gcd(share, trainer.micro_batch_rows)
    source = "trainer.micro_batch_rows, dividing a rank's share"
    size = shape(config.model)
    if size is None or trainer.name != "verl":
        return rows, source

    # Compared with the paper's GPU and not this machine's: the settings of a run, and so its
    # records, must not depend on where they are composed.
    fitting = rows
    while fitting % 2 == 0 and _update_gib(config, trainer, size, fitting) > _limit_gib():
        fitting //= 2
    # If even the smallest does not fit, halving does not help, and `shortage` refuses the run.
    fits = _update_gib(config, trainer, size, fitting) <= _limit_gib()
    if fitting == rows or not fits:
        return rows, source
    return fitting, f"{source}, halved from {rows} so that the longest rows fit"


def _limit_gib() -> float:
    return FULL_SHARE * PAPER_GPU_GIB


def _update_gib(config: RunConfig, trainer: VerlTrainer, size: Shape, rows: int) -> float:
    parts = _verl_table(config, trainer, size, rows=rows, gpu_gib=PAPER_GPU_GIB)
    return sum(part.update_gib for part in parts)


def _remedy(config: RunConfig, phase: str, parts: list[Part], gpu_gib: float) -> str:
    """Settings that lower the need of the phase that does not fit."""
    if config.method.kind == "prompted":
        return "Fewer rows at once: trainer.rollout_batch=64; or a smaller model"
    if not isinstance(config.trainer, VerlTrainer):
        return "A smaller model, or trainer=verl over several GPUs"
    verl = config.trainer.verl
    if phase == "update" and not verl.free_cache:
        return "trainer.verl.free_cache=true lets the engine sleep through the update"
    offload = ""
    if _fits_offloaded(config, config.trainer, gpu_gib):
        offload = (
            ", or trainer.verl.offload_training=true (weights and optimizer wait in the host's "
            "memory)"
        )
    if phase == "rollout":
        return f"A smaller trainer.verl.engine_memory or more trainer.verl.gpus{offload}"
    # A smaller micro-batch lowers only these parts.
    of_rows = ("activations", "logits", "fragments")
    if sum(part.update_gib for part in parts if part.name not in of_rows) > gpu_gib:
        return (
            "More trainer.verl.gpus, among which weights, gradients and optimizer are divided, or "
            f"a smaller model, or LoRA by trainer.verl.overrides{offload}"
        )
    return f"A smaller trainer.micro_batch_rows, or more trainer.verl.gpus{offload}"


def _fits_offloaded(config: RunConfig, trainer: VerlTrainer, gpu_gib: float) -> bool:
    """True if the run would fit with ``offload_training``, which lowers the rollout's need.

    The update needs the policy on the GPU: only a critic's part can wait elsewhere meanwhile.
    """
    verl = trainer.verl.model_copy(update={"offload_training": True})
    offloaded = config.model_copy(update={"trainer": trainer.model_copy(update={"verl": verl})})
    return needed_gib(gpu_table(offloaded, gpu_gib)) <= gpu_gib


def _phase_gib(part: Part, phase: str) -> float:
    if phase == "update":
        return part.update_gib
    return part.rollout_gib


def _verl_table(
    config: RunConfig, trainer: VerlTrainer, size: Shape, *, rows: int, gpu_gib: float
) -> list[Part]:
    """Memory of a GPU that the policy, critic and engine of verl share with the scorer.

    Args:
        config: The run.
        trainer: Its trainer, already known to be verl or verl-agent.
        size: Sizes of the policy; a critic has the same.
        rows: Rows of a micro-batch.
        gpu_gib: Memory of one GPU, of which the engine fills a share.
    """
    verl = trainer.verl
    ranks = trainer.verl.gpus * trainer.verl.nodes
    kept = list(_kept_by_verl(config, trainer, size, ranks))
    freed = list(_freed_after_an_update(config, trainer, size, rows))
    fragments = FRAGMENT_SHARE * sum(part.update_gib for part in freed)
    # vLLM fills its whole share with cache blocks, needed or not; only with free_cache does it give
    # them back before the update.
    engine = engine_memory(config, trainer)[0] * gpu_gib
    return [
        *kept,
        *freed,
        Part("fragments", fragments, 0.0),
        Part("rollout engine", 0.0 if verl.free_cache else engine, engine),
        Part("weight sync", 0.0, SYNC_GIB),
        *_scorer(config),
        Part("CUDA contexts", CONTEXT_GIB, CONTEXT_GIB),
        *([Part("NCCL", NCCL_GIB, NCCL_GIB)] if ranks > 1 else []),
    ]


def _kept_by_verl(
    config: RunConfig, trainer: VerlTrainer, size: Shape, ranks: int
) -> Iterator[Part]:
    """Weights and optimizer states, which are divided among the ranks."""
    verl = trainer.verl
    share = size.parameters / ranks / GIB
    offloaded = verl.offload_training
    rank = lora_rank(trainer)
    # With LoRA, verl keeps the frozen weights in float32, too (its `model_dtype`).
    trained = _adapter_parameters(size, rank) / ranks / GIB if rank else share
    frozen = FLOAT32 * share if rank else 0.0
    # Policy and critic are updated one after the other, and each frees its gradients at its end.
    yield Part(
        "weights, gradients, optimizer",
        UPDATE_BYTES * trained + frozen,
        0.0 if offloaded else ROLLOUT_BYTES * trained + frozen,
    )
    if "value" in required(config.method):
        waiting = 0.0 if offloaded else ROLLOUT_BYTES * share
        yield Part("critic's weights, optimizer", waiting, waiting)
    # With LoRA, the policy without its adapters is the reference.
    if trainer.loss.kl_coefficient > 0 and not verl.offload_reference and not rank:
        yield Part("reference", BF16 * share, BF16 * share)


def lora_rank(trainer: VerlTrainer) -> int:
    """Rank of the adapters that verl trains in place of the policy's weights; 0 without LoRA."""
    rank = "0"
    for override in trainer.verl.overrides:
        key, _, value = override.lstrip("+").partition("=")
        if key == "actor_rollout_ref.model.lora_rank":
            rank = value
    # verl refuses other values when it reads them.
    return int(rank) if rank.isdecimal() else 0


def _adapter_parameters(size: Shape, rank: int) -> float:
    """Parameters of adapters of all linear layers, which is verl's default; an upper bound.

    An adapter has ``rank`` times the inputs and outputs of its matrix. Those of the attention have
    at most 8 times the hidden width together. The three of the feed-forward layer have three times
    the hidden and the intermediate width, and no more than the layer's weights over the hidden one.
    """
    layer = (size.parameters - size.vocabulary * size.hidden) / size.layers
    return rank * size.layers * (11 * size.hidden + layer / size.hidden)


def _freed_after_an_update(
    config: RunConfig, trainer: VerlTrainer, size: Shape, rows: int
) -> Iterator[Part]:
    """Memory of one micro-batch whose rows are all as long as the longest on record."""
    layer = (size.parameters - size.vocabulary * size.hidden) / size.layers
    head = size.vocabulary * size.hidden
    # Two layers at a time in bfloat16, the output layer with its gradient in float32: FSDP
    # prefetches the next layer while it computes one.
    gathered = BF16 * 2 * layer + (BF16 + FLOAT32) * head
    yield Part("weights gathered by FSDP", gathered / GIB, 0.0)
    tokens = rows * _longest_recorded_tokens(config)
    yield Part("activations", _activations_gib(size, tokens), 0.0)
    logits = LOGIT_BYTES * tokens * size.vocabulary / GIB
    fused = trainer.verl.attention == "sdpa"
    yield Part("logits", min(logits, FUSED_GIB) if fused else logits, 0.0)


def _activations_gib(size: Shape, tokens: int) -> float:
    """GiB of the activations of a micro-batch of ``tokens`` tokens with gradient checkpointing.

    The input of each layer, and all activations of the one layer that the backward pass recomputes:
    34 bytes for each token and hidden unit (arXiv 2205.05198, equation 1), which is 17 values in
    half precision. Its attention scores are left out, since no kernel in use stores them.
    """
    return CHECKPOINT_BYTES * tokens * size.hidden * (size.layers + 17) / GIB


def _scorer(config: RunConfig) -> list[Part]:
    """Part of a reranker on the policy's GPU; other scorers are small or run on the CPU."""
    trained = config.method.kind == "trained"
    if trained and isinstance(config.scorer, CrossEncoderScorer) and config.trained.shaper:
        return [Part("scorer", SCORER_GIB, SCORER_GIB)]
    return []


def _local(config: RunConfig, size: Shape) -> Iterator[Part]:
    """Memory of the one process of trainer=local: float32 weights under autocast, no engine."""
    count = size.parameters / GIB
    yield Part("weights, gradients, optimizer", UPDATE_BYTES * count, ROLLOUT_BYTES * count)
    if config.trainer.loss.kl_coefficient > 0:
        # A copy of the policy, and so in float32.
        yield Part("reference", FLOAT32 * count, FLOAT32 * count)
    # A micro-batch has at least one row, even if that row exceeds BATCH_TOKENS.
    tokens = max(_longest_allowed_tokens(config), BATCH_TOKENS)
    yield Part("activations", _activations_gib(size, tokens), 0.0)
    yield Part("logits", LOGIT_BYTES * tokens * size.vocabulary / GIB, 0.0)
    yield Part("keys and values", 0.0, _cache_gib(config, size))


def _mean_tokens(config: RunConfig) -> int:
    """Tokens of a mean row: prompt and response, within the configured limits."""
    mean = BENCHMARKS[config.env.benchmark].mean_prompt_tokens + MEAN_RESPONSE
    return min(mean, _longest_allowed_tokens(config))


def _longest_recorded_tokens(config: RunConfig) -> int:
    """Tokens of the longest recorded prompt, with a response of the configured limit."""
    recorded = BENCHMARKS[config.env.benchmark].longest_prompt_tokens
    prompt = min(recorded, config.trainer.max_prompt_tokens)
    return prompt + config.trainer.max_response_tokens


def _longest_allowed_tokens(config: RunConfig) -> int:
    """Tokens of a row whose prompt and response both have the configured limit."""
    return config.trainer.max_prompt_tokens + config.trainer.max_response_tokens


def _cache_gib(config: RunConfig, size: Shape) -> float:
    """GiB of cached keys and values for the rows sampled at once.

    A row is estimated as a mean row plus a response of the configured limit. Grouped-query
    attention keeps about a seventh of the heads: 4 of 28 in Qwen2.5-7B, and at least two heads of
    64 (Qwen2.5-0.5B).
    """
    # Twice: keys and values.
    per_token = 2 * BF16 * size.layers * max(128, size.hidden // 7)
    tokens = _mean_tokens(config) + config.trainer.max_response_tokens
    return config.trainer.rollout_batch * tokens * per_token / GIB
