"""Settings of runs apart from seed and method: their hash, and the differences between two."""

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


def setting_of(config: dict[str, Any], panels: dict[str, Any]) -> str:
    """Hash of the panels and of the configuration without seed, method and machine."""
    shared = {key: value for key, value in config.items() if key not in NOT_COMPARED}
    text = json.dumps([shared, _panel_hashes(panels)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


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
