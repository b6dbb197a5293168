"""Requirements of methods and features of trainers, checked before anything starts."""

from typing import Literal

from scpo.advantages.estimator import Requirement
from scpo.advantages.registry import ESTIMATORS
from scpo.schema.method import PromptedMethod, TrainedMethod

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
    # Deferred: dynamic_sampling; verl's replay buffer has one that cuts off what is too much and
    # draws single prompts.
    "verl": frozenset(
        {"entropy", "hindsight_logprob", "value", "independent_sampling", "reference_buffer"}
    ),
    # The paper's fork: what it has of its own, and the entropies that it measures. Not
    # reference_buffer: its rows do not say which task they are of, and its checkpoints hold nothing
    # of ours.
    "verl_agent": frozenset({"entropy", "value", "independent_sampling", "dynamic_sampling"}),
}
"""Features of each trainer beyond plain rollouts of groups; the step bonus needs none."""


def required(method: TrainedMethod | PromptedMethod) -> frozenset[Need]:
    """Features that a trainer must provide for a method, beyond plain rollouts of groups.

    Empty for a method that only prompts.
    """
    if method.kind == "prompted":
        return frozenset()
    needs: set[Need] = set(ESTIMATORS[method.estimator.name].requires)
    if method.sampling:
        needs.add(
            "independent_sampling" if method.sampling.rule == "independent" else "dynamic_sampling"
        )
    if method.shaper is not None and method.shaper.reference_buffer != "off":
        needs.add("reference_buffer")
    return frozenset(needs - {"step_bonus"})


def misfit(method: TrainedMethod | PromptedMethod, trainer: str) -> str | None:
    """Why a trainer cannot run a method; None: it can."""
    missing = required(method) - PROVIDES[trainer]
    if not missing:
        return None
    able = [name for name, provided in PROVIDES.items() if required(method) <= provided]
    return (
        f"method={method.name} needs {', '.join(sorted(missing))}, which trainer={trainer} does "
        f"not provide; trainers that do: {', '.join(able) or 'none'}"
    )
