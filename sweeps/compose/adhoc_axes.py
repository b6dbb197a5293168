"""Axes that the command line adds to an experiment.

``key=a,b`` or ``'key=[a,b]'`` makes of each row one a value.
"""

import itertools
import re
from collections.abc import Sequence
from typing import Any

from omegaconf import ListConfig, OmegaConf

from scpo.errors import ConfigError
from scpo.schema.experiment import Experiment, ExperimentRow
from scpo.schema.method import METHOD_LABELS
from scpo.strict import Scale
from sweeps.compose.configuration import compose_raw
from sweeps.compose.overrides import Override, parse, parse_all

# One override for each value of the axis.
Axis = tuple[Override, ...]


def split_axes(
    experiment: Experiment, overrides: Sequence[Override], scale: Scale
) -> tuple[tuple[Axis, ...], tuple[Override, ...]]:
    """The axes among the overrides, and the rest.

    A list is an axis unless the key itself takes one.
    """
    axes = []
    rest = []
    for override in overrides:
        texts = override.axis or (
            _values(override) if _is_axis(experiment, override, scale) else ()
        )
        if texts:
            axes.append(
                tuple(
                    parse(f"{override.text.partition('=')[0]}={text}")
                    for text in dict.fromkeys(texts)
                )
            )
        else:
            rest.append(override)
    return tuple(axes), tuple(rest)


def with_axes(experiment: Experiment, axes: Sequence[Axis]) -> Experiment:
    """The experiment whose rows are the old ones at each point of the axes. A new name.

    Its records are its own.
    """
    if not axes:
        return experiment
    names = [_short(axis[0].key) for axis in axes]
    rows = [
        _row(experiment, row, point)
        for row in experiment.rows
        for point in itertools.product(*axes)
    ]
    return Experiment(
        name="_".join([experiment.name, "by", *map(_slug, names)]),
        title=f"{experiment.title}, by {' and '.join(names)}",
        axes=experiment.axes,
        overrides=experiment.overrides,
        rows=tuple(rows),
    )


def _row(experiment: Experiment, row: ExperimentRow, point: Sequence[Override]) -> ExperimentRow:
    """A row at one point of the axes, named by the values: ``gigpo``, ``theta_0_4``.

    The values form the whole name where the experiment adds nothing of its own.
    """
    only = len(experiment.rows) == 1 and not row.overrides
    names = [] if only else [row.name]
    labels = [] if only else [row.label]
    for override in point:
        value = override.text.partition("=")[2]
        # The name of a method, a scorer, ...
        if override.is_choice and not override.is_host:
            names.append(_slug(value))
            labels.append(METHOD_LABELS.get(value, value) if override.key == "method" else value)
        else:
            key = _short(override.key)
            names += [_slug(key), _slug(value)]
            labels.append(f"{key} = {value}")

    return row.model_copy(
        update={
            "name": "_".join(names),
            "label": ", ".join(labels),
            "overrides": (*row.overrides, *(override.text for override in point)),
        }
    )


def _is_axis(experiment: Experiment, override: Override, scale: Scale) -> bool:
    if not isinstance(override.value, list) or not override.sets:
        return False
    if override.is_group or override.is_host:
        return True
    chosen = (f"scale={scale}", *experiment.shared_overrides(scale), *experiment.rows[0].overrides)
    return not isinstance(
        OmegaConf.select(compose_raw(parse_all(chosen)), override.key), ListConfig
    )


def _values(override: Override) -> tuple[str, ...]:
    if not override.value:
        raise ConfigError(f"{override}: an axis needs at least one value")
    return tuple(map(_text, override.value))


def _text(value: Any) -> str:
    """In Hydra's grammar."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, dict | list):
        raise ConfigError(
            f"{value}: an axis takes plain values; write a row for it in a file of your own"
        )
    text = str(value)
    if not isinstance(value, str) or re.fullmatch(r"[\w./:-]+", text):
        return text
    return "'" + text.replace("'", "\\'") + "'"


def _short(key: str) -> str:
    return key.rpartition(".")[2]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_") or "x"
