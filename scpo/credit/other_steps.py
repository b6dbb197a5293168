"""The matcher's credit on other steps than it chose, by the states that siblings share (ours)."""

from dataclasses import replace
from itertools import groupby

import numpy as np

from scpo.advantages.anchors import anchor_groups
from scpo.advantages.state_graph import distances, state_graph
from scpo.shaping.shaper import CreditedStates, Shaped
from scpo.steps import FloatArray, StepBatch


def without_success(batch: StepBatch, shaped: Shaped, states: CreditedStates) -> Shaped:
    """Credit without the steps whose state a success of their group also visited: a control.

    The host estimator compares these with the success's step and may already reward them; the
    remaining ones it compares with no success.

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
    """Credit of every group, spread over the steps of its failures nearer to success: a control.

    Does it take semantic similarity to find the good steps of failures, or do states that siblings
    share suffice? Nearer by one: along a shortest way known to the group
    (``scpo.advantages.state_graph.distances``), among the steps that survived the filter. If its
    failures have no such step, all surviving ones share the credit. A step may get more than 1.

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
    # Written to originals; a copy gets its original's.
    return _credited(shaped, credit_N[batch.timeline.neighbours(0)])


def _credited(shaped: Shaped, credit_N: FloatArray) -> Shaped:
    """The same matches with other credit; the traces keep what the matcher did."""
    matches = tuple(
        replace(match, credit_l=credit_N[match.failed_row_l]) for match in shaped.matches
    )
    return replace(shaped, credit_N=credit_N, matches=matches)
