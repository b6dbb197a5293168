"""Processing order of a failed trajectory's steps (paper, section 3.4 and appendix B.2).

The paper's "reordered" is the order that verl's ``balance_batch`` produces: rows are split over R
data-parallel ranks so that all get equal work, each rank keeps its rows in their original order,
and the ranks are concatenated. A trajectory is thus processed in at most R chronological stretches,
and R = 1 changes nothing.
"""

import heapq
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scpo.errors import ConfigError
from scpo.steps import IntArray, StepBatch

Order = Literal["balanced", "chronological", "length", "random"]

# Order for methods without a shaper, whose settings name no order. With anchors=similar their
# groups depend on it, so every trainer takes the order of the paper's four GPUs (verl's balance).
UNSHAPED_ORDER: Order = "balanced"
UNSHAPED_RANKS = 4

Seed = tuple[int, int]
"""Run seed and training step."""


def positions(length_N: Sequence[int] | NDArray[Any], order: Order, ranks: int) -> IntArray:
    """Position of each row in a trainer's batch, for rows in time order: ``StepBatch.position_N``.

    Args:
        length_N: Sequence length of each row, in tokens.
        order: ``balanced``: as verl does for ``ranks`` data-parallel ranks. ``length``: longest
            first, ties by row. ``chronological`` and ``random`` leave the batch as it is:
            :func:`processing_key` computes them without positions.
        ranks: Number of ranks R >= 1.

    Returns:
        ``position_N``, a permutation of ``0..N-1``.

    Raises:
        ConfigError: ``ranks`` is below 1.
    """
    lengths = np.asarray(length_N)
    if ranks < 1:
        raise ConfigError(f"ranks = {ranks}: the batch is balanced over at least one rank")
    rows = np.arange(len(lengths))
    if order == "balanced" and ranks > 1:
        # Within a rank the rows keep their order of the batch, as in verl.
        parts = balanced_partition(lengths.tolist(), ranks)
        rows = np.concatenate([np.sort(part) for part in parts])
    elif order == "length":
        # A control without ranks. Stable, so that rows of equal length keep their order.
        rows = np.argsort(-lengths, kind="stable")

    # Inverse permutation: from the rows in their new order to each row's position.
    position_N = np.empty(len(rows), dtype=np.int64)
    position_N[rows.astype(np.int64)] = np.arange(len(rows))
    return position_N


class _Part(NamedTuple):
    """Rows of one rank.

    Parts compare by total length, then number of rows, then their first row, as in verl: the order
    of the fields is that of the comparison.

    Attributes:
        total: Sum of the lengths.
        size: Number of rows.
        rows: Their indices, in the order in which they were joined.
    """

    total: int
    size: int
    rows: tuple[int, ...]


def balanced_partition(lengths: list[int], ranks: int) -> list[list[int]]:
    """Split rows into ``ranks`` parts of equal size and nearly equal length (Karmarkar-Karp).

    The rows, sorted by length, are cut into tuples of ``ranks`` rows; then the two partial
    solutions with the largest spread are merged, largest part to smallest, until one is left. Ties
    are broken as in verl 0.9.1. verl copies rows until their number divides; here at most ``ranks -
    1`` empty rows fill up the shortest tuple, and part sizes then differ by at most one.

    verl's function is not called, because the local trainer needs the order without verl.

    Args:
        lengths: Sequence length of each row, in tokens (characters with the choice policy).
        ranks: Number of parts R >= 1.

    Returns:
        Row indices of each part, the part with the largest total first.
    """
    # Empty rows, of length 0, sort into the tuple of the shortest rows.
    filled = lengths + [0] * (-len(lengths) % ranks)
    padded = sorted((length, row) for row, length in enumerate(filled))
    heap: list[tuple[tuple[int, int, int, int], list[_Part]]] = []

    # One partial solution for each tuple of rows of similar length: a row for every rank.
    for start in range(0, len(padded), ranks):
        parts = [_Part(length, 1, (row,)) for length, row in padded[start : start + ranks]]
        heapq.heappush(heap, _by_spread(parts))

    # Merged until one solution is left.
    while len(heap) > 1:
        widest = heapq.heappop(heap)[1]
        second = heapq.heappop(heap)[1]
        merged = []
        # Largest part to smallest: both solutions are sorted, largest part first.
        for part, other in zip(widest, second[::-1], strict=True):
            merged.append(
                _Part(part.total + other.total, part.size + other.size, part.rows + other.rows)
            )
        heapq.heappush(heap, _by_spread(merged))

    final = heap[0][1] if heap else [_Part(0, 0, ())] * ranks
    # The empty rows have the highest numbers.
    return [[row for row in part.rows if row < len(lengths)] for part in final]


def _by_spread(parts: list[_Part]) -> tuple[tuple[int, int, int, int], list[_Part]]:
    """Heap entry of a partial solution: a key, largest spread first, and the sorted parts.

    Equal spreads are ordered by their largest parts. The first rows of these differ, so keys never
    tie.
    """
    parts = sorted(parts, reverse=True)
    largest = parts[0]
    return (parts[-1].total - largest.total, -largest.total, -largest.size, -largest.rows[0]), parts


def processing_key(batch: StepBatch, order: Order, seed: Seed) -> IntArray:
    """A number per row that sorts each trajectory's steps into processing order.

    ``balanced`` and ``length`` take the trainer's order of rows: the position of a step is the
    smallest among its row and its copies. ``chronological`` is the step index. ``random`` shuffles
    each trajectory separately.

    Args:
        batch: The steps, with the trainer's ``position_N``.
        order: The setting of the shaper.
        seed: Run seed and training step, read only by ``random``.

    Returns:
        ``key_N``, int64; comparable within a trajectory only.
    """
    line = batch.timeline
    if order == "chronological":
        return line.step_N
    if order == "random":
        # 62 bits fit int64 and draw no ties in practice. Every trajectory has a generator of its
        # own and draws as many keys as the longest needs: its first keys depend neither on other
        # trajectories nor on how many keys follow.
        length = line.row_KT.shape[1]
        keys = [
            generator(seed, "order", id_).integers(1 << 62, size=length)
            for id_ in line.id_K.tolist()
        ]
        return line.column(np.array(keys, dtype=np.int64).reshape(line.row_KT.shape))
    return line.position_N


def descents(batch: StepBatch, key_N: IntArray) -> float:
    """Mean number of times that the step index falls while a trajectory is processed.

    The mean over trajectories; 0 without trajectories. It shows the order that a trainer really
    used: 0 is chronological, and R ranks give at most R - 1.
    """
    line = batch.timeline
    rows = np.flatnonzero(batch.original_N)
    rows = rows[np.lexsort((key_N[rows], line.slot_N[rows]))]
    falls = (np.diff(line.step_N[rows]) < 0) & (np.diff(line.slot_N[rows]) == 0)
    return float(falls.sum() / max(len(line.id_K), 1))


Purpose = Literal["order", "reference", "control", "sample"]
# These numbers are part of the seeds: with other numbers, earlier runs could not be repeated.
_PURPOSES: dict[Purpose, int] = {"order": 0, "reference": 1, "control": 2, "sample": 3}


def generator(seed: Seed, purpose: Purpose, index: int) -> np.random.Generator:
    """Random generator of one trajectory or group in one training step.

    Independent of all other generators and of the batch: what a trajectory draws depends neither on
    other trajectories nor on other draws of the step.

    Args:
        seed: Run seed and training step.
        purpose: What the numbers are for; different purposes draw different numbers.
        index: Trajectory id, or group for ``reference``.
    """
    return np.random.default_rng(
        np.random.SeedSequence((*seed, index), spawn_key=(_PURPOSES[purpose],))
    )
