"""Mini-batches for the optimiser, micro-batches for memory, and the optimiser step."""

from __future__ import annotations

import logging
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from scpo.generation import Generation, Ids

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class MicroBatch:
    """Distinct (prompt, response) pairs, and the rows that they belong to.

    Attributes:
        prompts: Token ids of each pair's prompt.
        responses: Token ids of each pair's response.
        rows: All rows that have one of these pairs.
        pair_of: Index in ``prompts`` of each of ``rows``.
    """

    prompts: list[Ids]
    responses: list[Ids]
    rows: list[int]
    pair_of: list[int]


def mini_batches(
    rows: int, mini_batch_rows: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Shuffle rows and cut them into parts of equal size, about ``mini_batch_rows``.

    The parts are equal because a short last mini-batch would make an optimiser step of full size
    from few rows: the loss is a mean over the mini-batch's tokens, and Adam rescales gradients.
    verl and verl-agent do not shuffle (ledger 48).

    Args:
        rows: Number of rows.
        mini_batch_rows: Approximate number of rows of a part (``trainer.mini_batch_rows``).
        rng: Generator of this training step's order.

    Returns:
        The row indices of each mini-batch.
    """
    return np.array_split(rng.permutation(rows), max(1, round(rows / mini_batch_rows)))


def micro_batches(
    pairs: Sequence[tuple[Ids, Ids]], rows: Iterable[int], size: int, most_tokens: int | None = None
) -> Iterator[MicroBatch]:
    """Cut rows into micro-batches of distinct (prompt, response) pairs of similar length.

    Many rows have the same pair: siblings begin with the same prompt, and a small policy's response
    is a single command. The forward pass of a pair is computed once, and each of its rows computes
    its own loss from it.

    Args:
        pairs: Prompt and response of every row of the training batch.
        rows: The rows to cut.
        size: Largest number of distinct pairs of a micro-batch.
        most_tokens: Largest number of tokens of a micro-batch, padding included; a longer pair is a
            micro-batch of its own. None: no bound.
    """
    members: dict[tuple[Ids, Ids], list[int]] = defaultdict(list)
    for row in rows:
        members[pairs[row]].append(int(row))
    # Ties by content, so that micro-batches do not depend on the order of the rows.
    keys = sorted(members, key=lambda key: (len(key[0]) + len(key[1]), key))
    for part in _parts(keys, size, most_tokens):
        part_rows: list[int] = []
        pair_of: list[int] = []
        for pair, key in enumerate(part):
            part_rows += members[key]
            pair_of += [pair] * len(members[key])
        yield MicroBatch(
            [prompt for prompt, _ in part],
            [response for _, response in part],
            part_rows,
            pair_of,
        )


def _parts(
    keys: list[tuple[Ids, Ids]], size: int, most_tokens: int | None
) -> Iterator[list[tuple[Ids, Ids]]]:
    """Cut ``keys`` into consecutive parts that respect both bounds, padding included."""
    part: list[tuple[Ids, Ids]] = []
    longest = (0, 0)
    for prompt, response in keys:
        wider = (max(longest[0], len(prompt)), max(longest[1], len(response)))
        # Prompts are padded on the left and responses on the right, each to its longest.
        too_many = most_tokens is not None and (len(part) + 1) * sum(wider) > most_tokens
        if part and (len(part) == size or too_many):
            yield part
            part = []
            wider = (len(prompt), len(response))
        part.append((prompt, response))
        longest = wider
    if part:
        yield part


def token_pairs(generations: Sequence[Generation]) -> list[tuple[Ids, Ids]]:
    """Token ids of the prompt and of the response of each generation."""
    return [(generation.prompt_ids, generation.response_ids) for generation in generations]


def response_mask(generations: Sequence[Generation]) -> NDArray[np.bool_]:
    """True on response tokens, shape (N, L), L the longest response."""
    length_N = np.array([len(generation.response_ids) for generation in generations])
    return np.arange(length_N.max(initial=0)) < length_N[:, None]


def descend(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, gradient_clip: float
) -> float:
    """Clip the accumulated gradient and take one optimiser step; returns the unclipped norm.

    A gradient that is not finite is dropped, as in verl: a step along it would make every weight
    NaN. The caller must set gradients to zero before it accumulates those of the next mini-batch.
    """
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), gradient_clip))
    if math.isfinite(norm):
        optimizer.step()
    else:
        logger.warning("the gradient's norm is %s: this mini-batch changes no weight", norm)
    return norm
