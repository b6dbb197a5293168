"""What a reranker of XLM-R-large's shape costs on a device, and what that makes of a training step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from bench.rerankers import Weights, alone_and_together, seconds_a_pass
from scpo.shaping.drive import TextPair

ON_CPU = {8: (32, 64, 128), 64: (64,)}  # padded lengths by rows: each measured once takes a core a minute
ON_GPU = dict.fromkeys((8, 64), (16, 32, 64, 128, 256, 512))


@dataclass(frozen=True)
class Cost:
    """Seconds of a forward pass by (rows, padded length), GPU memory in GB, and how much a score depends on others.

    ``difference``: largest difference between pairs scored alone and together; ``flips``: how many change sides.
    """

    device: str
    seconds: dict[tuple[int, int], float]
    memory_gb: float | None
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
    memory = None if on_cpu else _reset_peak()
    weights.cold(rows[0]).score(_pairs(1))  # warm up
    seconds = {
        (count, width): seconds_a_pass(weights.cold(count), width, repetitions)
        for count in rows
        for width in widths[count]
    }
    pairs = _pairs(8 if on_cpu else 256)
    difference, flips = alone_and_together(weights.cold(rows[0]), pairs)
    return Cost(weights.device, seconds, memory and _peak_gb(), difference, flips, len(pairs))


def _pairs(count: int) -> list[TextPair]:
    places = ["shelf", "drawer", "cabinet", "fridge"]
    texts = [f"go to {place} {n} || You arrive at {place} {n}." for n in range(1, 17) for place in places]
    return [(texts[i % len(texts)], texts[(7 * i + 1) % len(texts)]) for i in range(count)]


def _reset_peak() -> bool:
    import torch

    torch.cuda.reset_peak_memory_stats()
    return True


def _peak_gb() -> float:
    import torch

    return torch.cuda.max_memory_allocated() / 1e9
