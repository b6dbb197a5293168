"""Mini-batches for the optimiser, micro-batches for memory, and the optimiser step.

Equal rows are computed once.
"""

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
    """Rows shuffled and cut into equal parts of about ``mini_batch_rows``.

    A short last one would take a full optimiser step on little evidence: the loss is a mean over
    the mini-batch's tokens, and Adam rescales it anyway. verl and verl-agent do not shuffle (ledger
    48).

    Args:
        rows: Number of rows.
        mini_batch_rows: ``trainer.mini_batch_rows``; parts have this many rows, more or less.
        rng: Generator of this training step's order.
    """
    return np.array_split(rng.permutation(rows), max(1, round(rows / mini_batch_rows)))


def micro_batches(
    pairs: Sequence[tuple[Ids, Ids]], rows: Iterable[int], size: int, most_tokens: int | None = None
) -> Iterator[MicroBatch]:
    """Micro-batches of at most ``size`` distinct pairs of similar length, of the given ``rows``.

    ``most_tokens``: bound of a micro-batch's tokens, padding included, though never less than one
    pair; None: no bound.

    Rows are often the same pair: siblings begin with the same prompt, and a small policy's response
    is a single command. The forward pass of a pair is computed once, and each of its rows takes its
    own loss from it.
    """
    members: dict[tuple[Ids, Ids], list[int]] = defaultdict(list)
    for row in rows:
        members[pairs[row]].append(int(row))
    # Ties by content, so that micro-batches do not depend on the order of the rows.
    keys = sorted(members, key=lambda key: (len(key[0]) + len(key[1]), key))
    for part in _parts(keys, size, most_tokens):
        owned = [(place, row) for place, key in enumerate(part) for row in members[key]]
        yield MicroBatch(
            [key[0] for key in part],
            [key[1] for key in part],
            [r for _, r in owned],
            [p for p, _ in owned],
        )


def _parts(
    keys: list[tuple[Ids, Ids]], size: int, most_tokens: int | None
) -> Iterator[list[tuple[Ids, Ids]]]:
    """Runs of ``keys``, each within the token bound once padded to its longest pair."""
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
    """Prompt and response of each generation."""
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
    NaN. The caller sets the gradients to zero before it accumulates the next mini-batch's.
    """
    norm = float(torch.nn.utils.clip_grad_norm_(model.parameters(), gradient_clip))
    if math.isfinite(norm):
        optimizer.step()
    else:
        logger.warning("the gradient's norm is %s: this mini-batch changes no weight", norm)
    return norm
