"""The success reference of each group (paper, section 3.2)."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from scpo.shaping.order import Seed, generator
from scpo.steps import IntArray, Timeline

Selection = Literal["longest", "shortest", "random"]


def outcomes(line: Timeline) -> Iterator[tuple[int, IntArray, IntArray]]:
    """``(group, successful, failed)`` for all groups; the last two are indices into ``line``.

    By ascending group and, within it, ascending trajectory id, so that the order of the shaper's
    records depends neither on the order of the rows nor on the trainer.
    """
    for group in np.unique(line.group_K).tolist():
        members = np.flatnonzero(line.group_K == group)
        success = line.success_K[members]
        yield group, members[success], members[~success]


def active_groups(line: Timeline) -> Iterator[tuple[int, IntArray, IntArray]]:
    """``(group, successful, failed)`` for the groups with both successes and failures.

    Other groups get no credit from siblings: credit needs a success as reference and a failure.
    """
    return (outcome for outcome in outcomes(line) if len(outcome[1]) and len(outcome[2]))


def failed_groups(line: Timeline) -> Iterator[tuple[int, IntArray]]:
    """``(group, trajectories)`` for the groups in which every sibling failed."""
    return ((group, failed) for group, successful, failed in outcomes(line) if not len(successful))


def select(line: Timeline, successful: IntArray, selection: Selection, seed: Seed) -> int:
    """The reference τ* = argmax |τ_i| over the successful siblings: a trajectory of ``line``.

    Length is the number of environment steps before filtering. ``shortest`` is the paper's
    ablation; ``random`` is ours, seeded by run, training step and group. The paper is silent on
    ties: the smallest trajectory id wins (ledger 12).

    Args:
        line: Trajectories of the batch.
        successful: Indices into it, ascending, at least one.
        selection: The rule.
        seed: Run seed and training step, read only by ``random``.

    Returns:
        Index into ``line``.
    """
    if selection == "random":
        group = int(line.group_K[successful[0]])
        return int(generator(seed, "reference", group).choice(successful))
    length = line.length_K[successful]
    # argmax and argmin take the first of equals, which has the smallest id.
    best = np.argmax(length) if selection == "longest" else np.argmin(length)
    return int(successful[best])
