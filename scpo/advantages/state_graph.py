"""State graph of a group's rollouts, shared by the graph-credit estimators."""

from dataclasses import dataclass

import numpy as np

from scpo.advantages.groups import Float64Array, group_ids
from scpo.states.identity import StateIds, StateKey, key_ids, next_state_texts, state_texts
from scpo.steps import BoolArray, IntArray, StepBatch


@dataclass(frozen=True)
class StateGraph:
    """Graph whose edges are the rows and whose nodes are states of a group.

    ``_V``: nodes of all groups. Nodes are numbered by the first step that has them, in the order of
    trajectory and time: the numbers, and so the bits of what is computed with them, do not depend
    on the order of the rows.

    Attributes:
        source_N: Node that the step was taken from.
        target_N: Node that it led to. The last step of a success leads to its group's node
            ``success``, which nothing leaves; that of a failure to the state that it ended in,
            which other rollouts may have gone on from.
        end_N: Rows that are the last step of their trajectory.
        group_V: Dense id of each node's group.
        success_V: The nodes ``success``.
    """

    source_N: IntArray
    target_N: IntArray
    end_N: BoolArray
    group_V: IntArray
    success_V: BoolArray

    def __len__(self) -> int:
        return len(self.group_V)


def state_graph(batch: StepBatch, key: StateKey, ids: StateIds | None = None) -> StateGraph:
    """Build the graph of all groups of a batch; copies are edges, too.

    One graph with a component for each group, so that what walks over it is one array operation for
    all groups. Texts of the next state are read only of failures' last steps: elsewhere a step
    leads to what the next one starts from, which is the same state by construction.

    Args:
        batch: The steps.
        key: Which text of a state is compared.
        ids: The states by another identity (``anchors.state_ids``); None: equal texts are one
            state.

    Raises:
        StepBatchError: The batch has no states, and ``key`` asks for them.
    """
    group_N = group_ids(batch.group_N)
    next_N = batch.timeline.neighbours(1)
    end_N = next_N < 0

    # Order of trajectory and time, so that node numbers do not depend on the order of rows.
    order = np.lexsort((batch.step_N, batch.trajectory_N))
    # States to number: what every row leaves, then what the failures ended in.
    failed = order[end_N[order] & ~batch.success_N[order]]
    if ids is None:
        state_M = key_ids([*state_texts(batch, key)[order], *next_state_texts(batch, key)[failed]])
    else:
        state_M = np.concatenate([ids.source_N[order], ids.target_N[failed]])
    succeeded = order[end_N[order] & batch.success_N[order]]
    # The node of success gets a number that no state has.
    place_M = np.concatenate([state_M, np.full(len(succeeded), state_M.max(initial=-1) + 1)])
    row_M = np.concatenate([order, failed, succeeded])
    # Equal states of two groups are two nodes, since the groups may have different tasks.
    node_M = _in_order_of_appearance(group_ids(group_N[row_M], place_M))

    # Nodes back to the rows that they are of.
    source_N = np.zeros(len(batch), np.int64)
    target_N = np.zeros(len(batch), np.int64)
    source_N[order] = node_M[: len(order)]
    target_N[row_M[len(order) :]] = node_M[len(order) :]
    # Within a trajectory, a step leads to the state from which the next one starts.
    target_N[~end_N] = source_N[next_N[~end_N]]

    count = int(node_M.max(initial=-1)) + 1
    group_V = np.zeros(count, np.int64)
    success_V = np.zeros(count, bool)
    group_V[node_M] = group_N[row_M]
    success_V[target_N[succeeded]] = True
    return StateGraph(source_N, target_N, end_N, group_V, success_V)


def _in_order_of_appearance(id_M: IntArray) -> IntArray:
    """Renumber dense ids by their first occurrence; an argsort of an argsort gives the rank."""
    first_V = np.unique(id_M, return_index=True)[1]
    if not len(id_M):
        return id_M
    return np.argsort(np.argsort(first_V))[id_M]


def distances(graph: StateGraph) -> Float64Array:
    """Steps from each node to its group's success by the shortest way that the rollouts know of.

    A node without a way is one step farther than the farthest that has one; in a group without a
    success, where nothing has one, all nodes are 1 away. The same distances as the reverse Dijkstra
    search of GraphGPO's code: every edge costs 1.

    Returns:
        ``distance_V``, float64 but whole numbers: infinity marks unknown ways on the way.
    """
    distance_V = np.where(graph.success_V, 0.0, np.inf)
    # Bellman-Ford: one round per step of the longest shortest way. A round is one vectorised pass
    # over the edges of all groups, where Dijkstra's queue would be a Python loop over nodes.
    while True:
        shorter_V = distance_V.copy()
        np.minimum.at(shorter_V, graph.source_N, distance_V[graph.target_N] + 1)
        if np.array_equal(shorter_V, distance_V):
            break
        distance_V = shorter_V
    # States without a way to success count as one step farther than the farthest known one.
    farthest_G = np.zeros(int(graph.group_V.max(initial=-1)) + 1)
    known = np.isfinite(distance_V)
    np.maximum.at(farthest_G, graph.group_V[known], distance_V[known])
    return np.where(known, distance_V, farthest_G[graph.group_V] + 1)
