"""Control: SCPO's credit, in the same amount, where the graph of exact states would put it.

Does it take semantic similarity to find the good steps of failures, or do states that siblings share tell as much?
"""

from dataclasses import replace
from itertools import groupby

import numpy as np

from scpo.advantages.state_graph import distances, state_graph
from scpo.shaping.shaper import Shaped
from scpo.steps import StepBatch


def on_shortest_ways(batch: StepBatch, shaped: Shaped) -> Shaped:
    """The credit of every group, spread evenly over those steps of its failures that led nearer to success.

    Nearer by one: along a shortest way known to the group (``scpo.advantages.state_graph.distances``), among the steps
    that survived the filter. Where its failures have no such step, all surviving ones share the credit. A step may get
    more than 1.

    Raises:
        StepBatchError: The batch has no states.
    """
    graph = state_graph(batch, "state")
    distance_V = distances(graph)
    nearer_N = distance_V[graph.target_N] < distance_V[graph.source_N]
    credit_N = np.zeros(len(batch), dtype=np.float32)
    for _, group in groupby(shaped.matches, key=lambda match: match.task.group):
        matches = list(group)
        rows = np.concatenate([match.failed_row_l for match in matches])
        total = sum(float(match.credit_l.sum(dtype=np.float64)) for match in matches)
        chosen = rows[nearer_N[rows]] if nearer_N[rows].any() else rows
        if len(chosen):
            credit_N[chosen] = total / len(chosen)
    moved = tuple(replace(match, credit_l=credit_N[match.failed_row_l]) for match in shaped.matches)
    return replace(shaped, credit_N=credit_N[batch.timeline.neighbours(0)], matches=moved)
