"""What sets two configurations apart besides seed and method, in the words that a command line has for it."""

from collections.abc import Iterator, Mapping
from typing import Any

from scpo.schema import MACHINE_SECTIONS

NOT_COMPARED = ("seed", "method", *MACHINE_SECTIONS)
OF_THE_METHOD = ("trainer.loss.clip_high",)  # stands with the trainer, follows from the method
MOST = 3  # differences that are spelled out
Panels = Mapping[str, Any]


def setting_differences(
    one: Mapping[str, Any], other: Mapping[str, Any], games: tuple[Panels, Panels] = ({}, {})
) -> str:
    """For example ``trainer=local (the others: verl)``; empty if nothing differs.

    Args:
        one: A run's configuration, of which it is told.
        other: That of a run of the others.
        games: The validation panels that the two recorded, with the hashes of their tasks.
    """
    found = [*_settings(one, other), *_panels(*games)]
    more = f"; {len(found) - MOST} more settings" if len(found) > MOST else ""
    return "; ".join(found[:MOST]) + more


def same_games(one: Panels, other: Panels) -> bool:
    """Whether the panels that both recorded under one name hold the same tasks."""
    return not any(_panels(one, other))


def _settings(one: Mapping[str, Any], other: Mapping[str, Any]) -> Iterator[str]:
    """A part of another kind is told by its name alone, and by what both kinds have."""
    kept = [
        {key: value for key, value in config.items() if key not in NOT_COMPARED}
        for config in (one, other)
    ]
    first, second = (
        {key: value for key, value in leaves(config) if key not in OF_THE_METHOD and value != {}}
        for config in kept
    )
    renamed = {
        key.removesuffix("name")
        for key in first
        if key.endswith(".name") and first[key] != second.get(key, first[key])
    }
    for key in sorted({*first, *second}, key=lambda key: (not key.endswith(".name"), key)):
        follows = key.endswith(".kind") or key not in first or key not in second
        if first.get(key) == second.get(key) or (
            follows and any(key.startswith(prefix) for prefix in renamed)
        ):
            continue
        yield f"{key.removesuffix('.name')}={_shown(first.get(key))} (the others: {_shown(second.get(key))})"


def leaves(config: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys with their values; an empty part is a value."""
    for key, value in config.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def _panels(one: Panels, other: Panels) -> Iterator[str]:
    hashes = [
        {name: panel.get("sha256") for name, panel in known.items() if isinstance(panel, dict)}
        for known in (one, other)
    ]
    for name in sorted(set(hashes[0]) & set(hashes[1])):
        if hashes[0][name] != hashes[1][name]:
            yield f"other tasks in the panel {name}"
