"""The forward passes of a reranker: each pair by itself on a CPU, canonical shapes on a GPU.

The last bits of a row's answer can depend on how many rows its pass has and on its place among them: MKL sums the rows
of a matrix-vector product in different orders, torch's sigmoid takes other code for the last few of many numbers. Only
a pass that holds nothing else keeps that out on every processor; on a CPU it costs little, since it needs no padding
(docs/scoring.md). A GPU takes as long for one row as for many, so there a pass has one of a few padded lengths and for
each a fixed number of rows: the same kernels, as far as that goes, whatever else is scored. Rows that need no padding
go by themselves: where nothing is padded, transformers leaves the attention mask out, and a GPU takes another kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import torch

TOKEN_BUCKETS = (16, 32, 64, 128, 256, 512)
"""Padded lengths in tokens. A row always has the smallest that holds it, whatever else is in the batch."""


class Rows(NamedTuple):
    """One forward pass: ``indices`` of the rows that count; the rest of its ``size`` rows repeat the first of them."""

    width: int
    indices: tuple[int, ...]
    size: int

    def fill(self, sequences: Sequence[Sequence[int]], padding: int, device: str) -> torch.Tensor:
        """Token ids of the rows that count (or anything else that has one number a token), as ``(size, width)``."""
        import torch

        rows = [[*sequence, *[padding] * (self.width - len(sequence))] for sequence in sequences]
        return torch.tensor(rows + rows[:1] * (self.size - len(rows)), device=device)


def single_rows(lengths: Sequence[int]) -> Iterator[Rows]:
    """A pass for each row of these lengths, in tokens, without padding."""
    return (Rows(length, (i,), 1) for i, length in enumerate(lengths))


def canonical_batches(lengths: Sequence[int], rows_at: Callable[[int], int]) -> Iterator[Rows]:
    """Cut rows of these lengths, in tokens, into batches, bucket by bucket, of ``rows_at(padded length)`` rows."""
    buckets: dict[tuple[int, bool], list[int]] = {}
    for i, length in enumerate(lengths):
        width = next((width for width in TOKEN_BUCKETS if width >= length), length)
        buckets.setdefault((width, length == width), []).append(i)
    for (width, _), indices in sorted(buckets.items()):
        size = rows_at(width)
        for start in range(0, len(indices), size):
            yield Rows(width, tuple(indices[start : start + size]), size)
