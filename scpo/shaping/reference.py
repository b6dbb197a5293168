"""The success reference of each group (paper, section 3.2)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np

from scpo.shaping.order import Seed, generator
from scpo.steps import BoolArray, IntArray, StepBatch

Selection = Literal["longest", "shortest", "random"]


@dataclass(frozen=True)
class Trajectories:
    """One entry per trajectory, in ascending order of group and id: group, id, number of steps, success, rows.

    ``row_start_K`` and ``length_K`` cut ``rows``, which holds the rows without copies, each trajectory in time order.
    """

    group_K: IntArray
    id_K: IntArray
    length_K: IntArray
    success_K: BoolArray
    row_start_K: IntArray
    rows: IntArray

    def rows_of(self, k: int) -> IntArray:
        """Rows of trajectory k in time order."""
        return self.rows[self.row_start_K[k] : self.row_start_K[k] + self.length_K[k]]


def trajectories(batch: StepBatch) -> Trajectories:
    """Cut a batch into its trajectories."""
    rows = np.flatnonzero(batch.original_N)
    rows = rows[np.lexsort((batch.step_N[rows], batch.trajectory_N[rows], batch.group_N[rows]))]
    start_K = np.flatnonzero(batch.step_N[rows] == 0)
    first = rows[start_K]
    length_K = np.diff(np.append(start_K, len(rows)))
    return Trajectories(
        batch.group_N[first], batch.trajectory_N[first], length_K, batch.success_N[first], start_K, rows
    )


def active_groups(cut: Trajectories) -> Iterator[tuple[int, IntArray, IntArray]]:
    """``(group, successful, failed)`` for the groups that have both; the last two index ``cut``'s trajectories."""
    for group in np.unique(cut.group_K).tolist():
        members = np.flatnonzero(cut.group_K == group)
        success = cut.success_K[members]
        if success.any() and not success.all():
            yield group, members[success], members[~success]


def select(cut: Trajectories, successful: IntArray, selection: Selection, seed: Seed) -> int:
    """The reference τ* = argmax |τ_i| over the successful siblings: an index of ``cut``.

    Length is the number of environment steps before filtering. ``shortest`` is the paper's ablation; ``random`` is
    ours, seeded by run, training step and group. The paper is silent on ties: the smallest trajectory id wins.
    """
    if selection == "random":
        group = int(cut.group_K[successful[0]])
        return int(generator(seed, "reference", group).choice(successful))
    length = cut.length_K[successful]
    return int(successful[np.argmax(length) if selection == "longest" else np.argmin(length)])
