"""Shell completion of overrides: keys, and after the = the allowed values."""

import typing
from typing import Any, Literal

from pydantic import BaseModel

from scpo.advantages.registry import HOSTS
from scpo.schema.run import RunConfig
from scpo.shaping.matcher import MATCHERS
from sweeps.compose.overrides import CONF, HOST_KEY, options
from sweeps.compose.schema_keys import models_in, schema_keys

SCRIPT = r"""# completion of sweep.py, train.py and `python -m sweeps doctor`, for bash and
# (after bashcompinit) zsh:
#     source <(python -m sweeps completion)
_scpo_complete() {
    local line="${COMP_LINE:0:COMP_POINT}" word
    # Any other call of Python: file names.
    case " $line" in *sweep.py\ *|*train.py\ *|*"-m sweeps doctor "*) ;; *) return 1 ;; esac
    word="${line##*[[:space:]]}"
    # Bash splits a word at each =, and replaces only the part after the last one.
    local IFS=$'\n' prefix=""
    case "$word" in *=*) prefix="${word%"${word##*=}"}" ;; esac
    COMPREPLY=()
    local match
    for match in $(python -m sweeps completion --word "$word" 2>/dev/null); do
        COMPREPLY+=("${match#"$prefix"}")
    done
}
complete -o default -o nospace -F _scpo_complete python python3
"""


def candidates(word: str) -> list[str]:
    """Completions of ``word``: whole overrides, or keys with their = if a value comes next."""
    key, equals, _ = word.partition("=")
    if equals:
        words = [f"{key}={value}" for value in values_of(key.lstrip("+~"))]
        return [candidate for candidate in words if candidate.startswith(word)]

    keys = {"+experiment=", "+search="}
    # One level at a time, as with folders: ``trainer.`` is offered before the keys below it.
    depth = word.count(".") + 1
    for name in (*_groups(), HOST_KEY, "seeds", "rows", "dry_run", *schema_keys(RunConfig)):
        parts = name.split(".")
        ending = "." if len(parts) > depth else "="
        keys.add(".".join(parts[:depth]) + ending)
    return sorted(candidate for candidate in keys if candidate.startswith(word))


def values_of(key: str) -> list[str]:
    """Completions after the =; empty where any value is allowed."""
    if key == HOST_KEY:
        return list(HOSTS)
    # The schema does not list matchers, because notebooks may register more.
    if key == "method.shaper.matcher":
        return list(MATCHERS)
    if (CONF / key).is_dir():
        return options(key)
    if key == "dry_run":
        return ["true", "false"]
    return _allowed(_annotations(RunConfig, key.split(".")))


def _groups() -> list[str]:
    """Config groups that a run's overrides may choose from."""
    folders = [path.name for path in CONF.iterdir() if path.is_dir()]
    # Experiments and searches are added with a +; an estimator is chosen by the method's file.
    return [name for name in folders if name not in ("experiment", "search", "estimator")]


def _annotations(model: type[BaseModel], parts: list[str]) -> list[Any]:
    """Types of the field at a dotted key: several where a section is a union of models."""
    # Models that may hold the next part of the key.
    members: list[type[BaseModel]] = [model]
    found: list[Any] = []
    for part in parts:
        fields = [member.model_fields[part] for member in members if part in member.model_fields]
        found = [field.annotation for field in fields]
        members = []
        for annotation in found:
            members += models_in(annotation)
    return found


def _allowed(annotations: list[Any]) -> list[str]:
    """Allowed values of fields with these types, each once; for a union, those of all members."""
    values: list[str] = []
    for annotation in annotations:
        if annotation is bool:
            values += ["true", "false"]
        elif typing.get_origin(annotation) is Literal:
            values += [str(argument) for argument in typing.get_args(annotation)]
        else:
            # Members of a union, items of a list; none for a plain type such as int.
            arguments = typing.get_args(annotation)
            values += _allowed([argument for argument in arguments if argument is not type(None)])
    return list(dict.fromkeys(values))
