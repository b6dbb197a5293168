"""Controls that move the matcher's credit to other steps, by states that siblings share (ours)."""

from dataclasses import replace
from itertools import groupby

import numpy as np

from scpo.advantages.anchors import anchor_groups
from scpo.advantages.state_graph import distances, state_graph
from scpo.shaping.shaper import CreditedStates, Shaped
from scpo.steps import FloatArray, StepBatch


def without_success(batch: StepBatch, shaped: Shaped, states: CreditedStates) -> Shaped:
    """Remove the credit of steps whose state a success of their group also visited: a control.

    The host estimator compares these steps with the success's step from the same state and may
    already reward them. The steps that keep their credit are compared with no success.

    Args:
        batch: The steps.
        shaped: The matcher's answer.
        states: The text by which states are compared: ``anchor_without_success`` or
            ``state_without_success``.
    """
    anchor_N = anchor_groups(batch, key="state" if states == "state_without_success" else "anchor")
    passed_A = np.zeros(anchor_N.max(initial=-1) + 1, dtype=bool)
    passed_A[anchor_N[batch.success_N]] = True
    return _credited(shaped, np.where(passed_A[anchor_N], np.float32(0), shaped.credit_N))


def on_shortest_ways(batch: StepBatch, shaped: Shaped) -> Shaped:
    """Spread each group's credit over the steps of its failures that lead nearer to success.

    A control: it shows whether the good steps of failures can be found only by semantic similarity,
    or also by the states that siblings share. A step leads nearer if the distance to success
    (``scpo.advantages.state_graph.distances``) is smaller after it than before; steps that the step
    filter dropped do not count. If no step of a group's failures leads nearer, all their surviving
    steps share the credit. A step may get more than 1.

    Args:
        batch: The steps, with ``state_N``.
        shaped: The matcher's answer, whose amount of credit each group keeps.
    """
    graph = state_graph(batch, "state")
    distance_V = distances(graph)
    nearer_N = distance_V[graph.target_N] < distance_V[graph.source_N]
    credit_N = np.zeros(len(batch), dtype=np.float32)
    # `groupby` without sorting: matches are ordered by group.
    for _, group in groupby(shaped.matches, key=lambda match: match.task.group):
        matches = list(group)
        rows = np.concatenate([match.failed_row_l for match in matches])
        total = sum(float(match.credit_l.sum(dtype=np.float64)) for match in matches)
        chosen = rows[nearer_N[rows]] if nearer_N[rows].any() else rows
        if len(chosen):
            credit_N[chosen] = total / len(chosen)
    # Only rows of originals were written; a copy gets its original's credit.
    return _credited(shaped, credit_N[batch.timeline.neighbours(0)])


def _credited(shaped: Shaped, credit_N: FloatArray) -> Shaped:
    """The same matches with other credit; the traces keep what the matcher did."""
    matches = tuple(
        replace(match, credit_l=credit_N[match.failed_row_l]) for match in shaped.matches
    )
    return replace(shaped, credit_N=credit_N, matches=matches)
