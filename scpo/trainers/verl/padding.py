"""Spread verl's padding rows over the mini-batches, so that all updates have similar sizes.

verl fills a batch with rows that nothing is learned from and leaves them at the end of each rank's
part. All of them then fall into the last mini-batch: of 4,100 rows in mini-batches of 256, that had
four real ones, and with a mean over tokens and Adam made nearly a whole step. verl-agent fills with
copies instead, 128 real rows at least.
"""

from collections.abc import Sequence

import numpy as np


def spread(is_padding: Sequence[bool], *, ranks: int, mini_batch: int) -> list[int]:
    """Order in which mini-batches have equal amounts of padding, up to one row per rank.

    Rank r holds rows r * N / ranks and on, and gives each mini-batch the next ``mini_batch /
    ranks`` of them. Real rows keep their order.

    Args:
        is_padding: One flag for each of N rows, N a multiple of ``mini_batch``.
        ranks: Data-parallel ranks.
        mini_batch: Rows of a mini-batch, over all ranks.
    """
    share = len(is_padding) // ranks
    order = []
    batches = len(is_padding) // mini_batch

    # Padding rows beyond the even share go to the next mini-batches in turn, over all ranks.
    given = 0
    for rank in range(ranks):
        rows = range(rank * share, (rank + 1) * share)
        real = [row for row in rows if not is_padding[row]]
        padding = [row for row in rows if is_padding[row]]
        even, more = divmod(len(padding), batches)
        extra = {(given + turn) % batches for turn in range(more)}
        given += more
        for number in range(batches):
            filled = even + (number in extra)
            kept = mini_batch // ranks - filled
            order += [*real[:kept], *padding[:filled]]
            real = real[kept:]
            padding = padding[filled:]

    return order


def real_rows(is_padding: Sequence[bool], *, ranks: int, mini_batch: int) -> list[int]:
    """Number of real rows in each mini-batch."""
    padding_of_parts = np.reshape(
        is_padding, (ranks, len(is_padding) // mini_batch, mini_batch // ranks)
    )
    return [int(count) for count in mini_batch - padding_of_parts.sum(axis=(0, 2))]
