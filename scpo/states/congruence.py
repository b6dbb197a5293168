"""Congruence closure with union-find: equal actions in equal states lead to equal states."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import numpy as np

from scpo.steps import IntArray, StepBatch

# A bound, not a tuned number: each round extends equality by one step, an ALFWorld episode has at
# most 50 steps, and the rounds end as soon as nothing changes.
MOST_ROUNDS = 50


def closed(batch: StepBatch, group_M: IntArray, seed_M: IntArray) -> IntArray:
    """Congruence closure of given labels.

    Args:
        batch: The steps.
        group_M: The rollout group of each visit: every row's state before its step, then the final
            state of each trajectory (``scpo.states.identity.Visits``).
        seed_M: Initial labels: visits of a group with equal labels are equal states.

    Returns:
        ``label_M``: the smallest visit of each class. Different groups share no label.
    """
    line = batch.timeline
    classes = _Forest(len(group_M))
    classes.join_equal(list(zip(group_M.tolist(), seed_M.tolist(), strict=True)))

    # Siblings begin in the same state.
    first_rows = line.row_KT[:, 0]
    classes.join_equal(batch.group_N[first_rows].tolist(), first_rows.tolist())
    next_N = line.neighbours(1)
    # The final states follow the rows, as in `Visits`.
    target_N = np.where(next_N >= 0, next_N, len(batch) + line.slot_N).tolist()
    for _ in range(MOST_ROUNDS):
        # All keys are computed before the round's joins, so a round extends equality by one step.
        keys = [(classes.root(row), action) for row, action in enumerate(batch.action_N)]
        if not classes.join_equal(keys, target_N):
            break
    return np.fromiter(map(classes.root, range(len(group_M))), dtype=np.int64, count=len(group_M))


class _Forest:
    """Disjoint sets (union-find with path halving).

    Not with union by rank: the root is always the smallest item, so labels do not depend on the
    order of joins.
    """

    def __init__(self, size: int) -> None:
        self._parent = list(range(size))

    def root(self, item: int) -> int:
        """The smallest item of the set of ``item``; halves the path to it on the way."""
        parent = self._parent
        while parent[item] != item:
            parent[item] = parent[parent[item]]
            item = parent[item]
        return item

    def join(self, first: int, second: int) -> bool:
        """Unite the sets of two items; False if they were already the same set."""
        low, high = sorted((self.root(first), self.root(second)))
        self._parent[high] = low
        return low != high

    def join_equal(self, keys: Sequence[Hashable], items: list[int] | None = None) -> bool:
        """Unite the items (by default the indices) of equal keys; False if nothing changed."""
        if items is None:
            items = list(range(len(keys)))
        first: dict[Hashable, int] = {}
        changed = False
        for item, key in zip(items, keys, strict=True):
            changed |= self.join(item, first.setdefault(key, item))
        return changed
