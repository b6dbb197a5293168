"""Base class and names that all configuration models share."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Scale = Literal["mini", "study", "paper"]
"""Size of a run, set by ``conf/scale/<name>.yaml``."""

MACHINE_SECTIONS = ("machine", "wandb", "launcher")
"""Sections of a configuration that say where and how a run is executed; its id ignores them."""


class Strict(BaseModel):
    """Frozen model that rejects unknown keys. Values are in ``conf/``, not defaults here.

    NaN and infinities are rejected too: JSON has neither, and a record of the configuration must
    read back as what it was.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
