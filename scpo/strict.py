"""What all configuration models share."""

from typing import Literal

from pydantic import BaseModel, ConfigDict

Scale = Literal["mini", "study", "paper"]
"""How large a run is: what ``conf/scale/<name>.yaml`` sets."""


class Strict(BaseModel):
    """A frozen model that refuses unknown keys. Values live in ``conf/``; the schema holds no hidden defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
