"""Configuration of a method: an advantage estimator and, for SCPO, the shaper that adds credit to its step returns."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeFloat, PositiveInt

from scpo.schema.base import Strict

Normalisation = Literal["mean_std_norm", "mean_norm"]


class EstimatorSettings(Strict):
    """What every estimator shares (METHOD: s = episode return - penalty * invalid, q = step return + bonus)."""

    gamma: Annotated[float, Field(ge=0, le=1)]
    invalid_penalty: NonNegativeFloat
    statistics: Literal["rows", "trajectories"]
    std_floor: NonNegativeFloat


class GrpoSettings(EstimatorSettings):
    name: Literal["grpo"]
    normalisation: Normalisation


class GigpoSettings(EstimatorSettings):
    name: Literal["gigpo"]
    normalisation: Normalisation
    omega: NonNegativeFloat
    anchors: Literal["exact", "similar"]
    anchor_similarity: Annotated[float, Field(gt=0, le=1)]
    singletons: Literal["zero", "group_step"]


EstimatorConfig = Annotated[GrpoSettings | GigpoSettings, Field(discriminator="name")]


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
