"""Differences between the configurations of runs, in print."""

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from analysis.sources.configurations import (
    NOT_COMPARED,
    Panels,
    differing_panels,
    in_print,
    is_prompted,
    leaves,
    short_hash,
    shown_value,
)
from scpo.progress import counted
from scpo.schema.scorer_defaults import scorer_defaults

# Settings that belong to a method but are outside of its section: DAPO's upper clip range.
OF_THE_METHOD = ("trainer.loss.clip_high",)

# Settings by which a method compares steps and states, with their defaults (conf/method,
# conf/estimator). OWN_STATES: methods with another default of ``estimator.states``.
COMPARED_BY = {
    "shaper.matcher": "kmp",
    "shaper.states": None,
    "shaper.step_text": "action_next_observation",
    "estimator.states": "exact",
}
OWN_STATES = {"scpo_plus": "effects"}

# Sections that only training reads, so a run that prompts does not differ by them.
TRAINING_ONLY = ("trainer.optimizer.", "trainer.loss.")

# Number of differences that are printed in full.
MOST_DIFFERENCES = 3


def variants(
    configurations: Sequence[str],
    reference: str | None = None,
    method: Mapping[str, Any] | None = None,
) -> list[tuple[tuple[str, str], ...]]:
    """Name what sets each configuration apart from the others.

    Args:
        configurations: Different ones, as ``configuration_of`` gives them.
        reference: Configuration whose values are not named; by default the values that more than
            half of the configurations have.
        method: Section whose values are not named of the settings of the method; None: those of
            the reference.

    Returns:
        For each configuration (key, value) pairs such as ``("alpha", "0.25")``, at most
        ``MOST_DIFFERENCES``, and the number of further ones: ``("more settings", "2")``. A hash is
        added if several configurations would get the same pairs, or if only a reference is given
        and one would get no pair. Empty for one with default values only.
    """
    flat = [dict(leaves(json.loads(text))) for text in configurations]
    usual = None if reference is None else dict(leaves(json.loads(reference)))
    of_method = None if method is None else dict(leaves({"method": method}))
    compared = flat if usual is None else [usual, *flat]
    if of_method is not None and flat:
        others = {key: value for key, value in flat[0].items() if not _is_of_method(key)}
        compared = [*compared, others | of_method]
    names = _varied_keys(compared)
    # Only a few settings are named: those in which the configurations differ from each other come
    # first, then those of the method.
    alike = {key for key in names if len({shown_value(config, key) for config in flat}) < 2}
    order = sorted(names, key=lambda key: (key in alike, key in alike and not _is_of_method(key)))
    common: dict[str, str | None] = {}
    for key in order:
        if of_method is not None and _is_of_method(key):
            common[key] = shown_value(of_method, key)
        else:
            common[key] = _common(key, flat, usual)
    named = []
    for config in flat:
        pairs = []
        for key in order:
            value = shown_value(config, key)
            if value != common[key]:
                pairs.append((names[key], value))
        more = len(pairs) - MOST_DIFFERENCES
        pairs = pairs[:MOST_DIFFERENCES]
        if more > 0:
            pairs.append(("more settings", str(more)))
        named.append(tuple(pairs))
    counts = Counter(named)
    only_reference = usual is not None and method is None
    unique = []
    for text, variant in zip(configurations, named, strict=True):
        if counts[variant] > 1 or (only_reference and not variant):
            unique.append((*variant, ("configuration", short_hash(text))))
        else:
            unique.append(variant)
    return unique


def _is_of_method(key: str) -> bool:
    return key.startswith("method.")


def own_settings(configuration: str, configurations: Sequence[str]) -> dict[str, str]:
    """Name a configuration by all settings in which these configurations differ.

    Unlike ``variants``, it leaves out no setting, because a part may be equal in two of them.

    Args:
        configuration: The configuration to name, as ``configuration_of`` gives it.
        configurations: Different ones, with this one among them.

    Returns:
        Key -> its name and value in print, for example ``games=64``.
    """
    own = dict(leaves(json.loads(configuration)))
    names = _varied_keys([dict(leaves(json.loads(text))) for text in configurations])
    return {key: f"{name}={shown_value(own, key)}" for key, name in names.items()}


def _varied_keys(flat: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Keys whose values differ between flat configurations -> the name of the key in print.

    The name is the key's last part, or as many of the last parts as no other differing key ends in.
    """
    paths: dict[str, str] = {}
    for key in sorted(set().union(*flat), key=_names_first):
        if len({shown_value(config, key) for config in flat}) > 1:
            # A section is named by its kind: `scorer.name` is printed as `scorer`.
            paths[key] = key.removesuffix(".name")
    paths = {key: path for key, path in paths.items() if not _follows(key, flat, paths)}
    ends = Counter(end for path in paths.values() for end in _ends(path))
    names = {}
    for key, path in paths.items():
        # The whole path may be the end of another one.
        names[key] = next((end for end in _ends(path) if ends[end] == 1), path)
    return names


def _follows(key: str, flat: Sequence[Mapping[str, Any]], varied: Collection[str]) -> bool:
    """True if a setting follows from the name of its section, as ``scorer.kind`` does.

    A setting of a scorer that is not the scorer's default does not.

    Args:
        key: The setting.
        flat: The flat configurations.
        varied: Keys whose values differ between them.
    """
    if key.startswith("scorer.") and key != "scorer.name" and "scorer.name" in varied:
        return not any(_is_set(key, config) for config in flat)
    if not key.endswith(".kind") and all(key in config for config in flat):
        return False
    for end in _ends(key):
        name = f"{key.removesuffix(end)}name"
        if name == key or name not in varied:
            continue
        values: dict[str, set[str]] = {}
        for config in flat:
            values.setdefault(shown_value(config, name), set()).add(shown_value(config, key))
        if all(len(own) == 1 for own in values.values()):
            return True
    return False


def _ends(path: str) -> list[str]:
    """The ends of a dotted path, the shortest first: ``c``, ``b.c`` and ``a.b.c``."""
    parts = path.split(".")
    return [".".join(parts[first:]) for first in reversed(range(len(parts)))]


def _names_first(key: str) -> tuple[bool, str]:
    """Sort key for configuration keys.

    Names come first, because only a few differences are printed, and a section of another kind
    differs in many keys.
    """
    return (not key.endswith(".name"), key)


def _common(
    key: str, flat: Sequence[Mapping[str, Any]], usual: Mapping[str, Any] | None
) -> str | None:
    """Value of the reference, or that of more than half of the configurations, or None."""
    if usual is not None:
        return shown_value(usual, key)
    value, count = Counter(shown_value(own, key) for own in flat).most_common(1)[0]
    return value if 2 * count > len(flat) else None


def setting_differences(
    config: Mapping[str, Any],
    other: Mapping[str, Any],
    games: tuple[Panels, Panels] = ({}, {}),
    without: Collection[str] = (),
    show_others: bool = True,
) -> str:
    """Describe the differences between two configurations, except for seed, method and machine.

    Args:
        config: The configuration to describe.
        other: Configuration of the runs that it is compared with.
        games: Validation panels of both, with the hashes of their tasks.
        without: Keys to leave out.
        show_others: Whether to show the other configuration's values as well.

    Returns:
        For example ``trainer=local (the others: verl)``, or ``trainer=local`` without the others'
        values; empty if nothing differs.
    """
    keys = [key for key in differing_keys(config, other) if key not in without]
    first = _compared_leaves(config)
    second = _compared_leaves(other)
    differences = []
    for key in keys:
        text = f"{key.removesuffix('.name')}={shown_value(first, key)}"
        if show_others:
            text += f" (the others: {shown_value(second, key)})"
        differences.append(text)
    differences += differing_panels(*games)
    text = "; ".join(differences[:MOST_DIFFERENCES])
    if len(differences) > MOST_DIFFERENCES:
        text += f"; {counted(len(differences) - MOST_DIFFERENCES, 'more setting')}"
    return text


def method_settings(config: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Name the settings of ``OF_THE_METHOD`` that differ between two configurations.

    Returns:
        For example ``trainer.loss.clip_high=0.28``; empty if none differs.
    """
    first, second = dict(leaves(config)), dict(leaves(other))
    differing = [key for key in OF_THE_METHOD if first.get(key) != second.get(key)]
    return "; ".join(f"{key}={shown_value(first, key)}" for key in differing)


def own_method_differences(
    config: Mapping[str, Any],
    other: Mapping[str, Any],
    others: str = "the others",
    without: Collection[str] = (),
    *,
    show_others: bool = True,
) -> str:
    """Describe the differences in settings of the method between two runs of one method.

    Args:
        config: The configuration to describe.
        other: Configuration of the run that it is compared with.
        others: What the other is called in print.
        without: Keys to leave out.
        show_others: Name the values of the other, too.

    Returns:
        For example ``method.shaper.order=chronological (the others: reverse)``; empty if nothing
        differs, and for two methods, whose settings are the methods'.
    """
    own, compared = config.get("method"), other.get("method")
    if not isinstance(own, dict) or not isinstance(compared, dict):
        return ""
    if own.get("name") != compared.get("name"):
        return ""
    first, second = (dict(leaves({"method": method})) for method in (own, compared))
    texts = []
    for key in differing_leaves(first, second):
        if key in without:
            continue
        text = f"{key.removesuffix('.name')}={shown_value(first, key)}"
        texts.append(f"{text} ({others}: {shown_value(second, key)})" if show_others else text)
    return "; ".join(texts)


def differ_only_in(key: str, config: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """True if two runs of one method differ in no setting except for one of the method.

    Args:
        key: The setting that may differ, e.g. ``method.shaper.theta``. Seed, machine and the
            method's label, which does not affect a run, may differ as well.
        config: The configuration of one run.
        other: The configuration of the other run.
    """
    if config["method"].get("name") != other["method"].get("name"):
        return False
    without = (key, "method.label")
    return not (
        any(differing_keys(config, other))
        or method_settings(config, other)
        or own_method_differences(config, other, without=without)
    )


def unusual_comparison(config: Mapping[str, Any]) -> str:
    """Name the settings of ``COMPARED_BY`` that are not the default of a run's method.

    Returns:
        For example ``method.shaper.matcher=forward (default: kmp)``; empty if all are the default.
    """
    method = config.get("method")
    if not isinstance(method, dict):
        return ""
    parts = []
    for key, common in COMPARED_BY.items():
        section, name = key.split(".")
        own = method.get(section)
        if not isinstance(own, dict):
            continue
        usual = common
        if key == "estimator.states":
            usual = OWN_STATES.get(str(method.get("name")), common)
        # Records leave out settings that are off.
        value = own.get(name, usual)
        if value != usual:
            parts.append(f"method.{key}={in_print(value)} (default: {in_print(usual)})")
    return "; ".join(parts)


def differing_keys(config: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Yield each key that differs, except for seed, method and machine.

    If a section is of another kind, keys that only one kind has are left out. For example, verl's
    trainer has other keys than the local one, and a list of them would hide the important
    difference, ``trainer=verl``. Settings of a scorer that are not its default ones are kept.
    """
    first = _compared_leaves(config)
    second = _compared_leaves(other)
    untrained = TRAINING_ONLY if is_prompted(config) or is_prompted(other) else ()
    keys = list(differing_leaves(first, second))
    if "scorer.name" in keys:
        keys = _of_other_scorers(keys, first, second)
    for key in keys:
        if not key.startswith(untrained):
            yield key


def _of_other_scorers(
    keys: Sequence[str], first: Mapping[str, Any], second: Mapping[str, Any]
) -> list[str]:
    """Differing keys of two configurations with different scorers.

    Settings of the scorers are included only if one of the scorers does not use its default. They
    follow the scorer's name.
    """
    own = []
    for key in sorted({*first, *second}):
        is_setting = key.startswith("scorer.") and key != "scorer.name"
        is_other = shown_value(first, key) != shown_value(second, key)
        if is_setting and is_other and (_is_set(key, first) or _is_set(key, second)):
            own.append(key)
    kept = [key for key in keys if key == "scorer.name" or not key.startswith("scorer.")]
    after = kept.index("scorer.name") + 1
    return [*kept[:after], *own, *kept[after:]]


def _is_set(key: str, flat: Mapping[str, Any]) -> bool:
    """True if a setting of the configuration's scorer differs from the scorer's default.

    Without a known default, every setting of the scorer counts as different.

    Args:
        key: The setting, such as ``scorer.cosine_floor``.
        flat: The flat configuration.
    """
    if key == "scorer.kind":
        return False
    defaults = scorer_defaults(str(flat.get("scorer.name")))
    if not defaults:
        return key in flat
    return shown_value(flat, key) != shown_value(dict(leaves({"scorer": defaults})), key)


def differing_leaves(first: Mapping[str, Any], second: Mapping[str, Any]) -> Iterator[str]:
    """Yield each key that differs; of sections of another kind, only those that both have."""
    # Prefixes of sections whose kind differs, such as "trainer.".
    renamed = set()
    for key, value in first.items():
        if key.endswith(".name") and value != second.get(key, value):
            renamed.add(key.removesuffix("name"))
    for key in sorted({*first, *second}, key=_names_first):
        if first.get(key) == second.get(key):
            continue
        depends_on_kind = key.endswith(".kind") or key not in first or key not in second
        if depends_on_kind and key.startswith(tuple(renamed)):
            continue
        yield key


def _compared_leaves(config: Mapping[str, Any]) -> dict[str, Any]:
    compared = {key: value for key, value in config.items() if key not in NOT_COMPARED}
    kept: dict[str, Any] = {}
    for key, value in leaves(compared):
        if key not in OF_THE_METHOD and value != {}:
            kept[key] = value
    return kept
