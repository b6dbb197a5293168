"""Methods, scorers and environments by name, with the values of ``conf/``, without a trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from scpo.advantages.registry import HOSTS
from scpo.envs import make_environment
from scpo.envs.base import Environment
from scpo.errors import ConfigError
from scpo.schema.composed import composed
from scpo.schema.env import EnvConfig
from scpo.schema.method import TrainedMethod
from scpo.schema.parts import CONF, configuration_folders, missing_configuration
from scpo.schema.scorer import ScorerConfig
from scpo.scoring import make_scorer
from scpo.shaping.drive import Scorer
from scpo.suggestions import did_you_mean

# These select the class of the other settings, so a caller must not change them.
FIXED = {"kind", "name"}


def load_method(
    name: str,
    /,
    *,
    host: str | None = None,
    env: Literal["alfworld", "webshop"] = "alfworld",
    **settings: Any,
) -> TrainedMethod:
    """Load a method from ``conf/method/<name>.yaml``, where each value is given with its source.

    Args:
        name: ``scpo``, ``gigpo``, ``grpo``, ...
        host: The estimator that SCPO's credit goes through; None: GiGPO, as in the paper.
        env: The benchmark whose values are used for settings that differ between benchmarks
            (alpha, the filter of no-ops).
        settings: Values that replace those of the YAML, by key: the shaper's (``theta=0.5``), the
            estimator's (``omega=0.5``) or the method's own (``clip_high=0.28``).

    Raises:
        ConfigError: Unknown name or setting, or invalid value; the message lists the allowed ones.
    """
    _check_name(name, "method")
    if host is not None and host not in HOSTS:
        raise ConfigError(
            f"host={host!r} is not a host of SCPO{did_you_mean(str(host), HOSTS)}; "
            f"allowed: {', '.join(HOSTS)}"
        )

    overrides = [f"env={env}", f"method={name}"]
    if host:
        overrides.append(f"estimator@method.estimator={host}")
    data = composed(*overrides)["method"]
    if data["kind"] != "trained":
        raise ConfigError(
            f"method {name!r} prompts a model and assigns no credit; `python train.py "
            f"method={name}` runs it"
        )
    # Hydra would replace the estimator of any method: `grpo` would be GiGPO under another name.
    if host and not data["shaper"]:
        raise ConfigError(
            f"method {name!r} has no shaper and so no host; load_method('scpo', host={host!r})"
        )
    # In this order, because a name that two sections share means the shaper's setting.
    sections = [section for section in (data["shaper"], data["estimator"], data) if section]
    for key, value in settings.items():
        _set(name, sections, key, value)
    method: TrainedMethod = _validated(TrainedMethod, data, f"method {name!r}")
    return method


def load_scorer(name: str, /, *, device: str = "cpu", **settings: Any) -> Scorer:
    """Load a scorer from ``conf/scorer/<name>.yaml``.

    ``.score([(text, text), ...])`` returns similarities in [0, 1].

    Args:
        name: ``exact`` and ``lexical`` need no model; ``minilm`` and ``bge_reranker_v2_m3`` load
            theirs here.
        device: Where a model runs, as torch names it.
        settings: Values in place of the YAML's, such as ``path`` or ``cosine_floor``.

    Raises:
        ConfigError: Unknown name or setting, or invalid value; the message lists the allowed ones.
        ScorerError: The scorer's model or packages are missing; the message names the command.
    """
    return make_scorer(_section("scorer", name, "scorer", ScorerConfig, settings), device=device)


def load_environment(
    name: str, /, *, cache_dir: str | None, data: str | None = None, **settings: Any
) -> Environment:
    """Load an environment from ``conf/env/<name>.yaml``.

    Args:
        name: ``alfworld`` or ``webshop``.
        cache_dir: Folder for data that is expensive to build and can be rebuilt; None: no cache.
        data: Folder of its official files.
        settings: Values in place of the YAML's, such as ``games="official"``.

    Raises:
        ConfigError: Unknown name or setting, or invalid value; the message lists the allowed ones.
        GameError: Official games are asked for and not there.
    """
    return make_environment(
        _section("env", name, "environment", EnvConfig, settings), cache_dir=cache_dir, data=data
    )


def _section(group: str, name: str, what: str, form: Any, settings: Mapping[str, Any]) -> Any:
    """Compose and validate one section of the configuration.

    Args:
        group: Folder in ``conf``, which is also the section's key.
        name: File in it, without its ending.
        what: The section's name in messages.
        form: Type that it is validated as.
        settings: Values in place of the YAML's.

    Raises:
        ConfigError: Unknown name or setting, or invalid value.
    """
    _check_name(name, group)
    data = composed(f"{group}={name}")[group]
    for key, value in settings.items():
        _set(name, [data], key, value)
    return _validated(form, data, f"{what} {name!r}")


def _check_name(name: str, group: str) -> None:
    """Check a name before Hydra does, whose error lists search paths instead of a suggestion."""
    folders = (CONF, *configuration_folders())
    known = sorted(path.stem for folder in folders for path in (folder / group).glob("*.yaml"))
    if name not in known:
        missing = missing_configuration(group, name)
        if missing is not None:
            raise ConfigError(missing)
        raise ConfigError(
            f"no {group} is called {name!r}{did_you_mean(name, known)}; allowed: {', '.join(known)}"
        )


def _set(name: str, sections: list[dict[str, Any]], key: str, value: Any) -> None:
    """Set a value in the first of the sections that has the key.

    Only keys that exist can be set, and no subsection as a whole: a misspelt name must not become a
    setting that nothing reads.

    Raises:
        ConfigError: No section has it; the message lists what can be set.
    """
    known: set[str] = set()
    for section in sections:
        allowed = {own for own, old in section.items() if not isinstance(old, Mapping)} - FIXED
        if key in allowed:
            section[key] = value
            return
        known |= allowed
    names = sorted(known)
    raise ConfigError(
        f"{name} has no setting {key!r}{did_you_mean(key, names)}; it has {', '.join(names)}"
    )


def _validated(form: Any, data: dict[str, Any], what: str) -> Any:
    """Validate with pydantic.

    Raises:
        ConfigError: A value is invalid; pydantic's first error in one line.
    """
    try:
        return TypeAdapter(form).validate_python(data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        if first["type"] == "union_tag_invalid":
            context = first["ctx"]
            field = ".".join(filter(None, [key, context["discriminator"].strip("'")]))
            known = context["expected_tags"].replace("'", "")
            raise ConfigError(
                f"{what}: {field} is {context['tag']!r}; allowed: {known}, or a part of your own, "
                "which is registered in the code (`python -m scpo.new` writes one) or by the entry "
                'point of an installed package: CONTRIBUTING.md, "How to add a part"'
            ) from None
        # The input of an error about settings that contradict each other is their whole section.
        got = "" if isinstance(first["input"], Mapping) else f" is {first['input']!r}"
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{what}: {key}{got}; {message}") from None
