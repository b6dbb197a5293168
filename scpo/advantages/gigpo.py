"""GiGPO: group-in-group advantage (arXiv 2505.10978, equations 3, 7 and 8)."""

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, model_validator

from scpo.advantages.anchors import StateSettings, state_groups
from scpo.advantages.estimator import Estimator
from scpo.advantages.groups import Float64Array, as_advantage, group_ids
from scpo.advantages.grpo import episode_advantage
from scpo.states.identity import Identity
from scpo.states.registry import find_identity
from scpo.steps import FloatArray, StepBatch


class GigpoSettings(StateSettings):
    """Settings of GiGPO, the paper's host of SCPO.

    Attributes:
        omega: ω, weight of the step term (equation 3 of the paper).
        anchors: ``exact``: steps with equal anchor texts are compared; ``similar``: verl-agent's
            option ``enable_similarity``, by difflib's ratio. ``states`` generalises this setting.
        anchor_similarity: Least ratio of ``similar``, in (0, 1]; not read otherwise.
        singletons: A_S of a step whose anchor state no other step shares: ``zero``, as in
            verl-agent, or ``group_step``, see ``step_advantage`` (ours, ledger 7).
    """

    name: Literal["gigpo"]
    omega: NonNegativeFloat
    anchors: Literal["exact", "similar"]
    anchor_similarity: Annotated[float, Field(gt=0, le=1)]
    singletons: Literal["zero", "group_step"]

    @model_validator(mode="after")
    def _one_comparison(self) -> Self:
        """Refuse two rules for the equality of states at once: one would be ignored."""
        if self.anchors == "similar" and self.states != "exact":
            raise ValueError(
                f"anchors=similar compares states by difflib, states={self.states} otherwise; use "
                f"anchors=exact with states={self.states}, or anchors=similar with states=exact"
            )
        return self

    @property
    def identity(self) -> Identity:
        """The identity of states; ``anchors: similar`` is difflib's with ``anchor_similarity``."""
        if self.anchors == "similar":
            return find_identity("difflib", self.anchor_similarity)
        return super().identity


def gigpo(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: GigpoSettings
) -> FloatArray:
    """A = A_E + ω A_S, both with the same normalisation.

    A_E is GRPO's advantage of the unshaped outcome. A_S normalises q = R + bonus (R the discounted
    step return) among the rows that share an anchor state; a group of one row gets 0. Copies take
    part in all statistics, as in verl-agent. Equal to verl-agent's
    ``compute_gigpo_outcome_advantage``. With SCPO's bonus A_S becomes the paper's A~_S (section
    3.5), and A_E stays as it is: credit never reaches the episode's outcome.

    Args:
        batch: The steps.
        step_return_N: R, unshaped.
        bonus_N: α * credit - penalty * [invalid].
        config: The settings.

    Returns:
        ``advantage_N``, float32.
    """
    episode_N = episode_advantage(batch, config, config.normalisation)
    return as_advantage(episode_N + step_term(batch, step_return_N, bonus_N, config))


def step_term(
    batch: StepBatch, step_return_N: FloatArray, bonus_N: FloatArray, config: GigpoSettings
) -> Float64Array:
    """ω A_S, float64."""
    q_N = step_return_N.astype(np.float64) + bonus_N
    return config.omega * step_advantage(batch, q_N, config)


def step_advantage(batch: StepBatch, q_N: Float64Array, config: GigpoSettings) -> Float64Array:
    """A_S: q normalised among the rows of its anchor group.

    With ``singletons: group_step``, a step whose anchor state no other step shares is compared with
    its group's rows of the same step index (ours; in the papers such a step gets 0). A step and its
    copies count as one.
    """
    anchor_N = state_groups(batch, config)
    advantage_N = config.normalised(q_N, anchor_N)
    if config.singletons == "zero":
        return advantage_N

    # Copies are not counted: a step with copies is still the only one of its state.
    groups = anchor_N.max(initial=-1) + 1
    members_A = np.bincount(anchor_N[batch.original_N], minlength=groups)
    single_N = members_A[anchor_N] == 1
    step_id_N = group_ids(batch.group_N, batch.step_N)
    return np.where(single_N, config.normalised(q_N, step_id_N), advantage_N)


GIGPO = Estimator(
    GigpoSettings,
    gigpo,
    requires=frozenset({"step_bonus"}),
    labels={"gigpo": "GiGPO"},
    step_term=step_term,
)
