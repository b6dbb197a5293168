"""Checks of an experiment's rows: overrides that do not belong in them, and comparisons of them.

A row differs from the others in its method and settings. What all runs of a call have in common
(folders, launcher, W&B), and the seeds, are set elsewhere.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from scpo.errors import ConfigError
from scpo.schema.experiment import Experiment, ExperimentRow
from scpo.strict import Scale
from sweeps.compose.overrides import Override, parse_all, replaced

Point = tuple[str, str, int]
"""Benchmark, model and seed of a run. Rows are paired where they have one in common."""

# Axis -> its place in a ``Point``.
PLACES = {"env": 0, "model": 1, "seeds": 2}


def refuse_misplaced(experiment: Experiment, scale: Scale) -> None:
    """Refuse overrides that would have no effect, or half of one, where the file has them.

    ``seed=`` for a row would be its only seed; for all rows it has no effect. A folder or a
    launcher of one row would be used by its runs, while the call looks them up in the first row's.
    """
    places = {"the overrides of all rows": experiment.shared_overrides(scale)}
    places |= {f"the overrides of row {row.name}": row.overrides for row in experiment.rows}
    shared = next(iter(places))
    for place, overrides in places.items():
        for override in parse_all(overrides):
            if override.key == "seed":
                raise ConfigError(
                    f"experiment {experiment.name}: {override} in {place}: seeds are an axis; "
                    "delete it there and list the seeds under axes, or, for a row that has fewer "
                    "of them, next to its overrides: seeds: [0]"
                )
            if override.of_machine and place != shared:
                raise ConfigError(
                    f"experiment {experiment.name}: {override} in {place}: machine, launcher and "
                    "wandb set where and how runs execute, for all rows of a call; delete it "
                    f"there and give it on the command line: {override}"
                )


def refuse_axes_of_machine(axes: Iterable[Sequence[Override]]) -> None:
    """Refuse an axis of the command line whose values would all be the same run."""
    for first, *others in axes:
        if first.of_machine:
            values = " or ".join(map(str, (first, *others)))
            raise ConfigError(
                f"{first.key}: machine, launcher and wandb set where and how runs execute and "
                "cannot be an axis, because runs with other values are the same runs; give one: "
                f"{values}"
            )


def refuse_two_settings(points: Mapping[str, Sequence[Point]], axes: Mapping[str, Any]) -> None:
    """Refuse a row that has two runs of one benchmark, model and seed.

    Tables average a row's runs over seeds, and pair rows by seed. Two values of an axis that have
    one name, such as ``alfworld`` and ``alfworld env.horizon=40``, would be pooled.

    Args:
        points: Row -> benchmark, model and seed of each of its runs.
        axes: Axis -> its values.

    Raises:
        ConfigError: It has.
    """
    for name, of_row in points.items():
        repeated = next((point for point, count in Counter(of_row).items() if count > 1), None)
        if repeated is None:
            continue
        values = {axis: "; ".join(map(str, axes[axis])) for axis in ("env", "model")}
        raise ConfigError(
            f"row {name} has {of_row.count(repeated)} runs on {repeated[0]}, {repeated[1]}, seed "
            f"{repeated[2]}: values of an axis differ only in settings (env: {values['env']}; "
            f"model: {values['model']}), and tables would average over them as over seeds. Give "
            "each setting rows of its own, with the setting in their overrides, or a call of its "
            "own"
        )


def given_twice(experiment: Experiment, scale: Scale) -> Iterator[str]:
    """Note a key that one list of overrides has twice, as on the command line.

    The overrides of ``at_scale`` are a list of their own, which may replace those of the row.
    """
    lists: list[tuple[str, Sequence[str]]] = [
        ("the overrides of all rows", experiment.shared_overrides(scale))
    ]
    for row in experiment.rows:
        lists.append((f"row {row.name}", row.overrides))
        lists.append((f"row {row.name}, at_scale {scale}", row.at_scale.get(scale, ())))
    for place, overrides in lists:
        for remark in replaced(parse_all(overrides)):
            yield f"{place}: {remark}"


def environments_of_rows(rows: Iterable[ExperimentRow], axis: Sequence[Any]) -> Iterator[str]:
    """Note a row with an environment that the axis does not have.

    Only environments: tables show each by itself, so such a row is in none with the other rows.
    """
    # A value of the axis may bring overrides of its own: `webshop env.setting=paper`.
    values = [str(value).partition(" ")[0] for value in axis]
    for row in rows:
        own = [override for override in parse_all(row.overrides) if override.key == "env"]
        if own and isinstance(own[-1].value, str) and own[-1].value not in values:
            yield (
                f"row {row.name}: its own {own[-1]} is used, not the axis env: "
                f"[{', '.join(map(str, axis))}]"
            )


def check_comparisons(
    experiment: Experiment, points: Mapping[str, Sequence[Point]], chosen: Iterable[str]
) -> Iterator[str]:
    """Refuse a named comparison of which no runs can be paired; yield notes on others without any.

    Args:
        experiment: The experiment at its scale.
        points: Row -> benchmark, model and seed of each of its runs in this call.
        chosen: Axes whose values are those of the command line.

    Raises:
        ConfigError: By the file alone, the two rows have no run in common.
    """
    rows = {row.name: row for row in experiment.rows}
    for pair in experiment.primary.comparisons if experiment.primary else ():
        names = f"primary comparison [{', '.join(pair)}]"
        first, second = (rows[name] for name in pair)
        if not set(first.scales) & set(second.scales):
            _refuse_pair(experiment, names, _differ(pair, [first.scales, second.scales], "scale"))
        if not all(points.get(name) for name in pair):
            # Not at this scale, or not among the selected rows.
            continue
        for axis, place in PLACES.items():
            values = [tuple(dict.fromkeys(point[place] for point in points[n])) for n in pair]
            if set(values[0]) & set(values[1]):
                continue
            differ = _differ(pair, values, axis.removesuffix("s"))
            if axis in chosen and not (_sets(first, axis) and _sets(second, axis)):
                # Another call, with the axis of the file, has pairs.
                yield f"{names}: no pairs among the runs of this call: {differ}"
            else:
                _refuse_pair(experiment, names, differ)


def _sets(row: ExperimentRow, axis: str) -> bool:
    """True if a row has a value of its own in place of an axis."""
    if axis == "seeds":
        return row.seeds is not None
    return any(override.key == axis for override in parse_all(row.overrides))


def _differ(pair: Sequence[str], values: Sequence[Sequence[Any]], what: str) -> str:
    """The two rows of a comparison with their values: ``row scpo has seed 0, row grpo seed 1``."""
    shown = []
    for of_row in values:
        plural = "s" if len(of_row) > 1 else ""
        shown.append(f"{what}{plural} {', '.join(map(str, of_row))}")
    return f"row {pair[0]} has {shown[0]}, row {pair[1]} {shown[1]}"


def _refuse_pair(experiment: Experiment, names: str, differ: str) -> None:
    raise ConfigError(
        f"experiment {experiment.name}: {names} can never have a pair: {differ}, and runs are "
        "paired by environment, model and seed at one scale; give both rows the same, or take the "
        "comparison out of primary"
    )
