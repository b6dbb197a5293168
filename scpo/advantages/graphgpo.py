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
    """Settings of GraphGPO.

    Attributes:
        omega: Weight of the step term.
        decay: w, the factor of a step's reward for each further step to success; gamma in the
            authors' code, whose scripts have 0.10 on ALFWorld and 0.20 on WebShop.
        success_value: Reward of a step into success, 10 in the authors' code.
        normalize_distance: Reward the change of the distance instead of the distance.
    """

    name: Literal["graphgpo"]
    omega: NonNegativeFloat
    decay: Annotated[float, Field(gt=0, lt=1)]
    success_value: PositiveFloat
    normalize_distance: bool


def graphgpo(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: GraphgpoSettings
) -> FloatArray:
    """A = A_E + ω A_S (equations 4 to 8, and the authors' code where these are silent).

    A_S normalises r + bonus among the rows of a group that leave the same state. r = 10 w^d(s'),
    where d is the length of the shortest path to success in the graph (``state_graph.distances``)
    and 10 is ``success_value``; with ``normalize_distance``, r = 10 w^(d(s') - d(s) + 1). The bonus
    includes the penalty of an invalid action. In a group without success all r are equal, so that
    only the bonus separates its rows (ledger 46). Step returns are not read.

    Args:
        batch: The steps; copies are edges and rows of the normalisation.
        step_return_N: Not read.
        bonus_N: Added to r.
        config: The settings.

    Returns:
        ``advantage_N``, float32.
    """
    episode_N = episode_advantage(batch, config, config.normalisation)
    return as_advantage(episode_N + step_term(batch, step_return_N, bonus_N, config))


def step_term(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: GraphgpoSettings
) -> Float64Array:
    """ω A_S, float64."""
    graph = state_graph(batch, config.state_key, state_ids(batch, config))
    return config.omega * config.normalised(graph_rewards(graph, config) + bonus_N, graph.source_N)


def graph_rewards(graph: StateGraph, config: GraphgpoSettings) -> Float64Array:
    """The reward of every row, in (0, ``success_value``] unless the distance is normalised.

    Equal to ``compute_graph_path_returns`` of the authors' recipe.
    """
    distance_V = distances(graph)
    exponent_N = distance_V[graph.target_N]
    # The exponent of a step along a shortest path is then 0.
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
