"""What a reranker of XLM-R-large's shape costs on a device, and what that makes of a training step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import accumulate

from bench.rerankers import XLM_R_LARGE, Weights, alone_and_together, random_model, seconds_a_pass
from scpo.shaping.drive import TextPair

ON_CPU = {8: (32, 64, 128), 64: (64,)}  # padded lengths by rows: each measured once takes a core a minute
ON_GPU = dict.fromkeys((8, 64), (16, 32, 64, 128, 256, 512))


@dataclass(frozen=True)
class Cost:
    """Seconds of a forward pass by (rows, padded length), and how much a score depends on what it is scored with.

    ``memory``: what it takes on a GPU, measured or, without one, counted. ``difference``: largest difference between
    pairs scored alone and together; ``flips``: how many change sides.
    """

    device: str
    seconds: dict[tuple[int, int], float]
    memory: str
    difference: float
    flips: int
    compared: int

    def of_pass(self, rows: int, width: int) -> float:
        """Measured, or by the number of tokens from the nearest length that was measured with as many rows."""
        measured = [known for count, known in self.seconds if count == rows]
        nearest = min(measured, key=lambda known: abs(known - width))
        return self.seconds[rows, nearest] * width / nearest

    def of_passes(self, rows: int, passes: Counter[int]) -> float:
        """Seconds of all these passes."""
        return sum(count * self.of_pass(rows, width) for width, count in passes.items())


def large_cost(weights: Weights, *rows: int) -> Cost:
    """Measure forward passes with these numbers of rows."""
    on_cpu = weights.device == "cpu"
    widths, repetitions = (ON_CPU, 1) if on_cpu else (ON_GPU, 10)
    if not on_cpu:
        _reset_peak()
    weights.cold(rows[0]).score(_pairs(1))  # warm up
    seconds = {
        (count, width): seconds_a_pass(weights.cold(count), width, repetitions)
        for count in rows
        for width in widths[count]
    }
    pairs = _pairs(8 if on_cpu else 256)
    difference, flips = alone_and_together(weights.cold(rows[0]), pairs)
    memory = _counted_memory(rows[0]) if on_cpu else f"Peak GPU memory {_peak_gb():.2f} GB."
    return Cost(weights.device, seconds, memory, difference, flips, len(pairs))


def _pairs(count: int) -> list[TextPair]:
    places = ["shelf", "drawer", "cabinet", "fridge"]
    texts = [f"go to {place} {n} || You arrive at {place} {n}." for n in range(1, 17) for place in places]
    return [(texts[i % len(texts)], texts[(7 * i + 1) % len(texts)]) for i in range(count)]


def _reset_peak() -> None:
    import torch

    torch.cuda.reset_peak_memory_stats()


def _peak_gb() -> float:
    import torch

    return torch.cuda.max_memory_allocated() / 1e9


def _counted_memory(rows: int) -> str:
    """What the tensors take on a GPU in two bytes a number: all weights, and the most that a batch holds at a time.

    Two layers show the latter: a layer's results are gone when the one after the next begins.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    with torch.device("meta"):
        weights = 2 * sum(weight.numel() for weight in random_model(XLM_R_LARGE).parameters())
    model = random_model({**XLM_R_LARGE, "num_hidden_layers": 2}).to(torch.bfloat16).eval()
    ids = torch.full((rows, 512), 5)
    with torch.inference_mode(), profile(activities=[ProfilerActivity.CPU], profile_memory=True) as trace:
        model(input_ids=ids, attention_mask=torch.ones_like(ids))
    changes = [event.nbytes() for event in trace.profiler.kineto_results.events() if event.name() == "[memory]"]
    return (
        f"Memory on a GPU in fp16, counted and not measured: weights {weights / 1e9:.2f} GB, the largest batch "
        f"({rows} rows of 512 tokens) {max(accumulate(changes)) / 1e9:.2f} GB; what CUDA itself takes is not in it."
    )
