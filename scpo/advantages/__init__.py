"""Advantage estimators: arrays in, arrays out. A new one is a file here, a line in ``ESTIMATORS`` and a YAML."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from scpo.advantages.gigpo import gigpo
from scpo.advantages.grpo import grpo

Requirement = Literal["step_bonus", "entropy", "hindsight_logprob", "value"]


@dataclass(frozen=True)
class Estimator:
    """What a trainer has to know about an estimator.

    Attributes:
        function: Row level: ``f(batch, step_return_N, bonus_N, config) -> advantage_N``, float32, one per row.
        requires: What must be provided beyond the plain batch. ``step_bonus``: it reads the bonus, so it can host SCPO;
            ``entropy`` and ``hindsight_logprob``: the batch's optional fields; ``value``: a critic.
        level: ``row`` or ``token``; token-level estimators are called by the trainers themselves.
    """

    function: Callable[..., Any]
    requires: frozenset[Requirement]
    level: Literal["row", "token"]


ESTIMATORS: dict[str, Estimator] = {
    "grpo": Estimator(grpo, requires=frozenset(), level="row"),
    "gigpo": Estimator(gigpo, requires=frozenset({"step_bonus"}), level="row"),
}
