"""Keys and models of a configuration: all that the schema allows, and those of a composed one."""

import typing
from collections.abc import Sequence
from typing import Any, Literal

from pydantic import BaseModel


def schema_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """All dotted keys that a model allows, such as ``env`` and ``env.games``.

    Where a field is a union of models, the keys of every member are included, each once.
    """
    keys = []
    for name, field in model.model_fields.items():
        keys.append(f"{prefix}{name}")
        # A dict field accepts any key.
        if typing.get_origin(field.annotation) is dict:
            continue
        below = []
        for member in models_in(field.annotation):
            below += schema_keys(member, f"{prefix}{name}.")
        keys += dict.fromkeys(below)
    return keys


def dotted_keys(data: Any, prefix: str = "") -> list[str]:
    """All dotted keys of nested dicts: those of values, and those of the dicts around them."""
    if not isinstance(data, dict):
        return []
    names = [f"{prefix}{key}" for key in data]
    for key, value in data.items():
        names += dotted_keys(value, f"{prefix}{key}.")
    return names


def fields_at(location: Sequence[int | str], model: type[BaseModel]) -> list[str]:
    """Sorted names of the fields that are possible at a location; see ``models_at``."""
    names: set[str] = set()
    for member in models_at(location, model):
        names |= member.model_fields.keys()
    return sorted(names)


def models_at(location: Sequence[int | str], model: type[BaseModel]) -> list[type[BaseModel]]:
    """The models that are possible at a location; several where it leads to a union.

    Args:
        location: ``loc`` of a pydantic error, such as ``("method", "trained", "estimator")``. It
            has names of fields, tags of discriminated unions, and keys of dict fields.
        model: The model in which the location starts.
    """
    members = [model]
    for part in location:
        fields = [member.model_fields[part] for member in members if part in member.model_fields]
        if fields:
            # The name of a field: continue in the models of its annotation.
            members = []
            for field in fields:
                members += models_in(field.annotation)
        else:
            # The tag of a union selects some of its members; the key of a dict changes nothing.
            tagged = [member for member in members if has_tag(member, part)]
            members = tagged or members
    return members


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """All models in a type annotation, such as the members of a union or the values of a dict."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    models = []
    for argument in typing.get_args(annotation):
        models += models_in(argument)
    return models


def has_tag(member: type[BaseModel], tag: int | str) -> bool:
    """True if a ``Literal`` field of the model allows this tag of a discriminated union."""
    for field in member.model_fields.values():
        is_literal = typing.get_origin(field.annotation) is Literal
        if is_literal and tag in typing.get_args(field.annotation):
            return True
    return False
