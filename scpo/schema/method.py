"""Configuration of a method: an advantage estimator and, for SCPO, the shaper that adds credit to its step returns."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

from scpo.schema.base import Strict

Normalisation = Literal["mean_std_norm", "mean_norm"]


class EstimatorSettings(Strict):
    """What every estimator shares: the discount, and the penalty of an invalid action in the row's score.

    s = episode return - penalty * [invalid]; q = step return + bonus.
    """

    gamma: Annotated[float, Field(ge=0, le=1)]
    invalid_penalty: NonNegativeFloat


class GroupSettings(EstimatorSettings):
    """What estimators that compare siblings share."""

    statistics: Literal["rows", "trajectories"]
    std_floor: NonNegativeFloat


class GrpoSettings(GroupSettings):
    name: Literal["grpo"]
    normalisation: Normalisation


class RlooSettings(GroupSettings):
    name: Literal["rloo"]


class GigpoSettings(GroupSettings):
    name: Literal["gigpo"]
    normalisation: Normalisation
    omega: NonNegativeFloat
    anchors: Literal["exact", "similar"]
    anchor_similarity: Annotated[float, Field(gt=0, le=1)]
    singletons: Literal["zero", "group_step"]


class HgpoSettings(GroupSettings):
    """``context`` is K: a step is compared with those that share up to K states before it."""

    name: Literal["hgpo"]
    normalisation: Normalisation
    context: NonNegativeInt
    weights: Literal["paper", "code"]
    exponent: NonNegativeFloat
    base_group: bool


class G2poSettings(GroupSettings):
    """``success_value`` is the value of a success's end."""

    name: Literal["g2po"]
    normalisation: Normalisation
    omega: NonNegativeFloat
    success_value: PositiveFloat


class HcapoSettings(GroupSettings):
    """``smoothing`` is the weight of the next step's hindsight value; ``hindsight_prompt`` is read by the trainer.

    The trainer puts the prompt, with its two fields filled in, before the response when it scores that again.
    """

    name: Literal["hcapo"]
    omega: NonNegativeFloat
    temperature: PositiveFloat
    ratio_low: Annotated[float, Field(gt=0, le=1)]
    ratio_high: Annotated[float, Field(ge=1)]
    smoothing: Annotated[float, Field(ge=0, lt=1)]
    hindsight_prompt: Annotated[str, Field(pattern=r"\{final_observation\}(.|\n)*\{success\}")]


class EmpgSettings(GroupSettings):
    name: Literal["empg"]
    normalisation: Normalisation
    k: NonNegativeFloat
    k_future: NonNegativeFloat
    zeta: NonNegativeFloat


class CriticSettings(Strict):
    """The value model: the policy's base with a scalar head. Read by the trainer."""

    learning_rate: PositiveFloat
    value_clip: PositiveFloat


class GaeSettings(EstimatorSettings):
    """``gamma`` discounts tokens inside a response here, not steps."""

    name: Literal["gae"]
    gae_lambda: Annotated[float, Field(ge=0, le=1)]
    critic: CriticSettings


EstimatorConfig = Annotated[
    GrpoSettings
    | RlooSettings
    | GigpoSettings
    | HgpoSettings
    | G2poSettings
    | HcapoSettings
    | EmpgSettings
    | GaeSettings,
    Field(discriminator="name"),
]

HOSTS = ("gigpo", "hgpo", "g2po")
"""The estimators that read a step's bonus and so can host SCPO's shaper (``requires`` in ``scpo.advantages``)."""


class StepFilter(Strict):
    """Which answers are no-ops: such steps earn no credit and are no reference position."""

    no_op_observations: tuple[str, ...]
    no_op_if_unchanged: bool


class ShaperConfig(Strict):
    """SCPO's shaper (paper section 3, table 5)."""

    matcher: Literal["kmp", "forward"]
    monotonic: bool
    after_full_match: Literal["stop", "restart"]
    theta: Annotated[float, Field(gt=0, le=1)]
    soft_base: Annotated[float, Field(ge=0, lt=1)]
    alpha: NonNegativeFloat
    reference: Literal["longest", "shortest", "random"]
    reference_order: Literal["time", "batch"]
    order: Literal["balanced", "chronological", "length", "random"]
    order_ranks: PositiveInt
    step_text: Literal["action_next_observation", "observation_action", "action"]
    step_filter: StepFilter


class MethodConfig(Strict):
    """One row of the table. ``shaper`` is None for every method but SCPO and its variants."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    label: str
    estimator: EstimatorConfig
    shaper: ShaperConfig | None
