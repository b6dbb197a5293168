"""What a reranker of XLM-R-large's shape costs on a device, and what that makes of a training step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from bench.rerankers import XLM_R_LARGE, Weights, alone_and_together, random_model, seconds_a_pass
from scpo.scoring.cross_encoder import TOKEN_BUCKETS
from scpo.shaping.drive import TextPair

BATCH_TOKENS = 512  # a pass of ours, padding included: conf/scorer/bge_reranker_v2_m3.yaml
DENSE_TOKENS_ON_GPU = 64 * 64  # the paper's 64 pairs a pass; most have at most 64 tokens


def ours(width: int) -> int:
    """Rows of one of our passes on a GPU at this padded length."""
    return BATCH_TOKENS // width


def single(_length: int) -> int:
    """Rows of one of our passes on a CPU."""
    return 1


def papers(_width: int) -> int:
    """Rows of one of the paper's."""
    return 64


LENGTHS_ON_CPU = (32, 64, 128)  # rows and lengths: each measured once takes a core half a minute
ON_CPU = [(rows(length), length) for rows in (single, ours) for length in LENGTHS_ON_CPU]


ON_GPU = [(rows(width), width) for rows in (ours, papers) for width in TOKEN_BUCKETS]


@dataclass(frozen=True)
class Cost:
    """Seconds of a forward pass by (rows, padded length), and how much a score depends on what it is scored with.

    ``memory``: what it takes on a GPU, measured or, without one, counted. ``difference``: largest
        difference between
    pairs scored alone and together; ``flips``: how many change sides.
    """

    device: str
    seconds: dict[tuple[int, int], float]
    memory: str
    difference: float
    flips: int
    compared: int

    def of_pass(self, rows_at: Callable[[int], int], width: int) -> float:
        """On a line between the lengths that were measured in this way; beyond them by the number of tokens."""
        known = {length: seconds for (rows, length), seconds in sorted(self.seconds.items()) if rows == rows_at(length)}
        nearest = min(max(width, min(known)), max(known))
        tokens = 1.0 if nearest == width else rows_at(width) * width / (rows_at(nearest) * nearest)
        return float(np.interp(nearest, sorted(known), [known[length] for length in sorted(known)])) * tokens

    def of_passes(self, rows_at: Callable[[int], int], passes: Counter[int]) -> float:
        """Seconds of all these passes."""
        return sum(count * self.of_pass(rows_at, width) for width, count in passes.items())


def large_cost(weights: Weights) -> Cost:
    """Measure forward passes, ours first: the peak of memory is theirs."""
    on_cpu = weights.device == "cpu"
    if not on_cpu:
        _reset_peak()
    weights.cold(BATCH_TOKENS).score(_pairs(1))  # warm up
    pairs = _pairs(8 if on_cpu else 256)
    difference, flips = alone_and_together(weights.cold(BATCH_TOKENS), pairs)
    seconds, memory = {}, _counted_memory() if on_cpu else ""
    for rows, width in ON_CPU if on_cpu else ON_GPU:
        if not memory and rows == papers(width):
            memory = _peak()
        seconds[rows, width] = seconds_a_pass(weights, rows, width, 1 if on_cpu else 10)
    return Cost(weights.device, seconds, memory, difference, flips, len(pairs))


def _pairs(count: int) -> list[TextPair]:
    """Different pairs of 27 to 57 tokens: of two padded lengths, and a few of 32 fill theirs."""
    places = ["shelf", "drawer", "cabinet", "fridge"]
    texts = [
        f"go to {place} {n} || You arrive at {place} {n}." + " now" * (n - 1) for n in range(1, 17) for place in places
    ]
    return [(texts[i % len(texts)], texts[(7 * i + 1 + i // len(texts)) % len(texts)]) for i in range(count)]


def _reset_peak() -> None:
    import torch

    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def _peak() -> str:
    import torch

    allocated, reserved = torch.cuda.max_memory_allocated() / 1e9, torch.cuda.max_memory_reserved() / 1e9
    return (
        f"Peak GPU memory of ours: {allocated:.2f} GB of tensors, {reserved:.2f} GB with what "
        "torch keeps for later; what CUDA itself takes is not in it."
    )


def _counted_memory() -> str:
    """What the tensors take on a GPU in two bytes a number: all weights, and the most that a batch holds at a time.

    Two layers show the latter: a layer's results are gone when the one after the next begins.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    with torch.device("meta"):
        weights = 2 * sum(weight.numel() for weight in random_model(XLM_R_LARGE).parameters())
    model = random_model({**XLM_R_LARGE, "num_hidden_layers": 2}).to(torch.bfloat16).eval()
    ids = torch.full((ours(TOKEN_BUCKETS[-1]), TOKEN_BUCKETS[-1]), 5)
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    changes = [event.nbytes() for event in trace.profiler.kineto_results.events() if event.name() == "[memory]"]
    return (
        f"Memory on a GPU in fp16, counted and not measured: weights {weights / 1e9:.2f} GB, a "
        f"pass of one pair of {TOKEN_BUCKETS[-1]} tokens {max(accumulate(changes)) / 1e9:.3f} GB; "
        "what CUDA itself takes is not in it."
    )
