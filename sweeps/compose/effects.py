"""Settings of a comparison without an effect: values given twice, and keys that no run reads."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from scpo.records.identity import digest, identity
from scpo.schema.run import RunConfig

# Kind of scorer -> settings of the shaper that have no effect with it. Exact similarity is 0 or 1,
# so every threshold in (0, 1] accepts the same pairs, and the credit above the soft base,
# (s - base) / (1 - base), is 1 for each of them.
UNREAD = {"exact": ("theta", "soft_base")}
PREFIX = "method.shaper."


def repeated(axes: Mapping[str, Sequence[Any]]) -> Iterator[str]:
    """Note values that an axis names twice, where as many runs may be expected as values."""
    for axis, values in axes.items():
        for value in dict.fromkeys(value for value in values if values.count(value) > 1):
            yield f"{axis}: {value} is given {values.count(value)} times and runs once"


def unread_keys(config: RunConfig) -> tuple[str, ...]:
    """Keys whose value changes nothing in this run, although the configuration takes any."""
    method = config.method
    if method.kind != "trained" or method.shaper is None:
        # A key of a missing shaper is refused when the run is composed.
        return ()
    return tuple(PREFIX + name for name in UNREAD.get(config.scorer.kind, ()))


def unread_in_space(configs: Iterable[RunConfig], space: Mapping[str, str]) -> list[str]:
    """One line about the dimensions of a search that have no effect in any of these runs.

    Args:
        configs: The search's run with each scorer that it may take.
        space: Name of each dimension and the key that it sets.
    """
    configs = list(configs)
    # A dimension has an effect if any of the scorers reads it.
    unread = set.intersection(*(set(unread_keys(config)) for config in configs))
    names = [name for name, key in space.items() if key in unread]
    if not names:
        return []
    remove = " ".join(f"'~search.space.{name}'" for name in names)
    keys = [space[name] for name in names]
    return [f"{_no_effect(keys, configs[0])}, or leave out: {remove}"]


def unread_in_rows(configs: Sequence[RunConfig]) -> list[str]:
    """One line about keys that some runs do not read although they differ in nothing else."""
    concerned = [config for config in configs if unread_keys(config)]
    # (digest of the settings that are read, unread key) -> values of the key.
    values: dict[tuple[str, str], set[object]] = {}
    for config in concerned:
        read, unread = _split_unread(config)
        shared = digest(read)
        for key, value in unread.items():
            values.setdefault((shared, key), set()).add(value)

    varied = {key for (_, key), found in values.items() if len(found) > 1}
    if not varied:
        return []
    first = concerned[0]
    named = [key for key in unread_keys(first) if key in varied]
    return [f"{_no_effect(named, first)}; runs that differ in nothing else train alike"]


def _split_unread(config: RunConfig) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run's configuration without the keys that it does not read, and the values of these."""
    read = identity(config)
    unread = {}
    for key in unread_keys(config):
        unread[key] = read["method"]["shaper"].pop(key.removeprefix(PREFIX))
    return read, unread


def _no_effect(keys: Sequence[str], config: RunConfig) -> str:
    verb, them = ("has", "it") if len(keys) == 1 else ("have", "them")
    return (
        f"{' and '.join(keys)} {verb} no effect with scorer={config.scorer.name}, whose similarity "
        f"is 0 or 1; write scorer=lexical to vary {them}"
    )
