"""G2PO: values on the graph of states that a group of rollouts visits (arXiv 2606.22995)."""

from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveFloat

from scpo.advantages.anchors import StateSettings, state_groups
from scpo.advantages.estimator import Estimator
from scpo.advantages.groups import Float64Array, as_advantage, group_ids, moments
from scpo.advantages.grpo import episode_advantage
from scpo.steps import FloatArray, IntArray, StepBatch


class G2poSettings(StateSettings):
    """Settings of G2PO.

    Attributes:
        omega: Weight of the two step terms together.
        success_value: Value of the end of a success, 10 in the paper for any reward; a failure's
            end is worth 0.
    """

    name: Literal["g2po"]
    omega: NonNegativeFloat
    success_value: PositiveFloat


def g2po(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: G2poSettings
) -> FloatArray:
    """A = A_E + ω (A_node + A_edge).

    A node is an anchor state inside a group. A_E is GRPO's outcome term; A_node normalises V(next)
    + bonus among the rows that leave the same node, 0 for one row; A_edge normalises V(next) -
    V(node) among all rows of the group. All three terms share ``normalisation`` (the paper's
    z-scores: ``mean_std_norm``; its scripts use ``mean_norm`` on WebShop, ledger 19). Copies take
    part in all statistics. Step returns are not read. Equal to the authors' code (Nala-YN/G2PO) on
    batches without copies.

    Args:
        batch: The steps.
        step_return_N: Not read.
        bonus_N: Added to V(next), in the node term only; includes the penalty of invalid actions.
        config: The settings.

    Returns:
        ``advantage_N``, float32.
    """
    episode_N = episode_advantage(batch, config, config.normalisation)
    return as_advantage(episode_N + step_term(batch, step_return_N, bonus_N, config))


def step_term(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: G2poSettings
) -> Float64Array:
    """ω (A_node + A_edge), float64."""
    node_N = state_groups(batch, config)
    value_N, next_value_N = graph_values(batch, node_N, config)
    group_N = group_ids(batch.group_N)
    # The bonus is only in the node term, which compares the actions of one state; the edge term
    # compares states. The authors' code also has the penalty of invalid actions in the node term.
    node_term_N = config.normalised(next_value_N + bonus_N, node_N)
    edge_term_N = config.normalised(next_value_N - value_N, group_N)
    return config.omega * (node_term_N + edge_term_N)


def graph_values(
    batch: StepBatch, node_N: IntArray, config: G2poSettings
) -> tuple[Float64Array, Float64Array]:
    """V of each row's node and of the state that its step leads to, in the unit of the rewards.

    V(node) = mean over its rows of γ^(T-t) * episode return (t from 0, T steps: the last step is
    one away from the end); the end of a trajectory is worth ``success_value`` or 0.

    Args:
        batch: The steps.
        node_N: Dense id of the node that each row leaves.
        config: The settings.

    Returns:
        ``value_N`` and ``next_value_N``, float64.
    """
    line = batch.timeline
    steps_to_end_N = line.length_N - line.step_N
    discounted_N = config.gamma**steps_to_end_N * batch.episode_return_N.astype(np.float64)
    value_N = moments(discounted_N, node_N).mean_G[node_N]
    next_N = line.neighbours(1)
    # A failure's last state is not looked up among the nodes, even where siblings went on from it.
    end_N = np.where(batch.success_N, config.success_value, 0.0)
    return value_N, np.where(next_N >= 0, value_N[next_N], end_N)


G2PO = Estimator(
    G2poSettings,
    g2po,
    requires=frozenset({"step_bonus"}),
    labels={"g2po": "G2PO"},
    step_term=step_term,
)
