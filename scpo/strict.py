"""Base class and names that all configuration models share."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict
from pydantic_core import PydanticCustomError

Scale = Literal["mini", "study", "paper"]
"""Size of a run, set by ``conf/scale/<name>.yaml``."""

MACHINE_SECTIONS = ("machine", "wandb", "launcher")
"""Sections of a configuration that say where and how a run is executed; its id ignores them."""


# Seeds of other programs grow by a few thousand (verl-agent's workers count up from the run's), and
# numpy's older generators take 32 bits: this much fits everywhere, also in a signed int32.
LARGEST_SEED = 2**31 - 1


def _fits(seed: int) -> int:
    """Refuse a seed that one of the random generators would refuse in the middle of a run."""
    if not 0 <= seed <= LARGEST_SEED:
        text = f"a seed is a whole number from 0 to {LARGEST_SEED}"
        raise PydanticCustomError("seed_range", "{text}", {"text": text})
    return seed


Seed = Annotated[int, AfterValidator(_fits)]
"""Seed that all random generators take, with what is added to it."""


class Strict(BaseModel):
    """Frozen model that rejects unknown keys. Values are in ``conf/``, not defaults here.

    NaN and infinities are rejected too: JSON has neither, and a record of the configuration must
    read back as what it was.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
