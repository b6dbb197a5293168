"""What all configuration models share."""

from pydantic import BaseModel, ConfigDict


class Strict(BaseModel):
    """A frozen model that refuses unknown keys. Values live in ``conf/``; the schema holds no hidden defaults."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
