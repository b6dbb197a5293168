"""State graph of a group's rollouts, shared by the graph-credit estimators."""

from dataclasses import dataclass

import numpy as np

from scpo.advantages.groups import Float64Array, group_ids
from scpo.states.identity import StateIds, StateKey, key_ids, next_state_texts, state_texts
from scpo.steps import BoolArray, IntArray, StepBatch


@dataclass(frozen=True)
class StateGraph:
    """Graph whose nodes are the states of each group and whose edges are the rows.

    ``_V``: nodes of all groups. Nodes are numbered by first appearance in the order of trajectory
    and time, so that neither the numbers nor the last bits of sums over nodes depend on the order
    of the rows.

    Attributes:
        source_N: Node of the state before the step.
        target_N: Node of the state after it. The last step of a success leads to its group's
            success node, which no step leaves. The last step of a failure leads to the state in
            which the rollout ended, from which other rollouts may have continued.
        end_N: True for the last step of a trajectory.
        group_V: Dense id of each node's group.
        success_V: True for success nodes.
    """

    source_N: IntArray
    target_N: IntArray
    end_N: BoolArray
    group_V: IntArray
    success_V: BoolArray

    def __len__(self) -> int:
        return len(self.group_V)


def state_graph(batch: StepBatch, key: StateKey, ids: StateIds | None = None) -> StateGraph:
    """Build the graph of all groups of a batch; copies are edges too.

    The groups are components of one graph, so that one array operation serves all of them. The text
    of the next state is read only for the last steps of failures: any other step leads to the state
    from which the next step starts, or to the success node.

    Args:
        batch: The steps.
        key: Which text of a state is compared.
        ids: State ids of another identity (``anchors.state_ids``); None: states with equal texts
            are equal.

    Raises:
        StepBatchError: ``key`` is ``state``, and the batch has no states.
    """
    group_N = group_ids(batch.group_N)
    next_N = batch.timeline.neighbours(1)
    end_N = next_N < 0

    # Order of trajectory and time, so that node numbers do not depend on the order of rows.
    order = np.lexsort((batch.step_N, batch.trajectory_N))
    # `_M`: the state before every step, then the final states of failures, then those of successes.
    failed = order[end_N[order] & ~batch.success_N[order]]
    if ids is None:
        state_M = key_ids([*state_texts(batch, key)[order], *next_state_texts(batch, key)[failed]])
    else:
        state_M = np.concatenate([ids.source_N[order], ids.target_N[failed]])
    succeeded = order[end_N[order] & batch.success_N[order]]
    # The success node gets a number that no state has.
    place_M = np.concatenate([state_M, np.full(len(succeeded), state_M.max(initial=-1) + 1)])
    row_M = np.concatenate([order, failed, succeeded])
    # Equal states of two groups are two nodes, since the groups may have different tasks.
    node_M = _in_order_of_appearance(group_ids(group_N[row_M], place_M))

    # The first len(order) nodes are sources; the others are targets of last steps.
    source_N = np.zeros(len(batch), np.int64)
    target_N = np.zeros(len(batch), np.int64)
    source_N[order] = node_M[: len(order)]
    target_N[row_M[len(order) :]] = node_M[len(order) :]
    # Any other step leads to the state from which the next one starts.
    target_N[~end_N] = source_N[next_N[~end_N]]

    count = int(node_M.max(initial=-1)) + 1
    group_V = np.zeros(count, np.int64)
    success_V = np.zeros(count, bool)
    group_V[node_M] = group_N[row_M]
    success_V[target_N[succeeded]] = True
    return StateGraph(source_N, target_N, end_N, group_V, success_V)


def _in_order_of_appearance(id_M: IntArray) -> IntArray:
    """Renumber dense ids by their first occurrence."""
    first_V = np.unique(id_M, return_index=True)[1]
    # The argsort of an argsort is the rank.
    rank_V = np.argsort(np.argsort(first_V))
    return rank_V[id_M]


def distances(graph: StateGraph) -> Float64Array:
    """Length of the shortest path from each node to its group's success node, in steps.

    Nodes without a path get the group's largest distance plus 1, which is 1 in a group without a
    success. The distances equal those of GraphGPO's code, a reverse Dijkstra search in which every
    edge costs 1.

    Returns:
        ``distance_V``, whole numbers in float64.
    """
    # Infinity marks nodes from which no path to success was found yet.
    distance_V = np.where(graph.success_V, 0.0, np.inf)
    # Bellman-Ford: one round per step of the longest shortest path. A round is one vectorised pass
    # over the edges of all groups, where Dijkstra's queue would be a Python loop over nodes.
    while True:
        shorter_V = distance_V.copy()
        np.minimum.at(shorter_V, graph.source_N, distance_V[graph.target_N] + 1)
        if np.array_equal(shorter_V, distance_V):
            break
        distance_V = shorter_V
    farthest_G = np.zeros(int(graph.group_V.max(initial=-1)) + 1)
    reachable = np.isfinite(distance_V)
    np.maximum.at(farthest_G, graph.group_V[reachable], distance_V[reachable])
    return np.where(reachable, distance_V, farthest_G[graph.group_V] + 1)
