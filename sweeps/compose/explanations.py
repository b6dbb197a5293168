"""What Hydra's and pydantic's errors mean for the person who typed the command."""

import difflib
import re
import typing
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sweeps.compose.reflexes import SHORT, explain_foreign_key

WRITTEN_AS = {"env=webshop_paper": "env=webshop env.setting=paper"}
"""Choices that people look for under another name, and how they are written."""


def explain_syntax(override: str, message: str) -> str:
    """An override that Hydra's grammar refuses."""
    cause = message.splitlines()[0] if "=" in override else "there is no = in it"
    return f"{override!r} is no override ({cause}); write key=value, quoted if it has [ ] {{ }} or spaces"


def explain_bare_name(name: str, group: str) -> str:
    """The name of an experiment or a search without the override that chooses it."""
    return f"{name!r} is no override; the {group} of that name: python sweep.py +{group}={name}"


def explain_sweep_word(override: str, key: str) -> str:
    """An override of sweep.py among those of a single run."""
    if key == "dry_run":
        return f"{override}: only experiments and searches have one: python sweep.py +experiment=<name> {override}"
    return f"{override}: these overrides are for one run; with +{key}, it is python sweep.py +{override.lstrip('+')}"


def explain_option(override: str, group: str, got: str, options: Sequence[str]) -> str:
    """A choice that a config group does not have."""
    hint = f"; write {WRITTEN_AS[override]}" if override in WRITTEN_AS else did_you_mean(got, options)
    return f"{override}: no {group} is called {got!r}{hint}\nallowed: {', '.join(options)}"


def explain_host(override: str, got: str, hosts: Sequence[str]) -> str:
    """A host that the shaper's credit cannot reach an advantage through."""
    return (
        f"{override}: {got!r} is no host of SCPO{did_you_mean(got, hosts)}\n"
        f"allowed: {', '.join(hosts)} (the estimators that read a step's bonus; others would lose the credit)"
    )


_NO_SCALE_OF_ENV = re.compile(r"'scale/env/([a-z]+)_([a-z_]+)'")


def explain_hydra(
    error: Exception, overrides: Sequence[object], default: Callable[[], dict[str, Any]], model: type[BaseModel]
) -> str:
    """A composition that failed: find the override at fault and say what would have been right."""
    if missing := _NO_SCALE_OF_ENV.search(str(error)):
        scale, env = missing.groups()
        return f"scale={scale} has no settings for env={env}; conf/scale/env/{scale}_*.yaml are what it has"
    for override in map(str, overrides):
        key = override.lstrip("+~").partition("=")[0]
        if key == "method.host" and "'estimator@method.estimator'" in str(error):
            return f"{override}: this method has no estimator and so no host; method=scpo has one"
        if f"'{key}'" in str(error) and f"The value of '{key}'" not in str(error):
            inside = str(getattr(error.__cause__, "full_key", None))  # of a mapping: method={nme: x}
            return explain_key(inside if inside.startswith(f"{key}.") else override, default(), model)
    where = [" ".join(map(str, overrides))] if isinstance(error, TypeError | ValueError) else []  # Python names none
    causes = [str(one) for one in (error, error.__cause__) if one is not None]
    return ": ".join([*where, *(cause.splitlines()[0] for cause in causes if cause)])


def explain_interpolation(error: OmegaConfBaseException, data: Any) -> str:
    """A reference to a value that is not there, as when ``env.setting`` names none of ``env.settings``."""
    found = re.search(r"Interpolation key '([^']+)' not found", str(error))
    if found is None:
        return f"{error.full_key or 'a value'}: {str(error).splitlines()[0]}"
    parts = found[1].split(".")
    for depth, part in enumerate(parts):
        if not isinstance(data, dict) or part not in data:
            section = ".".join(parts[:depth]) or "the configuration"
            keys = ", ".join(map(str, data)) if isinstance(data, dict) else "no keys"
            hint = did_you_mean(part, keys.split(", "))
            return f"{error.full_key}: {section} has no {part!r}{hint}\n{section} has {keys}"
        data = data[part]
    return f"{error.full_key}: {found[0]}"


def explain_key(override: str, default: dict[str, Any], model: type[BaseModel]) -> str:
    """An override of a key that the configuration does not have."""
    key, _, value = override.lstrip("+~").partition("=")
    parent = key.rpartition(".")[0]
    if foreign := explain_foreign_key(key, value):
        return foreign
    if override.startswith("+"):
        return f"{override}: {key} is in the configuration already; leave out the +"
    if key in schema_keys(model):
        return _explain_absent(override, key, default, model)
    present = dotted_keys(default)
    beside = [one for one in present if _within(one, parent)]
    return _unknown(key, "", [*schema_keys(model), *present], beside)


def _explain_absent(override: str, key: str, default: dict[str, Any], model: type[BaseModel]) -> str:
    """A key of the schema that this configuration has no value of."""
    parent, _, name = key.rpartition(".")
    while parent and parent not in dotted_keys(default):  # a section that this choice does not have
        parent, _, name = parent.rpartition(".")
    fields = _fields_at(_with_tags(parent, default), model)
    if name not in fields:
        keys = ", ".join(fields)
        return f"{override}: {parent} has no such key here, other choices of it do\nkeys of {parent}: {keys}"
    if parent and parent not in {one.rpartition(".")[0] for one in dotted_keys(default)}:
        return f"{override}: {key} is not set in this configuration: its section {parent} is null here"
    if override.startswith("~"):
        return f"{override}: {key} is not set in this configuration"
    return f"{override}: {key} is not set in this configuration; +{override} adds it where its section is not null"


def _with_tags(key: str, data: Any) -> list[str]:
    """Where a section is, as pydantic would say it: with what each section on the way there is called."""
    location = []
    for part in key.split("."):
        data = data.get(part) if isinstance(data, dict) else None
        location.append(part)
        location += [data[tag] for tag in ("name", "kind") if isinstance(data, dict) and isinstance(data.get(tag), str)]
    return location


def _unknown(key: str, got: str, known: Sequence[str], here: Sequence[str] = ()) -> str:
    """``known``: where a near miss is looked for; ``here``: what stands beside the key, if that is known."""
    parent, _, name = key.rpartition(".")
    siblings = sorted({one[len(parent) :].lstrip(".").split(".")[0] for one in (here or known) if _within(one, parent)})
    others = [one for one in dict.fromkeys(known) if one != key]
    meant = SHORT.get(name)
    same = [one for one in others if one.rpartition(".")[2] == name]
    near = [key.removesuffix(name) + one for one in difflib.get_close_matches(name, siblings, n=1)]
    hint = did_you_mean(key, [] if siblings else others, [meant] if meant in others else same or near)
    keys = f"\nkeys of {parent or 'the configuration'}: {', '.join(siblings)}" if siblings else ""
    return f"unknown key {key}{got}{hint}{keys}"


def schema_keys(model: type[BaseModel], prefix: str = "") -> list[str]:
    """All dotted keys that a model's fields can have, over every member of a union."""
    keys = []
    for name, field in model.model_fields.items():
        below = [key for member in models_in(field.annotation) for key in schema_keys(member, f"{prefix}{name}.")]
        is_mapping = typing.get_origin(field.annotation) is dict
        keys += [f"{prefix}{name}", *dict.fromkeys([] if is_mapping else below)]
    return keys


def explain_validation(error: ValidationError, model: type[BaseModel]) -> str:
    """One line for each thing that the schema refuses, with what was got and what is allowed."""
    details = {tuple(_without_types(detail["loc"])): detail for detail in reversed(error.errors(include_url=False))}
    told = [{**detail, "loc": place} for place, detail in reversed(details.items())]
    return "\n".join(_explain_detail(detail, model) for detail in told)  # type: ignore[arg-type]


_TYPE = re.compile(r"(constrained-|literal\[|dict\[|tuple\[|list\[).*|int|str|float|bool")


def _without_types(location: Sequence[int | str]) -> Iterator[int | str]:
    """A place without the types that pydantic tried there, of which the first one is what people mean."""
    yield from (part for part in location if not (isinstance(part, str) and _TYPE.fullmatch(part)))


def did_you_mean(name: str, known: Iterable[str], first: Sequence[str] = ()) -> str:
    """`; did you mean x?` for the nearest known name, or nothing."""
    names, small = list(known), name.lower()
    nearest = list(first) or [one for one in names if one.lower() == small]
    nearest = nearest or difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    nearest = nearest or [one for one in names if len(small) > 2 and one.lower().startswith(small)]
    return f"; did you mean {' or '.join(nearest[:3])}?" if nearest else ""


def dotted_keys(data: Any, prefix: str = "") -> list[str]:
    """All keys of nested mappings, with dots: sections and leaves."""
    if not isinstance(data, dict):
        return []
    names = [f"{prefix}{key}" for key in data]
    return names + [name for key, value in data.items() for name in dotted_keys(value, f"{prefix}{key}.")]


def _within(name: str, parent: str) -> bool:
    return not parent or name.startswith(f"{parent}.")


def _explain_detail(detail: ErrorDetails, model: type[BaseModel]) -> str:
    location = [part for part in detail["loc"] if not _is_tag(part, detail, model)]
    key, got = ".".join(map(str, location)), detail["input"]
    if detail["type"] == "extra_forbidden":
        here = [".".join(map(str, [*location[:-1], name])) for name in _fields_at(detail["loc"][:-1], model)]
        return _unknown(key, f" (got {_shorten(got)})", [*here, *schema_keys(model)], here)
    if detail["type"] == "value_error":  # a validator of ours, whose message says all there is to say
        return ": ".join(filter(None, [key, str(detail["ctx"]["error"])]))
    if detail["type"] in ("model_type", "model_attributes_type"):
        return f"{key}: got {_shorten(got)}; it is a section: set its keys one by one, {key}.<key>=<value>"
    if detail["type"] == "missing":
        return f"{key} is missing"
    expected = str(detail.get("ctx", {}).get("expected") or detail.get("ctx", {}).get("expected_tags") or "")
    hint = (
        did_you_mean(str(got), [name.strip(" '") for name in expected.replace(" or ", ",").split(",")])
        if expected
        else ""
    )
    return f"{key}: got {_shorten(got)}; {detail['msg'][0].lower()}{detail['msg'][1:]}{hint}"


def _shorten(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _is_tag(part: int | str, detail: ErrorDetails, model: type[BaseModel]) -> bool:
    """Pydantic puts the chosen member of a union (`gigpo`) into a location; a reader of YAML knows no such key."""
    at = detail["loc"].index(part)
    before, after = _models_at(detail["loc"][:at], model), _models_at(detail["loc"][: at + 1], model)
    return at > 0 and len(before) > 1 and len(after) <= len(before) and any(_has_tag(member, part) for member in before)


def _fields_at(location: Sequence[int | str], model: type[BaseModel]) -> list[str]:
    return sorted({name for member in _models_at(location, model) for name in member.model_fields})


def _models_at(location: Sequence[int | str], model: type[BaseModel]) -> list[type[BaseModel]]:
    """The models that may stand at a location: fields descend, a union's tag narrows, keys of a dict change nothing."""
    members = [model]
    for part in location:
        fields = [member.model_fields[part] for member in members if part in member.model_fields]
        if fields:
            members = [found for field in fields for found in models_in(field.annotation)]
        else:
            members = [member for member in members if _has_tag(member, part)] or members
    return members


def models_in(annotation: Any) -> list[type[BaseModel]]:
    """The models that an annotation names, members of a union included."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for argument in typing.get_args(annotation) for found in models_in(argument)]


def _has_tag(member: type[BaseModel], tag: int | str) -> bool:
    annotations = (field.annotation for field in member.model_fields.values())
    return any(typing.get_origin(one) is Literal and tag in typing.get_args(one) for one in annotations)
