"""Configurations of this project's runs as W&B gives them back."""

import functools
from collections.abc import Mapping
from typing import Any, get_type_hints

from pydantic import BaseModel, ValidationError, create_model

from scpo.records.identity import WHOLE, is_id_of, read_configuration, recorded_id
from scpo.schema.run import RunConfig
from scpo.strict import MACHINE_SECTIONS, Strict


def misnamed(logged: Mapping[str, Any], wandb_id: str) -> str | None:
    """Describe how a run of ours in W&B is not the run that it says it is; None if it is.

    Anyone may edit a configuration in W&B, and a fork of a run keeps its parent's.

    Args:
        logged: Its configuration in W&B.
        wandb_id: Its id in W&B, which is the run id but for a run of W&B's own sweeps.
    """
    run_id, stored, _ = read_configuration(logged, wandb_id)
    config = with_floats(stored)
    swept = isinstance(logged.get(WHOLE), dict)
    if run_id != wandb_id and not swept:
        return f"its configuration is that of the run {run_id}: a copy or a fork of it"
    if is_id_of(run_id, config):
        return None
    try:
        described = recorded_id(config)
    except (KeyError, ValueError, TypeError, AttributeError):
        described = "no run of this project"
    return f"its id is {run_id}, and its configuration that of {described}: one of them was edited"


def with_floats(config: Mapping[str, Any]) -> dict[str, Any]:
    """Restore the floats of a configuration: W&B stores 1.0 as 1, which is another run id."""
    try:
        typed = _sections().model_validate(config).model_dump(mode="json")
    except ValidationError:
        return dict(config)
    restored: dict[str, Any] = _typed_as(config, typed)
    return restored


@functools.cache
def _sections() -> type[BaseModel]:
    """The model of a configuration without the sections that only place a run."""
    hints = get_type_hints(RunConfig, include_extras=True)
    fields: dict[str, Any] = {}
    for name in RunConfig.model_fields:
        if name not in MACHINE_SECTIONS:
            fields[name] = (hints[name], ...)
    return create_model("Sections", __base__=Strict, **fields)


def _typed_as(value: Any, typed: Any) -> Any:
    """The value with whole numbers as floats where ``typed`` has floats; no key is added."""
    if isinstance(value, Mapping) and isinstance(typed, Mapping):
        return {key: _typed_as(inner, typed.get(key)) for key, inner in value.items()}
    if isinstance(value, list) and isinstance(typed, list) and len(value) == len(typed):
        return [_typed_as(inner, other) for inner, other in zip(value, typed, strict=True)]
    is_whole = type(value) is int and isinstance(typed, float)
    return float(value) if is_whole else value
