"""CRBC, cross-rollout Bellman closure: exact values of the states that a group visits.

A group's rollouts are merged into one empirical Markov chain over the states that they visit. Its
Bellman equation is solved exactly, so that a failure's step into a state from which a sibling won
gains value although its own rollout lost.

No code was published. The equations of its paper ("Cross-Rollout Bellman Closure") are known to us
only through other publications.
"""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat

from scpo.advantages.anchors import StateSettings, state_ids
from scpo.advantages.estimator import Estimator
from scpo.advantages.groups import Float64Array, as_advantage, group_ids, moments
from scpo.advantages.grpo import episode_advantage
from scpo.advantages.state_graph import StateGraph, state_graph
from scpo.states.identity import key_ids
from scpo.steps import FloatArray, IntArray, StepBatch


class CrbcSettings(StateSettings):
    """Settings of CRBC.

    Attributes:
        omega_episode: w_G, weight of the outcome term.
        omega: w_S, weight of the step term; 5 in its paper.
        beta: Discount of a step in V and Q, in place of ``gamma``. Below 1, which makes the
            equation of ``closure`` solvable.
        deviation_floor: Least divisor of the step term, in the unit of V. If all actions of a state
            are worth nearly the same, σ is near 0 and would magnify their differences.
        depth: Number of backups of values across rollouts; ``closure`` is their limit. At depth 0 a
            value is the mean outcome of the rollouts that visited the state.
    """

    name: Literal["crbc"]
    omega_episode: NonNegativeFloat
    omega: NonNegativeFloat
    beta: Annotated[float, Field(gt=0, lt=1)]
    deviation_floor: PositiveFloat
    depth: NonNegativeInt | Literal["closure"]


def crbc(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: CrbcSettings
) -> FloatArray:
    """A = w_G A_E + w_S A_S, A_S = [at least two actions at s] (Q(s, a) - V(s)) / max(σ(s), floor).

    V and Q as in ``state_values`` and ``action_values``; σ(s)² = Σ_a μ(a|s) (Q(s, a) - V(s))²; the
    floor is ``deviation_floor``. Only the outcome term reads the penalty of an invalid action (the
    paper is silent; ledger 44). Step returns and bonus are not read, so CRBC cannot host SCPO.

    Args:
        batch: The steps; copies count as visits.
        step_return_N: Not read.
        bonus_N: Not read.
        config: The settings.

    Returns:
        ``advantage_N``, float32.
    """
    episode_N = episode_advantage(batch, config, config.normalisation)
    step_N = step_term(batch, step_return_N, bonus_N, config)
    return as_advantage(config.omega_episode * episode_N + step_N)


def step_term(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: CrbcSettings
) -> Float64Array:
    """w_S A_S, float64; 0 in states where one action was tried."""
    graph = state_graph(batch, config.state_key, state_ids(batch, config))
    # Ids of pairs of state and action: the same action in another state is another pair.
    action_N = group_ids(graph.source_N, key_ids(batch.action_N))
    value_N = state_values(batch, graph, config)[graph.source_N]
    gain_N = action_values(batch, graph, action_N, config) - value_N

    # A mean over rows weighs each action by how often it was taken, which is μ(a|s).
    deviation_N = np.sqrt(moments(gain_N**2, graph.source_N).mean_G[graph.source_N])
    # With a single action in a state there is nothing to compare.
    step_N = np.where(
        _choices(graph, action_N) >= 2,
        gain_N / np.maximum(deviation_N, config.deviation_floor),
        0.0,
    )
    return config.omega * step_N


def state_values(batch: StepBatch, graph: StateGraph, config: CrbcSettings) -> Float64Array:
    """V of every node: the chance of success, discounted by β a step.

    At depth 0, V_0(s) is the mean of β^(T-t) [success] over the visits of s, t from 0. At depth K,
    V_K = b + β M V_(K-1), where M(s, s') is the share of the steps from s that led to s', and b is
    β times the share that led to success. The last step of a failure or a time-out is worth 0, even
    if siblings went on from the state in which it ended. ``closure`` is the limit for large K: V
    solves (I - β M) V = b.

    Returns:
        ``value_V`` in [0, 1], float64, one for each node of all groups.
    """
    if config.depth == "closure":
        return _closed(batch, graph, config)
    value_V = _mean_at(_outcomes(batch, config), graph.source_N, len(graph))
    for _ in range(config.depth):
        value_V = _mean_at(_backed_up(batch, graph, value_V, config), graph.source_N, len(graph))
    return value_V


def action_values(
    batch: StepBatch, graph: StateGraph, action_N: IntArray, config: CrbcSettings
) -> Float64Array:
    """Q of each row's state and action: β times the mean value of the states it led to.

    At depth K that value is V_(K-1), so that V_K is the mean of Q_K; at depth 0 Q is the mean of
    the outcomes.

    Args:
        batch: The steps.
        graph: The graph of the batch.
        action_N: Dense id of each row's pair of state and action.
        config: The settings.

    Returns:
        ``q_N`` in [0, 1], float64.
    """
    if config.depth == 0:
        next_value_N = _outcomes(batch, config)
    else:
        # The closure's values are their own backup, so V_(K-1) is V itself.
        before = config
        if config.depth != "closure":
            before = config.model_copy(update={"depth": config.depth - 1})
        next_value_N = _backed_up(batch, graph, state_values(batch, graph, before), config)
    return moments(next_value_N, action_N).mean_G[action_N]


def _outcomes(batch: StepBatch, config: CrbcSettings) -> Float64Array:
    """β^(T-t) for every step t of a success, 0 in failures: V_0 before it is averaged by state.

    Reads success, not rewards: CRBC's boundary values are 1 and 0 on every benchmark.
    """
    line = batch.timeline
    # The last step, t = T - 1, is one away from the end, so it is worth β, as in `_backed_up`.
    left_N = (line.length_N - line.step_N).astype(np.float64)
    outcome_N: Float64Array = config.beta**left_N * batch.success_N
    return outcome_N


def _backed_up(
    batch: StepBatch, graph: StateGraph, value_V: Float64Array, config: CrbcSettings
) -> Float64Array:
    """β times the value of what each row led to; the ends are 1 and 0."""
    # A step that ends an episode led to no node: success is worth 1, anything else 0.
    next_N: Float64Array = np.where(graph.end_N, batch.success_N, value_V[graph.target_N])
    return config.beta * next_N


def _mean_at(value_N: Float64Array, node_N: IntArray, count: int) -> Float64Array:
    """Mean over the rows that leave each of ``count`` nodes; 0 for a node that no row leaves."""
    mean_V = np.zeros(count)
    # Renumbered, because `moments` needs dense ids, and no row leaves some of the final nodes.
    nodes, id_N = np.unique(node_N, return_inverse=True)
    mean_V[nodes] = moments(value_N, id_N).mean_G
    return mean_V


def _closed(batch: StepBatch, graph: StateGraph, config: CrbcSettings) -> Float64Array:
    """V of the closure, the solution of (I - β M) V = b for each group.

    Groups share no node, and a dense solve is cubic in the number of nodes, some hundred in a
    group: one system for all groups would cost far more than one for each.

    Returns:
        ``value_V``; 0 at nodes that no step leaves, among them ``success``: the value of an end is
        read from ``_backed_up``, not from here.
    """
    value_V = np.zeros(len(graph))
    group_N = graph.group_V[graph.source_N]
    for group in np.unique(group_N):
        # `_R`: the rows of this group. Its equations are numbered as `nodes`, its sources.
        rows = np.flatnonzero(group_N == group)
        nodes, source_R = np.unique(graph.source_N[rows], return_inverse=True)
        inner_R = ~graph.end_N[rows]
        visits = np.bincount(source_R)

        # moves[s, s']: number of steps from s to s'. The target of an inner step is the source of
        # the trajectory's next row, so it is among `nodes`.
        moves = np.zeros((len(nodes), len(nodes)))
        target = np.searchsorted(nodes, graph.target_N[rows[inner_R]])
        np.add.at(moves, (source_R[inner_R], target), 1)
        # The last step of a failure is a visit but neither a move nor a win: it is worth 0.
        wins = np.bincount(source_R, weights=~inner_R & batch.success_N[rows])

        # M = moves / visits and b = β wins / visits; β < 1 makes the system regular.
        matrix = np.eye(len(nodes)) - config.beta * moves / visits[:, None]
        value_V[nodes] = np.linalg.solve(matrix, config.beta * wins / visits)
    return value_V


def _choices(graph: StateGraph, action_N: IntArray) -> IntArray:
    """For every row the number of different actions that its group tried from its state.

    ``action_N`` has the ids of the pairs of state and action, as in ``action_values``.
    """
    # One row of each pair, so that each action is counted once at its state.
    first = np.unique(action_N, return_index=True)[1]
    choices_V = np.bincount(graph.source_N[first], minlength=len(graph))
    choices_N: IntArray = choices_V[graph.source_N]
    return choices_N


CRBC = Estimator(
    CrbcSettings,
    crbc,
    requires=frozenset(),
    labels={"crbc": "CRBC", "scpo_plus": "SCPO+"},
    step_term=step_term,
)
