"""Advantage estimators: arrays in, arrays out. A new one is a file here, a line in ``ESTIMATORS`` and a YAML."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from scpo.advantages.empg import empg
from scpo.advantages.g2po import g2po
from scpo.advantages.gae import gae
from scpo.advantages.gigpo import gigpo
from scpo.advantages.grpo import grpo
from scpo.advantages.hcapo import hcapo
from scpo.advantages.hgpo import hgpo
from scpo.advantages.rloo import rloo
from scpo.schema.requirements import REQUIRES, Requirement


@dataclass(frozen=True)
class Estimator:
    """What a trainer has to know about an estimator.

    Attributes:
        function: Row level: ``f(batch, step_return_N, bonus_N, config) -> advantage_N``, float32, one per row. Token
            level: ``f(token_reward_NL, value_NL, mask_NL, config) -> (advantage_NL, return_NL)``, float32.
        requires: What must be provided beyond the plain batch, of ``scpo.schema.requirements``.
        level: ``row`` (called by ``scpo.credit.assign``) or ``token`` (``scpo.credit.assign_tokens``).
    """

    function: Callable[..., Any]
    requires: frozenset[Requirement]
    level: Literal["row", "token"]


ESTIMATORS: dict[str, Estimator] = {
    "gae": Estimator(gae, REQUIRES["gae"], level="token"),
    "rloo": Estimator(rloo, REQUIRES["rloo"], level="row"),
    "grpo": Estimator(grpo, REQUIRES["grpo"], level="row"),
    "empg": Estimator(empg, REQUIRES["empg"], level="row"),
    "gigpo": Estimator(gigpo, REQUIRES["gigpo"], level="row"),
    "hcapo": Estimator(hcapo, REQUIRES["hcapo"], level="row"),
    "hgpo": Estimator(hgpo, REQUIRES["hgpo"], level="row"),
    "g2po": Estimator(g2po, REQUIRES["g2po"], level="row"),
}
