"""Configurations and settings of runs: what they share, and the differences between them.

A configuration is all but seed and machine; runs of one configuration are repetitions. A setting is
all but seed, method and machine; runs of one setting may be compared.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from scpo.strict import MACHINE_SECTIONS

NOT_COMPARED = ("seed", "method", *MACHINE_SECTIONS)

# Keys outside of the method's section that belong to a method: DAPO's upper clip range.
OF_THE_METHOD = ("trainer.loss.clip_high",)

# Number of differences that are printed in full.
MOST_DIFFERENCES = 3

Panels: TypeAlias = Mapping[str, Any]


def configuration_of(config: Mapping[str, Any]) -> str:
    """The configuration without seed and machine, as JSON with sorted keys."""
    shared = {key: value for key, value in config.items() if key not in ("seed", *MACHINE_SECTIONS)}
    return json.dumps(shared, sort_keys=True, default=str)


def short_hash(text: str) -> str:
    """First eight digits of the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def variants(
    configurations: Sequence[str], reference: str | None = None
) -> list[tuple[tuple[str, str], ...]]:
    """Name what sets each configuration apart from the others.

    Args:
        configurations: Different ones, as ``configuration_of`` gives them.
        reference: One whose values need no mention; default: values of most configurations.

    Returns:
        For each configuration (key, value) pairs such as ``("alpha", "0.25")``, at most
        ``MOST_DIFFERENCES`` and no two alike; empty for one that has the usual values only.
    """
    flat = [dict(leaves(json.loads(text))) for text in configurations]
    usual = None if reference is None else dict(leaves(json.loads(reference)))
    every = flat if usual is None else [usual, *flat]
    # Names come first, because a section of another kind has other keys, too.
    keys = sorted({key for own in every for key in own}, key=lambda k: (not k.endswith(".name"), k))
    varied = [key for key in keys if len({_shown(own.get(key)) for own in every}) > 1]
    ends = Counter(_last_word(key) for key in varied)
    named = []
    for own in flat:
        pairs = []
        for key in varied:
            if _shown(own.get(key)) != _common(key, flat, usual):
                word = _last_word(key)
                short = word if ends[word] == 1 else key.removesuffix(".name")
                pairs.append((short, _shown(own.get(key))))
        named.append(tuple(pairs[:MOST_DIFFERENCES]))
    alike = Counter(named)
    unique = []
    for text, words in zip(configurations, named, strict=True):
        if alike[words] > 1 or (usual is not None and not words):
            unique.append((*words, ("configuration", short_hash(text))))
        else:
            unique.append(words)
    return unique


def _last_word(key: str) -> str:
    return key.removesuffix(".name").rpartition(".")[2]


def _common(
    key: str, flat: Sequence[Mapping[str, Any]], usual: Mapping[str, Any] | None
) -> str | None:
    """Value of the reference, or else of more than half of the configurations; None without one."""
    if usual is not None:
        return _shown(usual.get(key))
    value, count = Counter(_shown(own.get(key)) for own in flat).most_common(1)[0]
    return value if 2 * count > len(flat) else None


def setting_of(config: dict[str, Any], panels: dict[str, Any]) -> str:
    """Hash of the panels and of the configuration without seed, method and machine."""
    shared = {key: value for key, value in config.items() if key not in NOT_COMPARED}
    text = json.dumps([shared, _panel_hashes(panels)], sort_keys=True, default=str)
    return short_hash(text)


def setting_differences(
    config: Mapping[str, Any],
    other: Mapping[str, Any],
    games: tuple[Panels, Panels] = ({}, {}),
    without: Collection[str] = (),
) -> str:
    """Describe the differences between two configurations, besides seed and method.

    Args:
        config: The configuration to describe.
        other: Configuration of the runs that it is compared with.
        games: Validation panels of both, with the hashes of their tasks.
        without: Keys to leave out.

    Returns:
        For example ``trainer=local (the others: verl)``; empty if nothing differs.
    """
    keys = [key for key in differing_keys(config, other) if key not in without]
    first = _compared_leaves(config)
    second = _compared_leaves(other)
    differences = []
    for key in keys:
        ours, theirs = _shown(first.get(key)), _shown(second.get(key))
        differences.append(f"{key.removesuffix('.name')}={ours} (the others: {theirs})")
    differences += _differing_panels(*games)
    text = "; ".join(differences[:MOST_DIFFERENCES])
    if len(differences) > MOST_DIFFERENCES:
        text += f"; {len(differences) - MOST_DIFFERENCES} more settings"
    return text


def own_settings(config: Mapping[str, Any], configs: Sequence[Mapping[str, Any]]) -> str:
    """Name a configuration by the settings in which these configurations differ.

    All of them are named: a part could be equal in two configurations.

    Args:
        config: The configuration to name.
        configs: Configurations of the same shape, with this one among them.

    Returns:
        For example ``learning_rate=0.004, games=64``.
    """
    known = [dict(leaves(each)) for each in configs]
    own = dict(leaves(config))
    differing = []
    for key in sorted({key for each in known for key in each}):
        values = [each.get(key) for each in known]
        if any(value != values[0] for value in values):
            differing.append(key)
    ends = Counter(key.rpartition(".")[2] for key in differing)
    texts = []
    for key in differing:
        end = key.rpartition(".")[2]
        # The last part alone, unless several keys end in it.
        texts.append(f"{end if ends[end] == 1 else key}={_shown(own.get(key))}")
    return ", ".join(texts)


def same_games(panels: Panels, other: Panels) -> bool:
    """True if panels of equal name have the same tasks in both runs."""
    return not any(_differing_panels(panels, other))


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted keys of a configuration with their values; an empty section is a value."""
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def differing_keys(config: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """Yield each differing key besides seed and method; of a section of another kind its name.

    For example, verl's trainer has other keys than the local one. A list of all these keys would
    hide the important difference, ``trainer=verl``.
    """
    first = _compared_leaves(config)
    second = _compared_leaves(other)
    # Prefixes of sections of another kind, such as "trainer.".
    renamed = set()
    for key, value in first.items():
        if key.endswith(".name") and value != second.get(key, value):
            renamed.add(key.removesuffix("name"))
    # Names come first, because only ``MOST_DIFFERENCES`` differences are printed in full.
    keys = sorted({*first, *second}, key=lambda key: (not key.endswith(".name"), key))
    for key in keys:
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


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def _differing_panels(panels: Panels, other: Panels) -> Iterator[str]:
    first = _panel_hashes(panels)
    second = _panel_hashes(other)
    for name in sorted(set(first) & set(second)):
        if first[name] != second[name]:
            yield f"other tasks in the panel {name}"


def _panel_hashes(panels: Panels) -> dict[str, Any]:
    return {name: panel.get("sha256") for name, panel in panels.items() if isinstance(panel, dict)}
