"""The success reference of each group (paper, section 3.2)."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from scpo.shaping.order import Seed, generator
from scpo.steps import IntArray, Timeline

Selection = Literal["longest", "shortest", "random"]


def active_groups(line: Timeline) -> Iterator[tuple[int, IntArray, IntArray]]:
    """``(group, successful, failed)`` for the groups that have both; the last two are trajectories of ``line``."""
    for group in np.unique(line.group_K).tolist():
        members = np.flatnonzero(line.group_K == group)
        success = line.success_K[members]
        if success.any() and not success.all():
            yield group, members[success], members[~success]


def failed_groups(line: Timeline) -> Iterator[tuple[int, IntArray]]:
    """``(group, trajectories)`` for the groups in which every sibling failed."""
    for group in np.unique(line.group_K).tolist():
        members = np.flatnonzero(line.group_K == group)
        if not line.success_K[members].any():
            yield group, members


def select(line: Timeline, successful: IntArray, selection: Selection, seed: Seed) -> int:
    """The reference τ* = argmax |τ_i| over the successful siblings: a trajectory of ``line``.

    Length is the number of environment steps before filtering. ``shortest`` is the paper's ablation; ``random`` is
    ours, seeded by run, training step and group. The paper is silent on ties: the smallest trajectory id wins.
    """
    if selection == "random":
        group = int(line.group_K[successful[0]])
        return int(generator(seed, "reference", group).choice(successful))
    length = line.length_K[successful]
    return int(successful[np.argmax(length) if selection == "longest" else np.argmin(length)])
