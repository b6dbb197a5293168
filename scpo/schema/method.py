"""Configuration of a method: an advantage estimator, for SCPO with the shaper that adds credit to its step returns.

Or, for the rows that are not trained, an agent.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from scpo.schema.agent import AgentConfig
from scpo.schema.requirements import HOSTS
from scpo.strict import Strict

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
    """The value model, read by the trainer. ``epochs`` None: as many as the policy's."""

    learning_rate: PositiveFloat
    value_clip: PositiveFloat
    # Not in the record of a critic without it: its run ids are the same as before there was a choice policy.
    epochs: PositiveInt | None = Field(default=None, exclude_if=lambda epochs: epochs is None)


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


class StepFilter(Strict):
    """Which answers are no-ops: such steps earn no credit and are no reference position."""

    no_op_observations: tuple[str, ...]
    no_op_if_unchanged: bool


class ShaperConfig(Strict):
    """SCPO's shaper (paper section 3, table 4). ``allocation`` is where the matcher's credit lands."""

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
    allocation: Literal["matched", "random_match", "uniform_bonus"]


class IndependentSampling(Strict):
    """No groups: as many rollouts as groups x siblings, each of a task of its own."""

    rule: Literal["independent"]


class DynamicSampling(Strict):
    """DAPO: groups whose episode returns are all equal are dropped, and others rolled out in their place.

    Rolls out ``groups`` tasks at most ``rounds`` times, until the kept groups hold at least groups x siblings
    trajectories; nothing that was kept is cut off, and the last round drops nothing.
    """

    rule: Literal["dynamic"]
    rounds: PositiveInt


SamplingConfig = Annotated[IndependentSampling | DynamicSampling, Field(discriminator="rule")]


class MethodConfig(Strict):
    """One row of the table: an ``estimator`` that trains the model, or an ``agent`` that only prompts it.

    ``shaper`` is None for every method but SCPO and its variants; with one, the estimator must be one of ``HOSTS``.
    ``sampling`` None: siblings of every task once, in groups of the trainer's size. ``clip_high`` is the loss's upper
    clip range, the one setting of the loss that differs between methods; the trainer's reads it from here.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]
    label: str
    estimator: EstimatorConfig | None
    shaper: ShaperConfig | None
    sampling: SamplingConfig | None
    clip_high: PositiveFloat
    # Not in the record of a method that trains: its run ids are the same as before there were agents.
    agent: AgentConfig | None = Field(default=None, exclude_if=lambda agent: agent is None)

    @model_validator(mode="after")
    def _trains_or_prompts(self) -> Self:
        if (self.estimator is None) == (self.agent is None):
            got = "neither" if self.agent is None else "both"
            raise ValueError(
                f"method {self.name!r} has {got} of estimator and agent; a method has an estimator, which trains, "
                "or an agent, which is only evaluated"
            )
        if self.agent is not None and (self.shaper or self.sampling):
            raise ValueError(f"method {self.name!r} prompts and trains nothing: its shaper and sampling must be null")
        return self

    @model_validator(mode="after")
    def _shaper_has_a_host(self) -> Self:
        if self.estimator is not None and self.shaper is not None and self.estimator.name not in HOSTS:
            raise ValueError(
                f"method {self.name!r}: estimator {self.estimator.name!r} ignores step returns, so the shaper's credit "
                f"would be lost; allowed hosts: {', '.join(HOSTS)}"
            )
        return self
