"""Keys that a configuration can have: of the schema's models, and of composed mappings."""

import typing
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel


def schema_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """All dotted keys that a model's fields can have, over every member of a union."""
    keys = []
    for name, field in model.model_fields.items():
        keys.append(f"{prefix}{name}")
        if typing.get_origin(field.annotation) is dict:
            # The keys of a dict field are free.
            continue
        below = []
        for member in models_in(field.annotation):
            below += schema_keys(member, f"{prefix}{name}.")
        keys += dict.fromkeys(below)
    return keys


def dotted_keys(data: Any, prefix: str = "") -> list[str]:
    """All keys of nested mappings, with dots: sections and leaves."""
    if not isinstance(data, dict):
        return []
    names = [f"{prefix}{key}" for key in data]
    for key, value in data.items():
        names += dotted_keys(value, f"{prefix}{key}.")
    return names


def fields_at(location: Sequence[int | str], model: type[BaseModel]) -> list[str]:
    """The names of the fields possible at a location of a validation error."""
    return sorted({name for member in models_at(location, model) for name in member.model_fields})


def models_at(location: Sequence[int | str], model: type[BaseModel]) -> list[type[BaseModel]]:
    """The models possible at a location.

    A field descends, a union's tag narrows, a dict's key does neither.
    """
    members = [model]
    for part in location:
        fields = [member.model_fields[part] for member in members if part in member.model_fields]
        if fields:
            members = [found for field in fields for found in models_in(field.annotation)]
        else:
            members = [member for member in members if has_tag(member, part)] or members
    return members


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation names, members of a union included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in typing.get_args(annotation) for found in models_in(argument)]


def has_tag(member: type[BaseModel], tag: int | str) -> bool:
    """Return True if a field of the model is a literal that allows the tag of a union."""
    annotations = [field.annotation for field in member.model_fields.values()]
    tags = [typing.get_args(kind) for kind in annotations if typing.get_origin(kind) is Literal]
    return any(tag in allowed for allowed in tags)
