"""Base class and names that all configuration models share."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

Scale = Literal["mini", "study", "paper"]
"""Size of a run, set by ``conf/scale/<name>.yaml``."""

MACHINE_SECTIONS = ("machine", "wandb", "launcher")
"""Sections of a configuration that say where and how a run is executed; its id ignores them."""


# Fits a signed int32. Other programs add up to a few thousand to a run's seed (verl-agent's workers
# count up from it), and NumPy's older generators take at most 32 bits.
LARGEST_SEED = 2**31 - 1


def _fits(seed: int) -> int:
    """Refuse a seed that one of the random generators would refuse in the middle of a run."""
    if not 0 <= seed <= LARGEST_SEED:
        text = f"a seed is a whole number from 0 to {LARGEST_SEED}"
        raise PydanticCustomError("seed_range", "{text}", {"text": text})
    return seed


Seed = Annotated[int, AfterValidator(_fits)]
"""Seed that all random generators accept, also after other programs have added to it."""


class Strict(BaseModel):
    """Frozen model that rejects unknown keys. Values are in ``conf/``, not defaults here.

    NaN and infinities are rejected, because JSON has neither and a recorded configuration must be
    readable. true and false are rejected as numbers: pydantic would read them as 1 and 0.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_truth_values_as_numbers(
        cls, data: Any, validate: ModelWrapValidatorHandler[Self]
    ) -> Self:
        validated = validate(data)
        if isinstance(data, Mapping):
            wrong = [
                InitErrorDetails(type=_NO_NUMBER, loc=(name,), input=value)
                for name, value in data.items()
                if _was_truth_value(value, getattr(validated, name, None))
            ]
            if wrong:
                raise ValidationError.from_exception_data(cls.__name__, wrong)
        return validated


_NO_NUMBER = PydanticCustomError(
    "number_from_bool", "a number is expected, which true and false are not"
)


def _was_truth_value(given: Any, validated: Any) -> bool:
    """Return True if pydantic made a number of true or false, also in lists and mappings."""
    if isinstance(given, bool):
        return isinstance(validated, int | float) and not isinstance(validated, bool)
    if isinstance(given, Mapping) and isinstance(validated, Mapping):
        return any(
            _was_truth_value(value, validated[key])
            for key, value in given.items()
            if key in validated
        )
    if isinstance(given, list | tuple) and isinstance(validated, list | tuple):
        return any(map(_was_truth_value, given, validated))
    return False
