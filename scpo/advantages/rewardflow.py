"""RewardFlow: success is propagated back through a state graph (arXiv 2603.18859)."""

from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat

from scpo.advantages.anchors import StateSettings, state_ids
from scpo.advantages.estimator import Estimator
from scpo.advantages.groups import Float64Array, as_advantage
from scpo.advantages.grpo import episode_advantage
from scpo.advantages.state_graph import StateGraph, state_graph
from scpo.states.identity import state_texts
from scpo.steps import BoolArray, FloatArray, IntArray, StepBatch

# The authors' code recognises ALFWorld's steps that change nothing by these texts.
LOOKING_ACTIONS = ("inventory", "look")
LOOKING_VERB = "examine"
NO_OP = "Nothing happens"


class RewardflowSettings(StateSettings):
    """Settings of RewardFlow.

    Attributes:
        omega: Weight of the step term.
        gamma: Discount of a step of the propagation, 0.9 in the authors' scripts; diagnostics
            discount the step returns by it, too.
        bridge: Skip steps without effect; the authors' code does so on ALFWorld only.
        failed_end: Reward of the last step of a failure: ``reward``, the environment's; ``value``,
            the environment's minus V(s) (ledger 46).
    """

    name: Literal["rewardflow"]
    omega: NonNegativeFloat
    gamma: Annotated[float, Field(ge=0, lt=1)]
    bridge: bool
    failed_end: Literal["reward", "value"]


def rewardflow(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: RewardflowSettings
) -> FloatArray:
    """A = A_E + ω A_S, as in the authors' code where the paper is silent.

    A_S normalises the step's reward + bonus among the rows of a group that leave the same state.
    The step's reward is V(s') - V(s) with V as in ``propagated``; V(s') of a success's last step is
    the environment's reward. The last step of a failure gets the environment's reward
    (``failed_end: reward``, as in the code if the time is up) or the environment's reward minus
    V(s) (``value``, as in the code if the episode is lost earlier). The bonus includes the penalty
    of an invalid action. Step returns are not read. Equal to the authors' code
    (tmlr-group/RewardFlow) on batches without copies.

    Args:
        batch: The steps.
        step_return_N: Not read.
        bonus_N: Added to the step's reward.
        config: The settings.

    Returns:
        ``advantage_N``, float32.
    """
    episode_N = episode_advantage(batch, config, config.normalisation)
    return as_advantage(episode_N + step_term(batch, step_return_N, bonus_N, config))


def step_term(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: RewardflowSettings
) -> Float64Array:
    """ω A_S, float64."""
    graph = state_graph(batch, config.state_key, state_ids(batch, config))
    reward_N = flow_rewards(batch, graph, config) + bonus_N
    return config.omega * config.normalised(reward_N, graph.source_N)


def flow_rewards(batch: StepBatch, graph: StateGraph, config: RewardflowSettings) -> Float64Array:
    """Reward V(s') - V(s) of each step, in the unit of the rewards.

    Steps that ``bridge`` leaves out of the propagation are rewarded, too: ``bridge`` changes the
    values of states, not the set of rewarded steps.
    """
    value_V = propagated(batch, graph, config)
    reward_N = batch.reward_N.astype(np.float64)
    after_N = np.where(graph.end_N, reward_N, value_V[graph.target_N])
    # With ``failed_end: reward``, V(s) is not subtracted at the end of a failure.
    failed_end_N = graph.end_N & ~batch.success_N
    not_subtracted_N = failed_end_N & (config.failed_end == "reward")
    before_N = np.where(not_subtracted_N, 0.0, value_V[graph.source_N])
    flow_N: Float64Array = after_N - before_N
    return flow_N


def propagated(batch: StepBatch, graph: StateGraph, config: RewardflowSettings) -> Float64Array:
    """Value of each node: V(s) = max(reward of arriving at s, γ max over its successors of V).

    With ``bridge``, steps that only look, that change nothing or that return to their state are
    left out: the next step that leads to another state then starts from the state in which they
    began. A state that only such steps leave or reach is worth 0.

    Returns:
        ``value_V``, float64, in the unit of the rewards; never negative.
    """
    value_V = np.zeros(len(graph))
    reward_N = batch.reward_N.astype(np.float64)
    inner = np.flatnonzero(~graph.end_N)

    # A reward before the end is part of the value of the state that its step led to.
    np.maximum.at(value_V, graph.target_N[inner], reward_N[inner])
    source_N = graph.source_N
    used_N = np.ones(len(batch), dtype=bool)
    if config.bridge:
        source_N, used_N = _bridged(batch, graph, config)

    # With ``failed_end: reward``, the end of a failure is worth nothing to the states before it.
    has_value_N = batch.success_N | (config.failed_end == "value")
    ends = np.flatnonzero(graph.end_N & used_N & has_value_N)
    np.maximum.at(value_V, source_N[ends], config.gamma * reward_N[ends])
    edges = np.flatnonzero(~graph.end_N & used_N)

    # Ends after finitely many rounds: with γ < 1 a cycle cannot raise a value.
    while True:
        higher_V = value_V.copy()
        np.maximum.at(higher_V, source_N[edges], config.gamma * value_V[graph.target_N[edges]])
        if np.array_equal(higher_V, value_V):
            return value_V
        value_V = higher_V


def _bridged(
    batch: StepBatch, graph: StateGraph, config: RewardflowSettings
) -> tuple[IntArray, BoolArray]:
    """Sources of the steps once those without effect are left out, and True for the steps kept.

    A step is left out if it only looks, is a no-op, or leads to its own source. The step after it
    takes over its source, so that a chain of such steps passes on the state in which it began.
    """
    # By trajectory and time, so that one loop over steps serves all trajectories at once.
    line = batch.timeline
    idle_KT = line.table(_without_effect(batch, graph, config)).astype(bool)
    source_KT = line.table(graph.source_N)
    target_KT = line.table(graph.target_N)
    used_KT = np.zeros_like(idle_KT)
    for t in range(source_KT.shape[1]):
        if t > 0:
            left_out_K = ~used_KT[:, t - 1]
            source_KT[left_out_K, t] = source_KT[left_out_K, t - 1]
        # Compared with the source that was taken over: a step back to it is left out, too.
        returns_K = source_KT[:, t] == target_KT[:, t]
        used_KT[:, t] = ~(idle_KT[:, t] | returns_K)
    return line.column(source_KT), line.column(used_KT)


def _without_effect(batch: StepBatch, graph: StateGraph, config: RewardflowSettings) -> BoolArray:
    """Rows without effect: actions that only look, and no-ops.

    The authors' code recognises a no-op by ALFWorld's sentence in the text of the next state. An
    environment that rewords its answers has no such sentence and reports no-ops itself.
    """
    looks_N = np.array(
        [action in LOOKING_ACTIONS or LOOKING_VERB in action for action in batch.action_N],
        dtype=bool,
    )
    if batch.no_op_N is not None:
        return looks_N | batch.no_op_N
    # Texts of sources are enough: a step leads to the source of the next step, except for the last
    # step of a failure. A state with several texts (``states`` other than exact) has the sentence
    # if one of them has it.
    has_sentence_N = [NO_OP in text for text in state_texts(batch, config.state_key)]
    has_sentence_V = np.zeros(len(graph), dtype=bool)
    np.logical_or.at(has_sentence_V, graph.source_N, has_sentence_N)
    idle_N: BoolArray = looks_N | has_sentence_V[graph.target_N]
    return idle_N


REWARDFLOW = Estimator(
    RewardflowSettings,
    rewardflow,
    requires=frozenset({"step_bonus"}),
    labels={"rewardflow": "RewardFlow"},
    step_term=step_term,
)
