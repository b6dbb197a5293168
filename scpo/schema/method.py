"""Configuration of a method: an advantage estimator, for SCPO with the shaper that adds credit to its step returns.

Or, for the rows that are not trained, an agent.
"""

from typing import TYPE_CHECKING, Annotated, Literal, Self, Union

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from scpo.advantages.estimator import EstimatorSettings
from scpo.advantages.registry import ESTIMATORS, HOSTS
from scpo.schema.agent import AGENT_LABELS, AgentConfig
from scpo.shaping.shaper import LABEL as SHAPER_LABEL
from scpo.shaping.shaper import ShaperConfig
from scpo.strict import Strict

if TYPE_CHECKING:
    EstimatorConfig = EstimatorSettings
else:
    EstimatorConfig = Annotated[
        Union[tuple(entry.settings for entry in ESTIMATORS.values())],  # noqa: UP007 (made of the registry)
        Field(discriminator="name"),
    ]

METHOD_LABELS: dict[str, str] = {
    **AGENT_LABELS,
    **{name: label for entry in ESTIMATORS.values() for name, label in entry.labels.items()},
    "scpo": SHAPER_LABEL,
}
"""What tables and figures call the methods, in the order in which they show them."""


def method_label(name: str) -> str:
    """What tables and figures call a method; a method of the user's own goes by its name."""
    return METHOD_LABELS.get(name, name)


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
