"""Registry of estimators: the project's own, and those of installed packages."""

from scpo.advantages.crbc import CRBC
from scpo.advantages.ecpo import ECPO
from scpo.advantages.empg import EMPG
from scpo.advantages.estimator import Estimator
from scpo.advantages.g2po import G2PO
from scpo.advantages.gae import GAE
from scpo.advantages.gagpo import GAGPO
from scpo.advantages.gigpo import GIGPO
from scpo.advantages.graphgpo import GRAPHGPO
from scpo.advantages.grpo import GRPO
from scpo.advantages.hcapo import HCAPO
from scpo.advantages.hgpo import HGPO
from scpo.advantages.pace import PACE
from scpo.advantages.proxmo import PROXMO
from scpo.advantages.rewardflow import REWARDFLOW
from scpo.advantages.rloo import RLOO
from scpo.extensions import load_parts

ENTRY_POINTS = "scpo.estimators"
"""Entry-point group of other packages' estimators: ``<name> = "<module>:<ESTIMATOR>"``."""

# In the order in which tables show them.
OURS = (
    GAE,
    RLOO,
    GRPO,
    EMPG,
    GIGPO,
    HCAPO,
    HGPO,
    G2PO,
    REWARDFLOW,
    GRAPHGPO,
    GAGPO,
    CRBC,
    ECPO,
    PROXMO,
    PACE,
)


# Loaded at import, because the configuration's type for ``method.estimator`` is the union of all
# estimators' settings (``scpo.schema.method``).
INSTALLED = load_parts(
    ENTRY_POINTS,
    "a scpo.advantages.estimator.Estimator",
    lambda value: isinstance(value, Estimator),
    (entry.name for entry in OURS),
)

ESTIMATORS: dict[str, Estimator] = {
    **{entry.name: entry for entry in OURS},
    **{part.name: part.value for part in INSTALLED},
}

HOSTS = tuple(name for name, entry in ESTIMATORS.items() if "step_bonus" in entry.requires)
"""The estimators that read a step's bonus and so can host SCPO's shaper."""

WITH_STEP_TERM = tuple(name for name, entry in ESTIMATORS.items() if entry.step_term is not None)
"""The estimators whose advantages tell the steps of one trajectory apart."""
