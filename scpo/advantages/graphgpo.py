"""GraphGPO: steps are rewarded by their distance to success in a state graph (arXiv 2605.26684)."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat

from scpo.advantages.anchors import StateSettings, state_ids
from scpo.advantages.estimator import Estimator
from scpo.advantages.groups import Float64Array, as_advantage
from scpo.advantages.grpo import episode_advantage
from scpo.advantages.state_graph import StateGraph, distances, state_graph
from scpo.steps import FloatArray, StepBatch


class GraphgpoSettings(StateSettings):
    """``decay`` is w, ``success_value`` what a step into success is worth."""

    name: Literal["graphgpo"]
    omega: NonNegativeFloat
    decay: Annotated[float, Field(gt=0, lt=1)]
    success_value: PositiveFloat
    normalize_distance: bool


def graphgpo(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: GraphgpoSettings
) -> FloatArray:
    """A = A_E + ω A_S (equations 4 to 8; what they leave open as the authors' code has it).

    A_S normalises r + bonus among the rows of a group that leave the same state, r = 10 w^d(s')
    with d the steps to success by the shortest way known to the group (``graph.distances``), or r =
    10 w^(d(s') - d(s) + 1) with ``normalize_distance``. The bonus holds the penalty of an invalid
    action. In a group without success all r are equal, so that only the bonus separates its
    rows. Step returns are not read.
    """
    episode_N = episode_advantage(batch, config, config.normalisation)
    return as_advantage(episode_N + step_term(batch, step_return_N, bonus_N, config))


def step_term(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: GraphgpoSettings
) -> Float64Array:
    """ω A_S."""
    graph = state_graph(batch, config.state_key, state_ids(batch, config))
    return config.omega * config.normalised(graph_rewards(graph, config) + bonus_N, graph.source_N)


def graph_rewards(graph: StateGraph, config: GraphgpoSettings) -> Float64Array:
    """The reward of every row, in the unit of ``success_value``."""
    distance_V = distances(graph)
    exponent_N = distance_V[graph.target_N]
    # The change of the distance instead of the distance: 0 for a step along a shortest way.
    if config.normalize_distance:
        exponent_N = exponent_N - distance_V[graph.source_N] + 1
    reward_N: Float64Array = config.success_value * config.decay**exponent_N
    return reward_N


GRAPHGPO = Estimator(
    GraphgpoSettings,
    graphgpo,
    requires=frozenset({"step_bonus"}),
    labels={"graphgpo": "GraphGPO"},
    step_term=step_term,
)
