"""Configuration of methods, their labels, and what they require of a trainer."""

from typing import TYPE_CHECKING, Annotated, Literal, Self, Union

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from scpo.advantages.anchors import StateSettings
from scpo.advantages.estimator import EstimatorSettings, Requirement
from scpo.advantages.registry import ESTIMATORS, HOSTS, INSTALLED, WITH_STEP_TERM
from scpo.errors import ConfigError
from scpo.extensions import place_of
from scpo.schema.agent import AGENT_LABELS, AgentConfig
from scpo.shaping.shaper import LABEL as SHAPER_LABEL
from scpo.shaping.shaper import ShaperConfig
from scpo.states.identity import Identity
from scpo.states.registry import find_identity
from scpo.strict import Strict

MethodName = Annotated[str, Field(pattern=r"^[a-z0-9_]+$")]

if TYPE_CHECKING:
    EstimatorConfig = EstimatorSettings
else:
    EstimatorConfig = Annotated[
        # Built from the registry, so it cannot be written with |.
        Union[tuple(entry.settings for entry in ESTIMATORS.values())],  # noqa: UP007
        Field(discriminator="name"),
    ]


def _refuse_taken_labels() -> None:
    """Check that no two methods share a name or a label, by which tables distinguish their rows.

    Raises:
        ConfigError: An estimator declares a name or a label that another method has.
    """
    known = {**AGENT_LABELS, "scpo": SHAPER_LABEL}
    # Estimator -> entry point, for those of other packages.
    points = {part.name: part.point for part in INSTALLED}
    for entry in ESTIMATORS.values():
        point = points.get(entry.name)
        source = place_of(point) if point else f"scpo/advantages: estimator {entry.name}"
        for name, label in entry.labels.items():
            for other, taken in known.items():
                if name == other or label == taken:
                    raise ConfigError(
                        f"{source}: its labels have {name!r}: {label!r}, and the method {other!r} "
                        f"has the label {taken!r}; give it a name and a label of its own"
                    )
        known |= entry.labels


_refuse_taken_labels()
METHOD_LABELS: dict[str, str] = {
    **AGENT_LABELS,
    **{name: label for entry in ESTIMATORS.values() for name, label in entry.labels.items()},
    "scpo": SHAPER_LABEL,
}
"""Labels of the methods in tables and figures, in the order in which they are shown."""


COMPARES_STATES = tuple(
    name for name, entry in ESTIMATORS.items() if issubclass(entry.settings, StateSettings)
)
"""The estimators that compare steps from the same state, and so have a ``state_key``."""

SEPARATES_STEPS = WITH_STEP_TERM
"""The estimators whose advantages differ between the steps of a trajectory.

Named here for the tables of ``analysis``, which do not import ``scpo.advantages``.
"""


def method_label(name: str) -> str:
    """Label of a method in tables and figures; its name if METHOD_LABELS lacks it."""
    return METHOD_LABELS.get(name, name)


class IndependentSampling(Strict):
    """Sampling without groups: each of the groups x siblings rollouts has its own task."""

    rule: Literal["independent"]


class DynamicSampling(Strict):
    """DAPO: drop groups whose episode returns are all equal, and roll out others instead.

    Each round rolls out ``groups`` tasks. Sampling ends when the kept groups hold at least groups x
    siblings trajectories, or after ``rounds`` rounds, of which the last drops nothing. Surplus
    trajectories are kept (ledger 26).
    """

    rule: Literal["dynamic"]
    rounds: PositiveInt


SamplingConfig = Annotated[IndependentSampling | DynamicSampling, Field(discriminator="rule")]


class TrainedMethod(Strict):
    """Trained method: an advantage estimator and, for SCPO and its variants, a ``shaper``.

    Attributes:
        name: Name of the method's row in tables and figures, and part of a run's id.
        estimator: Turns a batch into advantages, with its settings.
        shaper: SCPO's credit; the estimator must then be one of ``HOSTS``. None: no credit.
        sampling: How tasks are sampled; None: each task of a step once, with the trainer's
            ``group_size`` rollouts as its group.
        clip_high: The loss's upper clip range, the only setting of the loss that differs between
            methods; the trainer reads it from here.
    """

    kind: Literal["trained"]
    name: MethodName
    estimator: EstimatorConfig
    shaper: ShaperConfig | None
    sampling: SamplingConfig | None
    clip_high: PositiveFloat

    @property
    def reads_states(self) -> tuple[str, ...]:
        """The settings that read ``state_N``, which not every environment provides."""
        settings = []
        if getattr(self.estimator, "state_key", None) == "state":
            settings.append("method.estimator.state_key=state")
        if self.shaper is not None:
            for key, value in (
                ("credited_states", "state_without_success"),
                ("allocation", "graph"),
                ("step_text", "action_next_state"),
            ):
                if getattr(self.shaper, key) == value:
                    settings.append(f"method.shaper.{key}={value}")
        return tuple(settings)

    @property
    def identities(self) -> dict[str, Identity]:
        """Setting -> the identity of states that it selects; empty if no states are compared."""
        chosen = {}
        if isinstance(self.estimator, StateSettings):
            chosen["method.estimator.states"] = self.estimator.identity
        if self.shaper is not None and self.shaper.states is not None:
            chosen["method.shaper.states"] = find_identity(self.shaper.states)
        return chosen

    @property
    def needs_scorer(self) -> bool:
        """Return True if a trainer must load the run's scorer for this method."""
        return self.shaper is not None or any(
            "scorer" in identity.requires for identity in self.identities.values()
        )

    @model_validator(mode="after")
    def _shaper_has_a_host(self) -> Self:
        if self.shaper is not None and self.estimator.name not in HOSTS:
            raise ValueError(
                f"method {self.name!r}: estimator {self.estimator.name!r} ignores step returns, so "
                f"the shaper's credit would be lost; allowed hosts: {', '.join(HOSTS)}"
            )
        return self


class PromptedMethod(Strict):
    """Method that only prompts the model, through an ``agent``; it is evaluated, not trained."""

    kind: Literal["prompted"]
    name: MethodName
    agent: AgentConfig


MethodConfig = Annotated[TrainedMethod | PromptedMethod, Field(discriminator="kind")]

Need = Requirement | Literal["independent_sampling", "dynamic_sampling", "reference_buffer"]

PROVIDES: dict[str, frozenset[Need]] = {
    "local": frozenset(
        {
            "entropy",
            "hindsight_logprob",
            "value",
            "independent_sampling",
            "dynamic_sampling",
            "reference_buffer",
        }
    ),
    # Without dynamic_sampling so far: verl's implementation cuts off surplus trajectories and draws
    # single prompts.
    "verl": frozenset(
        {"entropy", "hindsight_logprob", "value", "independent_sampling", "reference_buffer"}
    ),
    # What verl-agent itself provides, including the entropies that it measures. Without
    # reference_buffer: its rows do not name their task, and its checkpoints cannot hold the buffer.
    "verl_agent": frozenset({"entropy", "value", "independent_sampling", "dynamic_sampling"}),
}
"""Features of each trainer beyond plain rollouts of groups; see :func:`required`."""


def required(method: TrainedMethod | PromptedMethod) -> frozenset[Need]:
    """Features that a trainer must provide for a method, beyond plain rollouts of groups.

    Empty for a method that only prompts.
    """
    if method.kind == "prompted":
        return frozenset()
    needs: set[Need] = set(ESTIMATORS[method.estimator.name].requires)
    if isinstance(method.sampling, IndependentSampling):
        needs.add("independent_sampling")
    elif isinstance(method.sampling, DynamicSampling):
        needs.add("dynamic_sampling")
    if method.shaper is not None and method.shaper.reference_buffer != "off":
        needs.add("reference_buffer")
    # The shaper computes the step bonus, so the trainer need not provide it.
    return frozenset(needs - {"step_bonus"})


def misfit(method: TrainedMethod | PromptedMethod, trainer: str) -> str | None:
    """Reason why a trainer cannot run a method; None if it can."""
    missing = required(method) - PROVIDES[trainer]
    if not missing:
        return None
    able = [name for name, provided in PROVIDES.items() if required(method) <= provided]
    return (
        f"method={method.name} needs {', '.join(sorted(missing))}, which trainer={trainer} does "
        f"not provide; trainers that do: {', '.join(able) or 'none'}"
    )
